//! Labels we read or write, and the fixed names that go with them.

/// On a MachineConfig: the pool role it is meant for.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// On a pool: it shipped with the cluster.
pub const BUILT_IN_POOL: &str = "machineconfiguration.openshift.io/mco-built-in";

/// On a pool: its own name, as a prefix for label selectors (`…/<pool>`).
pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";

/// On a pool: cluster upgrades wait for it.
pub const REQUIRED_FOR_UPGRADE: &str =
    "operator.machineconfiguration.openshift.io/required-for-upgrade";

/// On a node: `node-role.kubernetes.io/<role>` with an empty value.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";

/// On a CRD: the operator watches it.
pub const OPERATOR_MANAGED: &str = "openshift.io/operator-managed";

/// On the operator's own pods.
pub const APP: &str = "k8s-app";

/// On a pool: OS images are built in the cluster (older, label-driven form).
pub const LAYERING_ENABLED: &str = "machineconfiguration.openshift.io/layering-enabled";

/// On a pool: build its OS image again.
pub const REBUILD_IMAGE: &str = "machineconfiguration.openshift.io/rebuildImage";

/// On a Secret: it keeps contents that were fetched for a MachineConfig; not in the reference.
pub const REMOTE_CONTENT: &str = "machineconfiguration.openshift.io/remote-content";

/// On a Secret: the operator writes its certificates.
pub const MANAGED_USER_DATA: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";

/// Namespace of the machines that a cluster orders.
pub const MACHINE_NAMESPACE: &str = "openshift-machine-api";

/// Name of the config server's authority: a Secret, and the ConfigMap of those to trust.
pub const SERVER_CA: &str = "machine-config-server-ca";

/// Name of the Secret with the config server's certificate.
pub const SERVER_TLS: &str = "machine-config-server-tls";

/// Namespace of everything this operator runs.
pub const NAMESPACE: &str = "openshift-machine-config-operator";

/// Name of the one ControllerConfig.
pub const CONTROLLER_CONFIG: &str = "machine-config-controller";

/// Name of the one MachineConfiguration, OSImageStream and InternalReleaseImage.
pub const CLUSTER: &str = "cluster";

/// Name of our ClusterOperator.
pub const CLUSTER_OPERATOR: &str = "machine-config";
