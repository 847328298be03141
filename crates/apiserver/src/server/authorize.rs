//! Authentication by tokens of service accounts, and authorization by the stored roles.

use std::sync::Arc;

use http::{HeaderMap, header, request::Parts};
use serde_json::{Value, json};

use super::{Call, Server};
use crate::{
    authorize::{
        self, AUTHENTICATED, Access, Grant, MASTERS,
        node::{self, NodeWrite, Opinion},
    },
    failure::Failure,
    object,
    review::{Claims, Identity},
    service::Authorization,
    store::{Key, Object},
};

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// Key of the claim with the node of a pod.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// The answer of the authorizer.
pub(super) struct Decision {
    pub(super) is_allowed: bool,
    pub(super) reason: String,
}

impl Server {
    /// Returns the caller that a token of a service account names, with its claims.
    pub(crate) fn account_of(&self, headers: &HeaderMap) -> Option<(Identity, Claims)> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        self.account_of_token(token.trim())
    }

    /// Returns the caller that a token names, if its account and its pod still exist.
    pub(super) fn account_of_token(&self, token: &str) -> Option<(Identity, Claims)> {
        let claims = self.tokens.verify(token, self.clock.now())?;
        let private = claims.get("kubernetes.io")?;
        let namespace = object::text(private, &["namespace"]);
        let lives = |kind: &str, collection: &str, namespace: &str| {
            let Some(reference) = private.get(kind) else { return true };
            let key = Key::new(namespace, object::text(reference, &["name"]));
            let found = self.store.get(collection, &key);
            found.is_some_and(|it| *it.head.uid == *object::text(reference, &["uid"]))
        };
        let is_valid = lives("serviceaccount", "serviceaccounts", namespace)
            && lives("pod", "pods", namespace)
            && lives("secret", "secrets", namespace);
        if !is_valid {
            return None;
        }
        let mut extra = json!({"authentication.kubernetes.io/credential-id":
            [format!("JTI={}", object::text(&claims, &["jti"]))]});
        for (kind, claim, field) in [
            ("node", NODE_CLAIM, "name"),
            ("pod", "authentication.kubernetes.io/pod-name", "name"),
            ("pod", "authentication.kubernetes.io/pod-uid", "uid"),
        ] {
            if let Some(value) = private.get(kind).and_then(|it| it.get(field)) {
                object::map_of(&mut extra).insert(claim.to_owned(), json!([value]));
            }
        }
        let uid = object::text(private, &["serviceaccount", "uid"]).to_owned();
        let user = object::text(&claims, &["sub"]).to_owned();
        Some((account(user, namespace), Claims { uid, extra }))
    }

    /// Returns the caller that a request acts for, with its claims: the one that it names, if the
    /// caller may impersonate, or the caller itself.
    pub(super) fn acting(
        &self,
        parts: &Parts,
        caller: Identity,
    ) -> Result<(Identity, Claims), Failure> {
        let of = |name: &str| {
            let values = parts.headers.get_all(name).into_iter();
            values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut caller = caller;
        let mut claims = parts.extensions.get::<Claims>().cloned().unwrap_or_default();
        if let Some(user) = of("impersonate-user").into_iter().next() {
            let groups = of("impersonate-group");
            let asked = |resource: &str, name: &str| Access {
                verb: "impersonate".to_owned(),
                resource: resource.to_owned(),
                name: name.to_owned(),
                ..Access::default()
            };
            match user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':')) {
                Some((namespace, name)) => {
                    let mut account = asked("serviceaccounts", name);
                    namespace.clone_into(&mut account.namespace);
                    self.authorize(&caller, &account)?;
                }
                None => self.authorize(&caller, &asked("users", &user))?,
            }
            for group in &groups {
                self.authorize(&caller, &asked("groups", group))?;
            }
            caller = match user.strip_prefix("system:serviceaccount:") {
                Some(rest) if groups.is_empty() => {
                    account(user.clone(), rest.split(':').next().unwrap_or(""))
                }
                _ => Identity { user, groups },
            };
            claims = Claims::default();
        }
        let is_known = caller.groups.iter().any(|group| group == AUTHENTICATED);
        let is_anonymous = caller.user == "system:anonymous";
        if is_anonymous && caller.groups.is_empty() {
            caller.groups.push("system:unauthenticated".to_owned());
        } else if !is_anonymous && !is_known {
            caller.groups.push(AUTHENTICATED.to_owned());
        }
        Ok((caller, claims))
    }

    /// Fails if the caller may not do this.
    pub(super) fn authorize(&self, caller: &Identity, access: &Access) -> Result<(), Failure> {
        if self.authorization == Authorization::Everything {
            return Ok(());
        }
        let decision = self.decide(caller, access);
        if decision.is_allowed {
            return Ok(());
        }
        let mut why = access.refusal(&caller.user);
        if !decision.reason.is_empty() {
            why = format!("{why}: {}", decision.reason);
        }
        if let Some(report) = &self.on_denied {
            report(&why);
        }
        Err(Failure::no_access(&access.group, &access.resource, &access.name, &why))
    }

    /// Decides by the stored roles if a caller may do this.
    pub(super) fn decide(&self, caller: &Identity, access: &Access) -> Decision {
        if caller.groups.iter().any(|group| group == MASTERS) {
            return Decision { is_allowed: true, reason: String::new() };
        }
        let mut reasons = Vec::new();
        if let Some(node) = node::of(caller) {
            match self.decide_node(node, access) {
                None => return Decision { is_allowed: true, reason: String::new() },
                Some(why) => reasons.extend(Some(why).filter(|why| !why.is_empty())),
            }
        }
        let mut missing = Vec::new();
        for grant in self.grants(caller, &access.namespace) {
            match self.role(&grant) {
                Ok(role) => {
                    if authorize::rules(&role.value())
                        .iter()
                        .any(|rule| authorize::allows(rule, access))
                    {
                        return Decision { is_allowed: true, reason: grant.reason };
                    }
                }
                Err(absent) => missing.push(absent),
            }
        }
        match missing.as_slice() {
            [] => {}
            [only] => reasons.push(format!("RBAC: {only}")),
            many => reasons.push(format!("RBAC: [{}]", many.join(", "))),
        }
        Decision { is_allowed: false, reason: reasons.join("\n") }
    }

    /// Returns the reason why the rights of nodes do not allow this, or none if they do.
    fn decide_node(&self, node: &str, access: &Access) -> Option<String> {
        match node::decide(node, access) {
            Opinion::Allowed => None,
            Opinion::None(why) => Some(why),
            Opinion::IfRelated => {
                let pods = self.store.list("pods", Some(&access.namespace), None).0;
                let is_related =
                    |pod: &Object| *pod.head.node == *node && node::uses(&pod.value(), access);
                let is_allowed = pods.iter().any(|pod| is_related(pod));
                (!is_allowed)
                    .then(|| format!("no relationship found between node '{node}' and this object"))
            }
        }
    }

    /// Fails if the caller is a node that may not write this.
    pub(super) fn check_node(
        &self,
        call: &Call,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let Some(node) = node::of(&call.caller) else { return Ok(()) };
        if self.authorization == Authorization::Everything {
            return Ok(());
        }
        let stored = self.store.get("nodes", &Key::new("", node));
        let named = new.or(old).map_or("", object::name);
        let name = call.name.as_deref().unwrap_or(named);
        let refusal = node::refusal(&NodeWrite {
            node,
            uid: stored.as_ref().map(|it| &*it.head.uid),
            resource: &call.resource.qualified(),
            subresource: &call.subresource,
            namespace: call.namespace.as_deref().unwrap_or(""),
            name,
            new,
            old,
        });
        match refusal {
            Some(why) => Err(Failure::forbidden(&call.resource, name, &why)),
            None => Ok(()),
        }
    }

    /// Returns the roles of a caller: those of the cluster, and those of a namespace.
    fn grants(&self, caller: &Identity, namespace: &str) -> Vec<Grant> {
        let mut bindings = self.store.list(CLUSTER_ROLE_BINDINGS, None, None).0;
        if !namespace.is_empty() {
            bindings.extend(self.store.list(ROLE_BINDINGS, Some(namespace), None).0);
        }
        bindings.iter().filter_map(|one| authorize::grant(&one.value(), caller)).collect()
    }

    /// Returns the role of a grant.
    pub(super) fn role(&self, grant: &Grant) -> Result<Arc<Object>, String> {
        let (collection, namespace) = match grant.kind.as_str() {
            "Role" => (ROLES, grant.namespace.as_str()),
            _ => (CLUSTER_ROLES, ""),
        };
        let found = self.store.get(collection, &Key::new(namespace, &grant.role));
        let kind = grant.kind.to_lowercase();
        found
            .ok_or_else(|| format!("{kind}.rbac.authorization.k8s.io \"{}\" not found", grant.role))
    }

    /// Returns the rules of a caller in a namespace.
    pub(super) fn rules_of(&self, caller: &Identity, namespace: &str) -> Vec<Value> {
        let roles = self.grants(caller, namespace).into_iter();
        let roles = roles.filter_map(|grant| self.role(&grant).ok());
        roles.flat_map(|role| authorize::rules(&role.value()).to_vec()).collect()
    }
}

/// Returns the claims of a pod on a node.
pub(crate) fn of_node(node: &str) -> Value {
    json!({NODE_CLAIM: [node]})
}

/// Returns the identity of a service account.
pub(crate) fn account(user: String, namespace: &str) -> Identity {
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        AUTHENTICATED.to_owned(),
    ];
    Identity { user, groups }
}
