//! The objects that tools collect when the operator is degraded.

use mco_api::{GROUP, cluster_operator::RelatedObject};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Namespaces of the load balancers on platforms without any of their own.
const PLATFORMS: [&str; 6] = ["kni", "openstack", "ovirt", "vsphere", "nutanix", "cloud-platform"];

const CLUSTER_ROLES: [&str; 8] = [
    "machine-config-controller",
    "machine-config-controller-events",
    "machine-config-daemon",
    "machine-config-daemon-events",
    "machine-config-server",
    "machine-os-builder",
    "machine-os-builder-events",
    "system:openshift:machine-config-operator:cluster-reader",
];

const CLUSTER_ROLE_BINDINGS: [&str; 8] = [
    "machine-config-controller",
    "machine-config-daemon",
    "machine-config-server",
    "machine-os-builder",
    "machine-os-builder-anyuid",
    "custom-account-openshift-machine-config-operator",
    "system-bootstrap-node-bootstrapper",
    "system-bootstrap-node-renewal",
];

/// Returns the objects. Compat: list and order are the reference's; tools skip objects that a cluster
/// does not have.
pub(super) fn related(namespace: &str) -> Vec<RelatedObject> {
    let object = |group: &str, resource: &str, name: &str| RelatedObject {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    let ours = [
        "machineconfigpools",
        "controllerconfigs",
        "kubeletconfigs",
        "containerruntimeconfigs",
        "machineconfigs",
    ];
    let platforms =
        PLATFORMS.map(|name| object("", "namespaces", &format!("openshift-{name}-infra")));
    [object("", "namespaces", namespace)]
        .into_iter()
        .chain(ours.map(|resource| object(GROUP, resource, "")))
        .chain([object("operator.openshift.io", "machineconfigurations", "")])
        .chain([object("", "nodes", "")])
        .chain(platforms)
        .chain(CLUSTER_ROLES.map(|name| object(RBAC, "clusterroles", name)))
        .chain(CLUSTER_ROLE_BINDINGS.map(|name| object(RBAC, "clusterrolebindings", name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use mco_api::label;

    use super::*;

    // covers: O35
    #[test]
    fn the_list_is_that_of_the_reference() {
        let all = related(label::NAMESPACE);
        let line = |object: &RelatedObject| {
            format!("{}/{} {}", object.group, object.resource, object.name)
        };
        let first: Vec<String> = all.iter().take(10).map(line).collect();
        assert_eq!(
            first,
            [
                "/namespaces openshift-machine-config-operator",
                "machineconfiguration.openshift.io/machineconfigpools ",
                "machineconfiguration.openshift.io/controllerconfigs ",
                "machineconfiguration.openshift.io/kubeletconfigs ",
                "machineconfiguration.openshift.io/containerruntimeconfigs ",
                "machineconfiguration.openshift.io/machineconfigs ",
                "operator.openshift.io/machineconfigurations ",
                "/nodes ",
                "/namespaces openshift-kni-infra",
                "/namespaces openshift-openstack-infra",
            ]
        );
        let count = |resource: &str| all.iter().filter(|it| it.resource == resource).count();
        let counts = ["namespaces", "clusterroles", "clusterrolebindings"].map(count);
        assert_eq!((all.len(), counts), (30, [7, 8, 8]));
    }
}
