//! The table of built-in resources.

use std::sync::Arc;

use super::{Form, Resource};
use crate::review::REVIEWS;

/// One built-in resource.
struct Row {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    generation: bool,
    selectable: &'static [&'static str],
}

const PLAIN: Row = Row {
    group: "",
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    status: false,
    generation: false,
    selectable: &[],
};

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

const ROWS: &[Row] = &[
    Row {
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        namespaced: false,
        status: true,
        selectable: &["status.phase"],
        ..PLAIN
    },
    Row {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        namespaced: false,
        status: true,
        selectable: &["spec.unschedulable"],
        ..PLAIN
    },
    Row {
        kind: "Pod",
        plural: "pods",
        short: &["po"],
        categories: &["all"],
        status: true,
        generation: true,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.host",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ..PLAIN
    },
    Row { kind: "ConfigMap", plural: "configmaps", short: &["cm"], ..PLAIN },
    Row { kind: "Secret", plural: "secrets", selectable: &["type"], ..PLAIN },
    Row { kind: "ServiceAccount", plural: "serviceaccounts", short: &["sa"], ..PLAIN },
    Row {
        kind: "Service",
        plural: "services",
        short: &["svc"],
        categories: &["all"],
        status: true,
        selectable: &["spec.clusterIP", "spec.type"],
        ..PLAIN
    },
    Row { kind: "Endpoints", plural: "endpoints", short: &["ep"], ..PLAIN },
    Row { kind: "Event", plural: "events", short: &["ev"], selectable: EVENT_FIELDS, ..PLAIN },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short: &["ev"],
        selectable: NEW_EVENT_FIELDS,
        ..PLAIN
    },
    Row { group: "coordination.k8s.io", kind: "Lease", plural: "leases", ..PLAIN },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short: &["pdb"],
        status: true,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short: &["deploy"],
        categories: &["all"],
        status: true,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        short: &["ds"],
        categories: &["all"],
        status: true,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        short: &["rs"],
        categories: &["all"],
        status: true,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        categories: &["all"],
        status: true,
        generation: true,
        selectable: &["status.successful"],
        ..PLAIN
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        generation: true,
        ..PLAIN
    },
    Row { group: RBAC, kind: "Role", plural: "roles", ..PLAIN },
    Row { group: RBAC, kind: "RoleBinding", plural: "rolebindings", ..PLAIN },
    Row { group: RBAC, kind: "ClusterRole", plural: "clusterroles", namespaced: false, ..PLAIN },
    Row {
        group: RBAC,
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        namespaced: false,
        ..PLAIN
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        categories: &["api-extensions"],
        namespaced: false,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short: &["csr"],
        namespaced: false,
        status: true,
        selectable: &["spec.signerName"],
        ..PLAIN
    },
    Row {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short: &["pc"],
        namespaced: false,
        generation: true,
        ..PLAIN
    },
    Row {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        generation: true,
        ..PLAIN
    },
];

/// API group of roles and their bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// Name of the collection of `CustomResourceDefinition`s.
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Name of the collection of namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";

/// Returns true if an API group is built in.
pub(crate) fn has_group(group: &str) -> bool {
    let of_reviews = REVIEWS.iter().map(|review| review.group);
    ROWS.iter().map(|row| row.group).chain(of_reviews).any(|one| one == group)
}

/// Returns all built-in resources.
pub(crate) fn all() -> impl Iterator<Item = Resource> {
    ROWS.iter().map(resource)
}

fn resource(row: &Row) -> Resource {
    let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
    let form = if row.group == "events.k8s.io" { Form::NewEvent } else { Form::Same };
    let collection: Arc<str> = match (form, row.group) {
        (Form::NewEvent, _) => "events".into(),
        (Form::Same, "") => row.plural.into(),
        (Form::Same, group) => format!("{}.{group}", row.plural).into(),
    };
    Resource {
        group: row.group.to_owned(),
        version: "v1".to_owned(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        plural: row.plural.to_owned(),
        singular: row.kind.to_lowercase(),
        short_names: owned(row.short),
        categories: owned(row.categories),
        namespaced: row.namespaced,
        status: row.status,
        generation: row.generation,
        collection,
        form,
        schema: None,
        written_schema: None,
        columns: Vec::new(),
        selectable: owned(row.selectable),
        custom: false,
    }
}

/// Returns the first built-in resource with this plural, for tests.
#[cfg(test)]
pub(crate) fn by_plural(plural: &str) -> Resource {
    all().find(|resource| resource.plural == plural).expect("a built-in plural")
}
