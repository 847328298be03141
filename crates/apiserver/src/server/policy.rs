//! Applies `ValidatingAdmissionPolicy` objects to writes.

use std::sync::Arc;

use serde_json::Value;

use super::{Call, Server, scale, write};
use crate::{
    failure::{Failure, Fault},
    object::{self, at, text},
    policy::{self, Denial, Kind, Request},
    resource::{Resource, builtin},
    review,
    select::Selector,
    store::Key,
    types::{self, canonical},
};

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// The kind of the objects of the subresource `scale`.
const SCALE: Kind<'_> = Kind { group: "autoscaling", version: "v1", name: "Scale" };

/// Brings the body of a subresource into the form of its kind, in the namespace of the request.
pub(super) fn posted(call: &Call, kind: Kind<'_>, body: &Value) -> Result<Value, Failure> {
    let mut read = body.clone();
    let Kind { group, version, name } = kind;
    if let Some(found) = types::of_kind(group, version, name) {
        canonical::read(found, &mut read).map_err(|why| {
            Failure::bad_request(format!(
                "{name} in version \"{version}\" cannot be handled as a {name}: {why}"
            ))
        })?;
    }
    let api_version = [group, version].into_iter().filter(|it| !it.is_empty());
    let api_version = api_version.collect::<Vec<_>>().join("/");
    let map = object::map_of(&mut read);
    map.insert("apiVersion".into(), api_version.into());
    map.insert("kind".into(), name.into());
    write::place(call, &mut read)?;
    Ok(read)
}

impl Server {
    /// Fails if a policy denies the write, if a node may not write this, or if it decides on a certificate by the wrong subresource.
    /// `new` is the object to store, `old` the stored one.
    pub(super) fn check_write(
        &self,
        call: &Call,
        operation: &'static str,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        if let (Some(new), Some(old)) = (new, old) {
            check_approval(call, new, old)?;
        }
        self.check_node(call, new, old)?;
        if call.subresource == "scale" {
            // Compat: the object of the request is the scale, not what it scales.
            let (new, old) = (new.map(scale::view), old.map(scale::view));
            return self.check_policies(call, SCALE, operation, new.as_ref(), old.as_ref());
        }
        self.check_policies(call, Kind::of(&call.resource), operation, new, old)
    }

    /// Fails if a policy denies the creation of the object of a subresource, which is not stored.
    pub(super) fn check_posted(
        &self,
        call: &Call,
        kind: Kind<'_>,
        posted: &Value,
    ) -> Result<(), Failure> {
        self.check_policies(call, kind, "CREATE", Some(posted), None)
    }

    fn check_policies(
        &self,
        call: &Call,
        kind: Kind<'_>,
        operation: &'static str,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let bindings = self.store.list(BINDINGS, None, None).0;
        // Compat: policies are not about policies, so that a wrong one can be removed.
        if bindings.is_empty() || call.resource.group == "admissionregistration.k8s.io" {
            return Ok(());
        }
        // The objects of a collection may be of several namespaces.
        let place = call.namespace.as_deref().or_else(|| new.or(old).map(object::namespace));
        let key = place.filter(|it| !it.is_empty()).map(|namespace| Key::new("", namespace));
        let stored = key.and_then(|key| self.store.get(builtin::NAMESPACES, &key));
        let namespace = stored.as_ref().map(|found| found.value());
        let null = Value::Null;
        let (object, before) = (new.unwrap_or(&null), old.unwrap_or(&null));
        let about = if object.is_null() { before } else { object };
        let name = call.name.as_deref().unwrap_or_else(|| object::name(about));
        let request = Request {
            operation,
            resource: &call.resource,
            versions: self.versions_of(&call.resource),
            subresource: &call.subresource,
            kind,
            name,
            user: review::user_info(&call.caller, &call.claims),
            object,
            old: before,
            is_dry_run: call.query.dry_run,
            namespace: namespace.as_deref().unwrap_or(&null),
        };
        for binding in bindings {
            self.check_binding(&binding.value(), &request)?;
        }
        Ok(())
    }

    /// Returns all served versions of a resource.
    fn versions_of(&self, resource: &Resource) -> Vec<String> {
        let served = self.catalog.served();
        let is_same =
            |one: &&Arc<Resource>| one.group == resource.group && one.plural == resource.plural;
        served.values().filter(is_same).map(|one| one.version.clone()).collect()
    }

    fn check_binding(&self, binding: &Value, request: &Request<'_>) -> Result<(), Failure> {
        let actions = at(binding, &["spec", "validationActions"]).and_then(Value::as_array);
        let denies = actions.is_some_and(|list| list.iter().any(|action| action == "Deny"));
        let name = text(binding, &["spec", "policyName"]);
        let Some(found) = self.store.get(POLICIES, &Key::new("", name)).filter(|_| denies) else {
            return Ok(());
        };
        let policy = &*found.value();
        let constraints = at(policy, &["spec", "matchConstraints"]);
        let is_selected = |constraints: Option<&Value>| {
            constraints.is_none_or(|constraints| policy::selects(constraints, request))
        };
        if !is_selected(constraints) || !is_selected(at(binding, &["spec", "matchResources"])) {
            return Ok(());
        }
        let refusal = |denial: Denial| {
            let message = format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {}",
                object::name(binding),
                denial.message
            );
            Failure::denied(request.resource, request.name, denial.reason, &message)
        };
        let parameters = self.parameters(policy, binding, request).map_err(refusal)?;
        let evaluate = |one: &Value| policy::evaluate(policy, request, one, &self.programs);
        let mut denials = parameters.iter().filter_map(evaluate);
        match denials.next() {
            Some(denial) => Err(refusal(denial)),
            None => Ok(()),
        }
    }

    /// Returns the objects that a policy is evaluated with: null alone if it takes none.
    fn parameters(
        &self,
        policy: &Value,
        binding: &Value,
        request: &Request<'_>,
    ) -> Result<Vec<Value>, Denial> {
        let kind = at(policy, &["spec", "paramKind"]).filter(|it| !it.is_null());
        let reference = at(binding, &["spec", "paramRef"]).filter(|it| !it.is_null());
        let (Some(kind), Some(reference)) = (kind, reference) else {
            return Ok(vec![Value::Null]);
        };
        let served = self.catalog.served();
        let resource = served.values().find(|one| {
            one.kind == text(kind, &["kind"]) && one.api_version() == text(kind, &["apiVersion"])
        });
        let found = resource.map(|resource| {
            let namespace = match (resource.namespaced, text(reference, &["namespace"])) {
                (false, _) => "",
                (true, "") => object::name(request.namespace),
                (true, given) => given,
            };
            let Some(selector) = at(reference, &["selector"]).filter(|it| !it.is_null()) else {
                let key = Key::new(namespace, text(reference, &["name"]));
                return self.store.get(&resource.collection, &key).into_iter().collect();
            };
            let selector = Selector::from_object(selector);
            let namespace = Some(namespace).filter(|it| !it.is_empty());
            let mut all = self.store.list(&resource.collection, namespace, None).0;
            all.retain(|one| selector.selects(one));
            all
        });
        let found = found.unwrap_or_default();
        match (found.as_slice(), text(reference, &["parameterNotFoundAction"])) {
            ([_, ..], _) => Ok(found.iter().map(|one| one.whole()).collect()),
            ([], "Allow") => Ok(Vec::new()),
            ([], _) => Err(Denial {
                message: "failed to configure binding: no params found for policy binding with \
                    `Deny` parameterNotFoundAction"
                    .to_owned(),
                reason: "Invalid",
            }),
        }
    }
}

/// Validates that only the subresource `approval` decides on a certificate request, and that it
/// issues no certificate.
fn check_approval(call: &Call, new: &Value, old: &Value) -> Result<(), Failure> {
    if call.resource.custom || call.resource.kind != "CertificateSigningRequest" {
        return Ok(());
    }
    let has = |request: &Value, kind: &str| {
        let list = at(request, &["status", "conditions"]).and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| text(one, &["type"]) == kind))
    };
    let mut faults = Vec::new();
    if call.subresource == "approval" {
        if at(new, &["status", "certificate"]) != at(old, &["status", "certificate"]) {
            let rule = "updates may not set certificate content";
            faults.push(Fault::forbidden("status.certificate", rule));
        }
    } else {
        for kind in ["Approved", "Denied"] {
            if has(new, kind) && !has(old, kind) {
                let rule = format!("updates may not add a condition of type \"{kind}\"");
                faults.push(Fault::forbidden("status.conditions", &rule));
            }
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(&call.resource, object::name(old), &faults))
}
