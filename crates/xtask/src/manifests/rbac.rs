//! RBAC rules of each process: the calls that it makes and no others.

use serde_json::{Value, json};

use super::NAMESPACE;

/// Verbs on resources of one API group. `secrets:a` is the Secret `a` in any namespace.
pub(super) struct Rule(&'static str, &'static [&'static str], &'static [&'static str]);

const OURS: &str = mco_api::GROUP;
const SEE: &[&str] = &["get", "list", "watch"];
const SEE_AND_PATCH: &[&str] = &["get", "list", "watch", "patch"];
const KEEP: &[&str] = &["get", "list", "watch", "create", "patch"];

pub(super) const CONTROLLER: &[Rule] = &[
    Rule(OURS, &["machineconfigpools"], SEE_AND_PATCH),
    Rule(OURS, &["machineconfigpools/status"], &["patch"]),
    // The API server requires this to set an owner reference with blockOwnerDeletion.
    Rule(OURS, &["machineconfigpools/finalizers"], &["update"]),
    // Unused rendered configs are deleted, edited ones are replaced.
    Rule(OURS, &["machineconfigs"], KEEP),
    Rule(OURS, &["machineconfigs"], &["update", "delete"]),
    Rule(OURS, &["machineosbuilds"], SEE),
    Rule(OURS, &["machineosconfigs"], SEE_AND_PATCH),
    // The number of the generated MachineConfig, and its name as a finalizer.
    Rule(OURS, &["kubeletconfigs"], SEE_AND_PATCH),
    // The API server requires this to set an owner reference with blockOwnerDeletion.
    Rule(OURS, &["kubeletconfigs/finalizers"], &["update"]),
    // Finalizers name the MachineConfigs that are generated from them.
    Rule(OURS, &["containerruntimeconfigs"], SEE_AND_PATCH),
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
        SEE,
    ),
    Rule("config.openshift.io", &["imagepolicies/status"], &["patch"]),
    Rule("operator.openshift.io", &["imagecontentsourcepolicies"], SEE),
    Rule(OURS, &["machineconfignodes"], KEEP),
    Rule(OURS, &["machineconfignodes"], &["delete"]),
    Rule(OURS, &["machineconfignodes/status"], &["patch"]),
    Rule(OURS, &["controllerconfigs", "pinnedimagesets", "osimagestreams"], SEE),
    // Base configs: conditions, owner references, and the pull secret of the cluster.
    Rule(OURS, &["controllerconfigs/status"], &["patch"]),
    Rule(OURS, &["controllerconfigs/finalizers"], &["update"]),
    Rule(OURS, &["internalreleaseimages"], &["get"]),
    Rule("", &["secrets:pull-secret"], SEE),
    Rule("operator.openshift.io", &["machineconfigurations"], SEE),
    // Addresses of the config server, and the namespace of the Machine API.
    Rule("discovery.k8s.io", &["endpointslices"], &["list"]),
    Rule("", &["namespaces"], &["get"]),
    Rule("", &["nodes"], SEE_AND_PATCH),
    // Certificates of new nodes, if the administrator lets the controller approve them.
    Rule("certificates.k8s.io", &["certificatesigningrequests"], SEE),
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
];

/// Rules of the daemon. It patches its node with the kubelet's credentials, which are valid for
/// that node only.
pub(super) const DAEMON: &[Rule] = &[
    Rule("", &["nodes"], SEE),
    Rule(OURS, &["machineconfigs", "pinnedimagesets"], SEE),
    Rule(OURS, &["machineconfigpools", "controllerconfigs", "machineconfignodes"], SEE),
    Rule(OURS, &["machineconfignodes/status"], &["patch"]),
    Rule("operator.openshift.io", &["machineconfigurations"], SEE),
];

pub(super) const OPERATOR: &[Rule] = &[
    Rule("", &["namespaces"], &["get", "create"]),
    // The credential of new machines' kubelets. The operator may hand out this role without having its
    // rights itself.
    Rule("rbac.authorization.k8s.io", &["clusterrolebindings"], &["get", "create"]),
    Rule("rbac.authorization.k8s.io", &["clusterroles:system:node-bootstrapper"], &["bind"]),
    Rule("apiextensions.k8s.io", &["customresourcedefinitions"], KEEP),
    Rule(OURS, &["machineconfigpools", "controllerconfigs"], KEEP),
    Rule("config.openshift.io", &["clusteroperators"], KEEP),
    Rule("config.openshift.io", &["clusteroperators/status"], &["patch"]),
];

pub(super) const SERVER: &[Rule] =
    &[Rule(OURS, &["machineconfigpools", "machineconfigs", "controllerconfigs"], SEE)];

/// Rules with which the server finds the URL of the API server for machines (`--apiserver-url auto`).
pub(super) const SERVER_ELSEWHERE: &[(&str, &[Rule])] = &[
    ("kube-public", &[Rule("", &["configmaps:cluster-info"], SEE)]),
    ("default", &[Rule("discovery.k8s.io", &["endpointslices"], SEE)]),
];

/// Rules for leader election, the controller's Lease, and the CA certificates of the API server.
pub(super) const OPERATOR_OWN: &[Rule] = &[
    Rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]),
    Rule("", &["configmaps"], SEE),
    // The credential of new machines' kubelets.
    Rule("", &["serviceaccounts"], &["get", "create"]),
    Rule("", &["secrets:node-bootstrapper-token"], &["get"]),
    Rule("", &["secrets"], &["create"]),
];

/// Rules for leases, the config server's certificates, and fetched remote contents.
pub(super) const CONTROLLER_OWN: &[Rule] = &[
    Rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
    Rule("", &["secrets"], &["get", "list", "watch", "create", "update", "delete"]),
    Rule("", &["configmaps"], &["get", "list", "watch", "create", "update"]),
];

/// Rules for join tokens. The operator binds them in the namespace of the tokens, which has no other
/// Secrets.
const JOIN_TOKENS: &[Rule] = &[Rule("", &["secrets"], SEE_AND_PATCH)];

/// Rules of the operator in the namespace of join tokens: it may hand out the role for them, there and
/// nowhere else, without having its rights itself.
const OPERATOR_TOKENS: &[Rule] = &[
    Rule("rbac.authorization.k8s.io", &["rolebindings"], &["get", "create"]),
    Rule("rbac.authorization.k8s.io", &["clusterroles:machine-config-join-tokens"], &["bind"]),
];

/// Rules for CA bundles that new machines trust.
pub(super) const BUNDLES: &[Rule] = &[Rule("", &["configmaps"], SEE)];

const EVENTS: &[Rule] = &[Rule("events.k8s.io", &["events"], &["create", "patch"])];

/// Returns an admission policy that lets each daemon write only the MachineConfigNode of its own
/// node. All daemons share one service account, but a pod's token names its node.
pub(super) fn node_guard() -> Vec<Value> {
    let (name, api) = ("mcn-guards", "admissionregistration.k8s.io/v1");
    let claim = "authentication.kubernetes.io/node-name";
    let account = format!("system:serviceaccount:{NAMESPACE}:machine-config-daemon");
    let extra = format!("request.userInfo.extra[\"{claim}\"]");
    let has = format!("has(request.userInfo.extra) && \"{claim}\" in request.userInfo.extra");
    vec![
        json!({
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [OURS],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["machineconfignodes", "machineconfignodes/status"],
                }]},
                "matchConditions": [{
                    "name": "only-daemons",
                    "expression": format!("request.userInfo.username == \"{account}\""),
                }],
                "validations": [
                    {
                        "expression": has,
                        "message": format!("this user must have a \"{claim}\" claim"),
                    },
                    {
                        "expression": format!("!({has}) || object.metadata.name == {extra}[0]"),
                        "messageExpression": "\"updates to MCN \" + string(object.metadata.name) + \" can only be done from the MCN's owner node\"",
                    },
                ],
            },
        }),
        json!({
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// Returns the ClusterRole for join tokens and its binding, which is in their namespace only. The
/// operator creates the binding again if it is deleted.
pub(super) fn join_tokens() -> Vec<Value> {
    let (name, api) = (mco_api::join_token::NAMESPACE, "rbac.authorization.k8s.io");
    let readers = ["machine-config-controller", "machine-config-server"];
    let own = [
        json!({
            "apiVersion": format!("{api}/v1"),
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": JOIN_TOKENS.iter().map(rule).collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": format!("{api}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": readers.map(subject),
        }),
    ];
    let operator = "machine-config-operator";
    own.into_iter().chain(named(operator, operator, name, OPERATOR_TOKENS)).collect()
}

/// Returns a ClusterRole and its binding to the service account of the same name.
pub(super) fn cluster_role(name: &str, rules: &[Rule]) -> Vec<Value> {
    let (meta, api) = (json!({"name": name}), "rbac.authorization.k8s.io");
    vec![
        json!({
            "apiVersion": format!("{api}/v1"),
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": rules.iter().map(rule).collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": format!("{api}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [subject(name)],
        }),
    ]
}

/// Returns a Role and its binding to the service account of the same name; nothing without rules.
pub(super) fn role(name: &str, namespace: &str, rules: &[Rule]) -> Vec<Value> {
    if rules.is_empty() {
        return Vec::new();
    }
    named(name, name, namespace, rules)
}

/// Returns the Roles that allow writing events: in the default namespace for cluster-scoped
/// objects, in the operator's namespace for the others.
pub(super) fn events(name: &str) -> Vec<Value> {
    let role = format!("{name}-events");
    let places = ["default", NAMESPACE];
    places.into_iter().flat_map(|place| named(&role, name, place, EVENTS)).collect()
}

fn named(role: &str, account: &str, namespace: &str, rules: &[Rule]) -> Vec<Value> {
    let (meta, api) = (json!({"name": role, "namespace": namespace}), "rbac.authorization.k8s.io");
    vec![
        json!({
            "apiVersion": format!("{api}/v1"),
            "kind": "Role",
            "metadata": meta,
            "rules": rules.iter().map(rule).collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": format!("{api}/v1"),
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": role},
            "subjects": [subject(account)],
        }),
    ]
}

fn subject(account: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE})
}

fn rule(Rule(group, resources, verbs): &Rule) -> Value {
    let names: Vec<&str> =
        resources.iter().filter_map(|one| Some(one.split_once(':')?.1)).collect();
    let mut resources: Vec<&str> =
        resources.iter().map(|one| one.split_once(':').map_or(*one, |(kind, _)| kind)).collect();
    resources.dedup();
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if let Some(rule) = rule.as_object_mut().filter(|_| !names.is_empty()) {
        rule.insert("resourceNames".to_owned(), json!(names));
    }
    rule
}
