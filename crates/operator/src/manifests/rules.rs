//! RBAC rules of each process: the calls that it makes and no others.

/// API group of roles and their bindings.
pub(super) const RIGHTS: &str = "rbac.authorization.k8s.io";

/// Names of the processes: of their service accounts, roles and workloads.
pub(super) const CONTROLLER_NAME: &str = "machine-config-controller";
pub(super) const DAEMON_NAME: &str = "machine-config-daemon";
pub(super) const OPERATOR_NAME: &str = "machine-config-operator";
pub(super) const SERVER_NAME: &str = "machine-config-server";

/// Verbs on resources of one API group. `secrets:a` is the Secret `a` in any namespace.
#[derive(Clone, Copy)]
pub(super) struct Rule(
    pub(super) &'static str,
    pub(super) &'static [&'static str],
    pub(super) &'static [&'static str],
);

pub(super) const OURS: &str = mco_api::GROUP;
pub(super) const SEE: &[&str] = &["get", "list", "watch"];
const WATCH: &[&str] = &["list", "watch"];
const WATCH_AND_PATCH: &[&str] = &["list", "watch", "patch"];
const SEE_AND_PATCH: &[&str] = &["get", "list", "watch", "patch"];
const KEEP: &[&str] = &["get", "list", "watch", "create", "patch"];

pub(super) const CONTROLLER: &[Rule] = &[
    Rule(OURS, &["machineconfigpools"], WATCH_AND_PATCH),
    Rule(OURS, &["machineconfigpools/status"], &["patch"]),
    // The API server requires this to set an owner reference with blockOwnerDeletion.
    Rule(OURS, &["machineconfigpools/finalizers"], &["update"]),
    // Unused rendered configs are deleted, edited ones are replaced.
    Rule(OURS, &["machineconfigs"], KEEP),
    Rule(OURS, &["machineconfigs"], &["update", "delete"]),
    Rule(OURS, &["machineosbuilds"], SEE),
    Rule(OURS, &["machineosconfigs"], WATCH_AND_PATCH),
    // The number of the generated MachineConfig, and its name as a finalizer.
    Rule(OURS, &["kubeletconfigs"], WATCH_AND_PATCH),
    // The API server requires this to set an owner reference with blockOwnerDeletion.
    Rule(OURS, &["kubeletconfigs/finalizers"], &["update"]),
    // Finalizers name the MachineConfigs that are generated from them.
    Rule(OURS, &["containerruntimeconfigs"], WATCH_AND_PATCH),
    // The API server requires this to set an owner reference with blockOwnerDeletion.
    Rule(OURS, &["containerruntimeconfigs/finalizers"], &["update"]),
    Rule(
        OURS,
        &["kubeletconfigs/status", "containerruntimeconfigs/status", "machineosconfigs/status"],
        &["patch"],
    ),
    // mastersSchedulable and settings of the cluster; on OpenShift only.
    Rule(
        "config.openshift.io",
        &[
            "schedulers",
            "images",
            "imagedigestmirrorsets",
            "imagetagmirrorsets",
            "clusterimagepolicies",
            "imagepolicies",
            "nodes",
            "featuregates",
            "apiservers",
        ],
        WATCH,
    ),
    Rule("config.openshift.io", &["imagepolicies/status"], &["patch"]),
    Rule("operator.openshift.io", &["imagecontentsourcepolicies"], WATCH),
    Rule(OURS, &["machineconfignodes"], &["list", "watch", "create", "patch", "delete"]),
    Rule(OURS, &["machineconfignodes/status"], &["patch"]),
    Rule(OURS, &["controllerconfigs", "pinnedimagesets", "osimagestreams"], WATCH),
    // Base configs: conditions, owner references, and the pull secret of the cluster.
    Rule(OURS, &["controllerconfigs:machine-config-controller"], &["get"]),
    Rule(OURS, &["controllerconfigs/status:machine-config-controller"], &["patch"]),
    Rule(OURS, &["controllerconfigs/finalizers:machine-config-controller"], &["update"]),
    Rule(OURS, &["internalreleaseimages:cluster"], &["get"]),
    // In openshift-config. A Role there could not be created on a cluster without that namespace.
    Rule("", &["secrets:pull-secret"], SEE),
    Rule("operator.openshift.io", &["machineconfigurations"], WATCH),
    Rule("", &["namespaces:openshift-machine-api"], &["get"]),
    Rule("", &["nodes"], SEE_AND_PATCH),
    // Certificates of new nodes, if the administrator lets the controller approve them.
    Rule("certificates.k8s.io", &["certificatesigningrequests"], WATCH),
    Rule("certificates.k8s.io", &["certificatesigningrequests/approval"], &["patch"]),
    Rule(
        "certificates.k8s.io",
        &[
            "signers:kubernetes.io/kube-apiserver-client-kubelet",
            "signers:kubernetes.io/kubelet-serving",
        ],
        &["approve"],
    ),
    Rule("", &["pods"], &["list", "watch"]),
    Rule("policy", &["poddisruptionbudgets"], &["list"]),
    Rule("", &["pods/eviction"], &["create"]),
    // Clients of the metrics: their tokens, and the right to read them.
    Rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
    Rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// Rules with which the controller finds the addresses of the config server.
pub(super) const CONTROLLER_ELSEWHERE: &[(&str, &[Rule])] =
    &[("default", &[Rule("discovery.k8s.io", &["endpointslices"], &["list"])])];

/// Rules of the daemon. It patches its node with the kubelet's credentials, which are valid for
/// that node only.
pub(super) const DAEMON: &[Rule] = &[
    Rule("", &["nodes"], SEE),
    Rule(OURS, &["machineconfigs"], &["get"]),
    Rule(OURS, &["pinnedimagesets", "machineconfigpools"], WATCH),
    // Tells which operator runs the cluster; certificates of its users.
    Rule(OURS, &["controllerconfigs:machine-config-controller"], SEE),
    Rule(OURS, &["machineconfignodes"], SEE),
    Rule(OURS, &["machineconfignodes/status"], &["patch"]),
    // Watched while the policies in its status are older than the administrator's.
    Rule("operator.openshift.io", &["machineconfigurations:cluster"], SEE),
    // Clients of the metrics: their tokens, and the right to read them.
    Rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
    Rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// Rules of the operator for objects that it does not build from manifests. A plain create and the list
/// of all objects cannot be limited to names.
pub(super) const OPERATOR: &[Rule] = &[
    Rule("", &["namespaces"], &["create"]),
    Rule("", &["namespaces:machine-config-join-tokens"], &["get"]),
    // The credential of new machines' kubelets. The operator may hand out this role without having its
    // rights itself.
    Rule(RIGHTS, &["clusterrolebindings"], &["create"]),
    Rule(RIGHTS, &["clusterrolebindings:system-bootstrap-node-bootstrapper"], &["get"]),
    Rule(RIGHTS, &["clusterroles:system:node-bootstrapper"], &["bind"]),
    Rule(OURS, &["machineconfigpools", "controllerconfigs"], &["list", "watch", "create"]),
    Rule(
        OURS,
        &["machineconfigpools:master", "machineconfigpools:worker", "machineconfigpools:arbiter"],
        &["get", "patch"],
    ),
    Rule(OURS, &["controllerconfigs:machine-config-controller"], &["get", "patch"]),
    // The API server lets only readers of OSImageStreams and ClusterVersions store a policy that refers
    // to one.
    Rule(OURS, &["osimagestreams"], &["get"]),
    Rule("config.openshift.io", &["clusterversions"], &["get"]),
    // The base configs tell which operator runs a cluster, and the config of the control plane tells
    // which build rendered it.
    Rule(OURS, &["machineconfigs"], &["get"]),
    // Settings that the ClusterOperator reports.
    Rule(OURS, &["kubeletconfigs", "containerruntimeconfigs"], WATCH),
    Rule("operator.openshift.io", &["machineconfigurations:cluster"], KEEP),
    Rule("operator.openshift.io", &["machineconfigurations/status:cluster"], &["patch"]),
    // Facts about the platform; on OpenShift only.
    Rule("config.openshift.io", &["clusterversions:version"], WATCH),
    Rule("metal3.io", &["provisionings:provisioning-configuration"], &["get"]),
    Rule(OURS, &["internalreleaseimages:cluster"], WATCH),
    Rule("config.openshift.io", &["clusteroperators"], &["create"]),
    Rule("config.openshift.io", &["clusteroperators:machine-config"], SEE),
    // On OpenShift: tells that the cluster has a registry of its own.
    Rule("config.openshift.io", &["clusteroperators:image-registry"], &["get"]),
    Rule("config.openshift.io", &["clusteroperators/status:machine-config"], &["patch"]),
    // Clients of the metrics: their tokens, and the right to read them.
    Rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
    Rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    // Facts of the cluster for the ControllerConfig, and the TLS profile; on OpenShift only.
    Rule(
        "config.openshift.io",
        &[
            "infrastructures:cluster",
            "featuregates:cluster",
            "networks:cluster",
            "proxies:cluster",
            "dnses:cluster",
            "images:cluster",
            "apiservers:cluster",
        ],
        WATCH,
    ),
    // In openshift-config, openshift-config-managed and openshift-kube-apiserver-operator. Roles there
    // could not be created on a cluster without these namespaces.
    Rule(
        "",
        &[
            "configmaps:user-ca-bundle",
            "configmaps:initial-kube-apiserver-server-ca",
            "configmaps:image-registry-ca",
            "configmaps:kube-apiserver-client-ca",
            "configmaps:kube-cloud-config",
            "configmaps:kube-apiserver-server-ca",
            "configmaps:kube-apiserver-to-kubelet-client-ca",
        ],
        WATCH,
    ),
    Rule(
        "",
        &["configmaps:merged-trusted-image-registry-ca"],
        &["list", "watch", "create", "patch"],
    ),
    Rule("", &["secrets:pull-secret"], SEE),
];

/// Rules for facts of the cluster in namespaces that every cluster has: the Services of DNS and API
/// server, and on OpenShift the state of its installation.
pub(super) const OPERATOR_ELSEWHERE: &[(&str, &[Rule])] = &[
    (
        "kube-system",
        &[
            Rule("", &["services:kube-dns"], WATCH),
            Rule("", &["configmaps:root-ca", "configmaps:bootstrap"], WATCH),
        ],
    ),
    ("default", &[Rule("", &["services:kubernetes"], WATCH)]),
];

pub(super) const SERVER: &[Rule] =
    &[Rule(OURS, &["machineconfigpools", "machineconfigs", "controllerconfigs"], WATCH)];

/// Rules with which the server finds the URL of the API server for machines (`--apiserver-url auto`).
pub(super) const SERVER_ELSEWHERE: &[(&str, &[Rule])] = &[
    ("kube-public", &[Rule("", &["configmaps:cluster-info"], WATCH)]),
    ("default", &[Rule("discovery.k8s.io", &["endpointslices"], WATCH)]),
];

/// Rules for leader election, the controller's Lease, and the CA certificates of the API server.
pub(super) const OPERATOR_OWN: &[Rule] = &[
    Rule("coordination.k8s.io", &["leases"], &["create"]),
    Rule("coordination.k8s.io", &["leases:machine-config"], &["get", "update"]),
    Rule("coordination.k8s.io", &["leases:machine-config-controller"], SEE),
    Rule("", &["configmaps"], WATCH),
    // The mark of this build on the boot images of the release.
    Rule("", &["configmaps:coreos-bootimages"], &["patch"]),
    // A server-side apply names its object, so that even the creation can be limited to that name.
    Rule("", &["configmaps:kubeconfig-data"], &["create", "patch"]),
    // Credentials of the registry inside an OpenShift cluster. The right to read the Secrets of this
    // account, whose names are generated, is the administrator's to give.
    Rule("", &["serviceaccounts:machine-os-puller"], SEE),
    // The credential of new machines' kubelets. Created without a server-side apply, which cannot be
    // limited to names.
    Rule("", &["serviceaccounts", "secrets"], &["create"]),
    Rule("", &["serviceaccounts:node-bootstrapper"], &["get"]),
    Rule("", &["secrets:node-bootstrapper-token"], &["get"]),
];

/// Rules for leases, the config server's certificates, and fetched remote contents.
pub(super) const CONTROLLER_OWN: &[Rule] = &[
    Rule("coordination.k8s.io", &["leases"], &["create"]),
    Rule("coordination.k8s.io", &["leases:machine-config-controller"], &["get", "update"]),
    // Fetched contents have generated names, and a pull secret may have any.
    Rule("", &["secrets"], &["get", "list", "watch", "create"]),
    Rule(
        "",
        &["secrets:machine-config-server-ca", "secrets:machine-config-server-tls"],
        &["update", "delete"],
    ),
    Rule("", &["configmaps"], &["create"]),
    Rule("", &["configmaps:machine-config-server-ca"], &["get", "list", "watch", "update"]),
    Rule("", &["configmaps:cluster-settings", "configmaps:ssh-authorized-keys"], WATCH),
];

/// Rules for join tokens. The operator binds them in the namespace of the tokens, which has no other
/// Secrets.
pub(super) const JOIN_TOKENS: &[Rule] = &[Rule("", &["secrets"], SEE_AND_PATCH)];

/// Rules for CA bundles that new machines trust.
pub(super) const SERVER_OWN: &[Rule] = &[Rule("", &["configmaps:kubeconfig-data"], WATCH)];

/// Rules for the CA bundle of the API server after its rotation.
pub(super) const DAEMON_OWN: &[Rule] = &[Rule("", &["configmaps:kubeconfig-data"], &["get"])];

/// Rules for events.
pub(super) const EVENTS: &[Rule] = &[Rule("", &["events"], &["create", "patch"])];
