//! The rights of nodes: what a kubelet may read and change, and the limits of its writes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Access, allows};
use crate::{
    object::{at, text},
    review::Identity,
};

/// Group of all nodes.
const NODES: &str = "system:nodes";

/// Namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Annotation of a pod that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The answer to a question about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opinion {
    Allowed,
    /// Allowed if a pod of the node is the object, or uses it.
    IfRelated,
    /// Not allowed by the rights of nodes, with a reason or without.
    None(String),
}

/// Returns the node that a caller is.
pub(crate) fn of(caller: &Identity) -> Option<&str> {
    let name = caller.user.strip_prefix("system:node:")?;
    (caller.groups.iter().any(|group| group == NODES) && !name.is_empty()).then_some(name)
}

/// Decides if a node may do this.
pub(crate) fn decide(node: &str, access: &Access) -> Opinion {
    let refused = |why: &str| Opinion::None(why.to_owned());
    let Access { verb, group, resource, subresource, .. } = access;
    match (group.as_str(), resource.as_str()) {
        ("", "secrets" | "configmaps") => {
            if !matches!(verb.as_str(), "get" | "list" | "watch") {
                return refused("can only read resources of this type");
            }
            if !subresource.is_empty() {
                return refused("cannot read subresource");
            }
            if access.namespace.is_empty() {
                return refused("can only read namespaced object of this type");
            }
            related(access)
        }
        ("", "serviceaccounts") => {
            if verb == "get" && subresource.is_empty() {
                return related(access);
            }
            if verb != "create" || access.name.is_empty() {
                return refused("can only create tokens for individual service accounts");
            }
            if subresource != "token" {
                return refused("can only create token subresource of serviceaccount");
            }
            Opinion::IfRelated
        }
        ("coordination.k8s.io", "leases") => lease(node, access),
        ("", "nodes") => own_node(node, access),
        ("", "pods") => pods(node, access),
        _ if access.path.is_none() && rules().iter().any(|rule| allows(rule, access)) => {
            Opinion::Allowed
        }
        _ => refused(""),
    }
}

fn related(access: &Access) -> Opinion {
    if access.name.is_empty() {
        return Opinion::None("No Object name found".to_owned());
    }
    Opinion::IfRelated
}

fn lease(node: &str, access: &Access) -> Opinion {
    let why = if !matches!(&*access.verb, "get" | "create" | "update" | "patch" | "delete") {
        "can only get, create, update, patch, or delete a node lease".to_owned()
    } else if access.namespace != LEASES {
        format!("can only access leases in the {LEASES:?} system namespace")
    } else if access.verb != "create" && access.name != node {
        "can only access node lease with the same name as the requesting node".to_owned()
    } else {
        return Opinion::Allowed;
    };
    Opinion::None(why)
}

fn own_node(node: &str, access: &Access) -> Opinion {
    let name = &access.name;
    match (access.subresource.as_str(), access.verb.as_str()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Opinion::Allowed,
        ("", "get" | "list" | "watch") if name == node => Opinion::Allowed,
        ("", "get" | "list" | "watch") if name.is_empty() => {
            Opinion::None(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => {
            Opinion::None(format!("node '{node}' cannot read '{name}', only its own Node object"))
        }
        _ => Opinion::None(String::new()),
    }
}

fn pods(node: &str, access: &Access) -> Opinion {
    match (access.subresource.as_str(), access.verb.as_str()) {
        ("", "get") => related(access),
        ("", "list" | "watch") if access.node == node => Opinion::Allowed,
        ("", "list" | "watch") if !access.name.is_empty() => Opinion::IfRelated,
        ("", "list" | "watch") => {
            Opinion::None("can only list/watch pods with spec.nodeName field selector".to_owned())
        }
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Opinion::Allowed
        }
        _ => Opinion::None(String::new()),
    }
}

/// Returns the rights of nodes that do not depend on the object.
fn rules() -> Vec<Value> {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let read = ["get", "list", "watch"];
    vec![
        rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
        rule(
            &["authorization.k8s.io"],
            &["subjectaccessreviews", "localsubjectaccessreviews"],
            &["create"],
        ),
        rule(&[""], &["services"], &read),
        rule(&["", "events.k8s.io"], &["events"], &["create", "update", "patch"]),
        rule(&[""], &["endpoints"], &["get"]),
        rule(
            &["certificates.k8s.io"],
            &["certificatesigningrequests"],
            &["create", "get", "list", "watch"],
        ),
    ]
}

/// Returns true if a pod is the object of an access, or uses it.
pub(crate) fn uses(pod: &Value, access: &Access) -> bool {
    match access.resource.as_str() {
        "pods" => text(pod, &["metadata", "name"]) == access.name,
        "serviceaccounts" => text(pod, &["spec", "serviceAccountName"]) == access.name,
        "secrets" => names(pod, ["secretRef", "secretKeyRef", "secret"], "secretName")
            .chain(list(pod, &["spec", "imagePullSecrets"]).map(|one| text(one, &["name"])))
            .any(|name| name == access.name),
        _ => names(pod, ["configMapRef", "configMapKeyRef", "configMap"], "name")
            .any(|name| name == access.name),
    }
}

/// Returns the names of the Secrets or ConfigMaps of environments and volumes.
fn names<'a>(
    pod: &'a Value,
    [whole, key, volume]: [&'static str; 3],
    named: &'static str,
) -> impl Iterator<Item = &'a str> {
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    let containers = containers.into_iter().flat_map(|field| list(pod, &["spec", field]));
    let of_containers = containers.flat_map(move |one| {
        let all = list(one, &["envFrom"]).map(move |env| text(env, &[whole, "name"]));
        all.chain(list(one, &["env"]).map(move |env| text(env, &["valueFrom", key, "name"])))
    });
    let of_volumes = list(pod, &["spec", "volumes"]).flat_map(move |one| {
        let parts = list(one, &["projected", "sources"]);
        let parts = parts.map(move |part| text(part, &[volume, "name"]));
        parts.chain([text(one, &[volume, named])])
    });
    of_containers.chain(of_volumes).filter(|name| !name.is_empty())
}

fn list<'a>(value: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> + use<'a> {
    at(value, path).and_then(Value::as_array).into_iter().flatten()
}

/// A write of a node.
pub(crate) struct NodeWrite<'a> {
    pub(crate) node: &'a str,
    /// UID of the stored node, if it exists.
    pub(crate) uid: Option<&'a str>,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) new: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
}

/// Returns the reason why a node may not write this.
pub(crate) fn refusal(write: &NodeWrite<'_>) -> Option<String> {
    match write.resource {
        "pods" => pod_refusal(write),
        "nodes" => node_refusal(write),
        "leases.coordination.k8s.io" if write.namespace != LEASES => {
            Some(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        "leases.coordination.k8s.io" if write.name != write.node => {
            Some("can only access node lease with the same name as the requesting node".to_owned())
        }
        _ => None,
    }
}

fn pod_refusal(write: &NodeWrite<'_>) -> Option<String> {
    let node = write.node;
    let runs_on =
        |pod: Option<&Value>| pod.map(|pod| text(pod, &["spec", "nodeName"])) == Some(node);
    let labels = |pod: Option<&Value>| pod.map(|pod| labels(pod).cloned().unwrap_or_default());
    match (write.subresource, write.old, write.new) {
        ("", None, Some(pod)) => mirror_refusal(write, pod),
        ("", Some(_), None) if runs_on(write.old) => None,
        ("", Some(_), None) => {
            Some(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        ("status", old, new) if runs_on(old) => (labels(old) != labels(new))
            .then(|| format!("node {node:?} cannot update labels through pod status")),
        ("status", ..) => Some(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        )),
        ("eviction", old, _) if runs_on(old) => None,
        ("eviction", ..) => {
            Some(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        _ => Some(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
    }
}

fn mirror_refusal(write: &NodeWrite<'_>, pod: &Value) -> Option<String> {
    let node = write.node;
    if at(pod, &["metadata", "annotations", MIRROR]).is_none() {
        return Some(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if text(pod, &["spec", "nodeName"]) != node {
        return Some(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let owners: Vec<&Value> = list(pod, &["metadata", "ownerReferences"]).collect();
    let rule = |what: &str| Some(format!("node {node:?} can only create pods with {what}"));
    let owner = match owners.as_slice() {
        [only] => *only,
        [] => return rule("an owner reference set to itself"),
        _ => return rule("a single owner reference set to itself"),
    };
    let of = |field| text(owner, &[field]);
    let is_set = |field: &str| owner.get(field).and_then(Value::as_bool) == Some(true);
    if (of("apiVersion"), of("kind"), of("name")) != ("v1", "Node", node) {
        return rule("an owner reference set to itself");
    }
    if !is_set("controller") {
        return rule("a controller owner reference set to itself");
    }
    if is_set("blockOwnerDeletion") {
        return Some(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let uid = write.uid.unwrap_or("");
    (of("uid") != uid)
        .then(|| format!("node {node} UID mismatch: expected {} got {uid}", of("uid")))
}

fn node_refusal(write: &NodeWrite<'_>) -> Option<String> {
    let node = write.node;
    if write.name != node {
        return Some(format!("node {node:?} is not allowed to modify node {:?}", write.name));
    }
    let new = write.new?;
    let forbidden = forbidden_labels(labels(new), write.old.and_then(labels)).join(", ");
    let Some(old) = write.old else {
        return (!forbidden.is_empty()).then(|| {
            format!("node {node:?} is not allowed to set the following labels: {forbidden}")
        });
    };
    let is_changed = |path: &[&str]| at(new, path) != at(old, path);
    if is_changed(&["spec", "taints"]) {
        return Some(format!("node {node:?} is not allowed to modify taints"));
    }
    if is_changed(&["metadata", "ownerReferences"]) {
        return Some(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    (!forbidden.is_empty()).then(|| format!("is not allowed to modify labels: {forbidden}"))
}

fn labels(object: &Value) -> Option<&Map<String, Value>> {
    at(object, &["metadata", "labels"]).and_then(Value::as_object)
}

/// Labels that kubelets set themselves.
const KUBELET_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
];

/// Returns the changed labels that a node may not set.
fn forbidden_labels(
    new: Option<&Map<String, Value>>,
    old: Option<&Map<String, Value>>,
) -> Vec<String> {
    let none = Map::new();
    let (new, old) = (new.unwrap_or(&none), old.unwrap_or(&none));
    let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    let is_below =
        |domain: &str, root: &str| domain == root || domain.ends_with(&format!(".{root}"));
    let is_forbidden = |key: &&&String| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_own = KUBELET_LABELS.contains(&key.as_str())
            || ["kubelet.kubernetes.io", "node.kubernetes.io"]
                .iter()
                .any(|it| is_below(domain, it));
        is_below(domain, "node-restriction.kubernetes.io")
            || (["kubernetes.io", "k8s.io"].iter().any(|it| is_below(domain, it)) && !is_own)
    };
    let changed = keys.iter().filter(|key| new.get(**key) != old.get(**key));
    changed.filter(is_forbidden).map(|key| (**key).clone()).collect()
}

#[cfg(test)]
mod tests;
