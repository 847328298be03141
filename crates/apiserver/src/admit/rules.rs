//! Validation of the built-in kinds, with the messages of kube-apiserver.

mod address;
mod batch;
mod certificate;
mod data;
mod endpoints;
mod event;
mod node;
mod pod;
mod policy;
mod priority;
mod rbac;
mod selector;
mod service;
pub(super) mod status;
mod strategy;
mod workload;

use serde_json::Value;

use crate::{failure::Fault, object, resource::Resource};

/// Validates an object of a built-in kind, and its change from `old`.
pub(super) fn check(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<Fault> {
    match resource.kind.as_str() {
        "ConfigMap" => data::config_map(new, old),
        "Secret" => data::secret(new, old),
        "Node" => node::check(new, old),
        "Pod" => pod::check(new, old),
        "Deployment" => workload::deployment(new, old),
        "DaemonSet" => workload::daemon_set(new, old),
        "PodDisruptionBudget" => workload::budget(new),
        "Lease" => workload::lease(new),
        "Event" => event::check(resource, new, old),
        "Namespace" => workload::namespace(new, old),
        "ReplicaSet" => workload::replica_set(new, old),
        "Job" => batch::job(new, old),
        "Service" => service::check(new, old),
        "Endpoints" => endpoints::endpoints(new, old),
        "EndpointSlice" => endpoints::slice(new, old),
        "Role" => rbac::role(new),
        "ClusterRole" => rbac::cluster_role(new),
        "RoleBinding" => rbac::binding(new, old, true),
        "ClusterRoleBinding" => rbac::binding(new, old, false),
        "ValidatingAdmissionPolicy" => policy::check(new),
        "ValidatingAdmissionPolicyBinding" => policy::binding(new),
        "CertificateSigningRequest" => certificate::check(new, old),
        "PriorityClass" => priority::check(new, old),
        _ => Vec::new(),
    }
}

/// The message for a field that cannot change.
const IMMUTABLE: &str = "field is immutable";

/// Returns the error for a changed field that cannot change.
fn unchanged(path: &[&str], new: &Value, old: &Value) -> Option<Fault> {
    let (now, before) = (object::at(new, path), object::at(old, path));
    (now != before).then(|| {
        let now = now.cloned().unwrap_or_default();
        Fault::invalid(path.join("."), &now, IMMUTABLE)
    })
}

/// Returns the items of a list.
fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

/// Returns the error for a negative number.
fn not_negative(value: &Value, path: &[&str]) -> Option<Fault> {
    let found = object::at(value, path)?;
    let rule = "must be greater than or equal to 0";
    found.as_i64().filter(|number| *number < 0)?;
    Some(Fault::invalid(path.join("."), found, rule))
}
