//! Keeps the author of a role or a binding from giving rights that the author lacks.

use serde_json::{Value, json};

use super::{Call, Server};
use crate::{
    authorize::{self, Access, Grant, MASTERS, cover},
    failure::Failure,
    object::{self, at, text},
    resource::builtin::RBAC,
    service::Authorization,
};

/// Metadata that only the garbage collection writes.
const COLLECTED: [&str; 3] = ["ownerReferences", "finalizers", "managedFields"];

impl Server {
    /// Fails if a role or a binding gives rights that its author has neither directly nor by the verbs
    /// `escalate` and `bind`.
    pub(super) fn check_grant(
        &self,
        call: &Call,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let resource = &call.resource;
        if self.authorization == Authorization::Everything
            || resource.group != RBAC
            || call.caller.groups.iter().any(|group| group == MASTERS)
            || old.is_some_and(|old| is_only_collected(new, old))
        {
            return Ok(());
        }
        match resource.kind.as_str() {
            "Role" | "ClusterRole" => self.check_role(call, new, old),
            _ => self.check_role_reference(call, new),
        }
    }

    fn check_role(&self, call: &Call, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
        let namespace = call.namespace.clone().unwrap_or_default();
        let access = Access {
            verb: "escalate".to_owned(),
            group: RBAC.to_owned(),
            resource: call.resource.plural.clone(),
            namespace: namespace.clone(),
            name: call.name.clone().unwrap_or_default(),
            ..Access::default()
        };
        if self.decide(&call.caller, &access).is_allowed {
            return Ok(());
        }
        self.check_held(call, object::name(new), authorize::rules(new))?;
        let is_aggregated = |role: &Value| {
            let list = at(role, &["aggregationRule", "clusterRoleSelectors"]);
            list.and_then(Value::as_array).is_some_and(|list| !list.is_empty())
        };
        let everything = [
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
        ];
        let owned = self.rules_of(&call.caller, &namespace);
        if (is_aggregated(new) || old.is_some_and(is_aggregated))
            && !cover::missing(&owned, &everything).is_empty()
        {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Failure::forbidden(&call.resource, object::name(new), why));
        }
        Ok(())
    }

    fn check_role_reference(&self, call: &Call, new: &Value) -> Result<(), Failure> {
        let of = |field| text(new, &["roleRef", field]).to_owned();
        let namespace = call.namespace.clone().unwrap_or_default();
        let resource = match of("kind").as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            other => {
                return Err(Failure::unexplained(format!(
                    "unsupported role reference kind: {other:?}"
                )));
            }
        };
        let access = Access {
            verb: "bind".to_owned(),
            group: RBAC.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.clone(),
            name: of("name"),
            ..Access::default()
        };
        if self.decide(&call.caller, &access).is_allowed {
            return Ok(());
        }
        let grant = Grant { kind: of("kind"), role: of("name"), namespace, reason: String::new() };
        // Compat: the binding is reported, with the name of the role.
        let absent = |_| Failure::not_found(&call.resource, &grant.role);
        let role = self.role(&grant).map_err(absent)?;
        self.check_held(call, object::name(new), authorize::rules(&role.value()))
    }

    /// Fails if the caller lacks a right of the rules.
    fn check_held(&self, call: &Call, name: &str, rules: &[Value]) -> Result<(), Failure> {
        let owned = self.rules_of(&call.caller, call.namespace.as_deref().unwrap_or(""));
        let missing = cover::missing(&owned, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let groups = cover::quoted(call.caller.groups.iter().map(String::as_str));
        let list: Vec<String> = missing.into_iter().collect();
        let why = format!(
            "user {:?} (groups={groups}) is attempting to grant RBAC permissions not currently \
             held:\n{}",
            call.caller.user,
            list.join("\n")
        );
        Err(Failure::forbidden(&call.resource, name, &why))
    }
}

/// Returns true if a change is only about the garbage collection of the object.
fn is_only_collected(new: &Value, old: &Value) -> bool {
    let plain = |value: &Value| {
        let mut value = value.clone();
        for field in COLLECTED {
            object::drop_meta(&mut value, field);
        }
        value
    };
    plain(new) == plain(old)
}
