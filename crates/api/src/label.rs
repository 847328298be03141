//! Label keys, and the fixed names of namespaces and singleton objects.

use std::collections::BTreeMap;

/// On a MachineConfig: the pool role that the config is for.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// On a pool: the pool ships with the cluster.
pub const BUILT_IN_POOL: &str = "machineconfiguration.openshift.io/mco-built-in";

/// On a pool: prefix of the label `…/<pool>`, which lets label selectors match the pool by its
/// name.
pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";

/// On a pool: cluster upgrades wait for this pool.
pub const REQUIRED_FOR_UPGRADE: &str =
    "operator.machineconfiguration.openshift.io/required-for-upgrade";

/// On a node: `node-role.kubernetes.io/<role>` with an empty value.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";

/// On a node: the pool that the node's kubelet registers for. A kubelet may not set the label of a
/// role itself; the controller does. Not in the reference.
pub const NODE_POOL: &str = "node.kubernetes.io/machine-config-pool";

/// On a CRD: the operator watches the CRD.
pub const OPERATOR_MANAGED: &str = "openshift.io/operator-managed";

/// On the operator's own pods.
pub const APP: &str = "k8s-app";

/// On a pool: the cluster builds the pool's OS image (older form, enabled by label).
pub const LAYERING_ENABLED: &str = "machineconfiguration.openshift.io/layering-enabled";

/// On a pool: requests a rebuild of the pool's OS image.
pub const REBUILD_IMAGE: &str = "machineconfiguration.openshift.io/rebuildImage";

/// On a Secret: the Secret stores contents that were fetched for a MachineConfig; not in the
/// reference.
pub const REMOTE_CONTENT: &str = "machineconfiguration.openshift.io/remote-content";

/// On a Secret: the operator updates the CA certificates in the Secret.
pub const MANAGED_USER_DATA: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";

/// Namespace of the Machine API objects.
pub const MACHINE_NAMESPACE: &str = "openshift-machine-api";

/// Name of the config server's CA: a Secret, and the ConfigMap with the CA certificates to trust.
pub const SERVER_CA: &str = "machine-config-server-ca";

/// Name of the Secret with the config server's serving certificate.
pub const SERVER_TLS: &str = "machine-config-server-tls";

/// Namespace of the operator, its controllers, servers and daemons.
pub const NAMESPACE: &str = "openshift-machine-config-operator";

/// On a namespace other than [`NAMESPACE`]: it has an installation.
pub const INSTALLATION: &str = "machineconfiguration.openshift.io/installation";

/// Annotation of the ClusterOperator: the namespace of the installation, if it is another than
/// [`NAMESPACE`].
pub const INSTALLATION_NAMESPACE: &str = "machineconfiguration.openshift.io/installation-namespace";

/// Returns the namespace of the installation that a ClusterOperator with these annotations belongs to.
#[must_use]
pub fn installed_in(annotations: Option<&BTreeMap<String, String>>) -> &str {
    let named = annotations.and_then(|annotations| annotations.get(INSTALLATION_NAMESPACE));
    named.map_or(NAMESPACE, String::as_str)
}

/// Name of the only ControllerConfig.
pub const CONTROLLER_CONFIG: &str = "machine-config-controller";

/// Name of the only MachineConfiguration, OSImageStream and InternalReleaseImage.
pub const CLUSTER: &str = "cluster";

/// Name of this operator's ClusterOperator.
pub const CLUSTER_OPERATOR: &str = "machine-config";
