//! What each process may do: the calls that it makes, and no others.

use serde_json::{Value, json};

use super::NAMESPACE;

/// Verbs on resources of one API group.
pub(super) struct Rule(&'static str, &'static [&'static str], &'static [&'static str]);

const OURS: &str = mco_api::GROUP;
const SEE: &[&str] = &["get", "list", "watch"];
const SEE_AND_PATCH: &[&str] = &["get", "list", "watch", "patch"];
const KEEP: &[&str] = &["get", "list", "watch", "create", "patch"];

pub(super) const CONTROLLER: &[Rule] = &[
    Rule(OURS, &["machineconfigpools"], SEE_AND_PATCH),
    Rule(OURS, &["machineconfigpools/status"], &["patch"]),
    // What nobody uses any longer is removed, what somebody edited is put back as a whole.
    Rule(OURS, &["machineconfigs"], KEEP),
    Rule(OURS, &["machineconfigs"], &["update", "delete"]),
    Rule(OURS, &["machineosbuilds"], SEE),
    Rule(OURS, &["machineosconfigs"], SEE_AND_PATCH),
    // Whether masters take pods; only on OpenShift.
    Rule("config.openshift.io", &["schedulers"], SEE),
    Rule(OURS, &["machineconfignodes"], KEEP),
    Rule(OURS, &["machineconfignodes"], &["delete"]),
    Rule(OURS, &["machineconfignodes/status"], &["patch"]),
    Rule(OURS, &["controllerconfigs", "pinnedimagesets", "osimagestreams"], SEE),
    Rule("operator.openshift.io", &["machineconfigurations"], SEE),
    // Where the config server can be reached, and whether the cluster orders machines.
    Rule("discovery.k8s.io", &["endpointslices"], &["list"]),
    Rule("", &["namespaces"], &["get"]),
    Rule("", &["nodes"], SEE_AND_PATCH),
    Rule("", &["pods"], &["list", "watch"]),
    Rule("policy", &["poddisruptionbudgets"], &["list"]),
    Rule("", &["pods/eviction"], &["create"]),
];

/// What it says of its node it says with the kubelet's credentials, which are good for that node only.
pub(super) const DAEMON: &[Rule] = &[
    Rule("", &["nodes"], SEE),
    Rule(OURS, &["machineconfigs", "pinnedimagesets"], SEE),
    Rule(OURS, &["machineconfigpools", "controllerconfigs", "machineconfignodes"], SEE),
    Rule(OURS, &["machineconfignodes/status"], &["patch"]),
    Rule("operator.openshift.io", &["machineconfigurations"], SEE),
];

pub(super) const OPERATOR: &[Rule] = &[
    Rule("", &["namespaces"], &["create"]),
    Rule("apiextensions.k8s.io", &["customresourcedefinitions"], KEEP),
    Rule(OURS, &["machineconfigpools", "machineconfigs", "controllerconfigs"], KEEP),
    Rule(OURS, &["controllerconfigs/status"], &["patch"]),
    // An owner that its own must wait for takes this, where the cluster asks for it.
    Rule(OURS, &["controllerconfigs/finalizers"], &["update"]),
    Rule("config.openshift.io", &["clusteroperators"], KEEP),
    Rule("config.openshift.io", &["clusteroperators/status"], &["patch"]),
];

pub(super) const SERVER: &[Rule] =
    &[Rule(OURS, &["machineconfigpools", "machineconfigs", "controllerconfigs"], SEE)];

/// Who leads says so in a lease.
pub(super) const LEADER: &[Rule] =
    &[Rule("coordination.k8s.io", &["leases"], &["get", "create", "update"])];

/// Who leads, the config server's certificates, and contents that were fetched for configs.
pub(super) const CONTROLLER_OWN: &[Rule] = &[
    Rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
    Rule("", &["secrets"], &["get", "list", "watch", "create", "update", "delete"]),
    Rule("", &["configmaps"], &["get", "list", "watch", "create", "update"]),
];

/// Certificates that new machines trust.
pub(super) const BUNDLES: &[Rule] = &[Rule("", &["configmaps"], SEE)];

const EVENTS: &[Rule] = &[Rule("events.k8s.io", &["events"], &["create", "patch"])];

/// Each daemon writes the MachineConfigNode of its own node and no other: the account is the same on
/// all machines, but a pod's token names the machine that it runs on.
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

/// A role for the whole cluster, given to the account of the same name.
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

/// A role for one namespace, given to the account of the same name; nothing without rules.
pub(super) fn role(name: &str, namespace: &str, rules: &[Rule]) -> Vec<Value> {
    if rules.is_empty() {
        return Vec::new();
    }
    named(name, name, namespace, rules)
}

/// The right to write events: about objects of the cluster they are in the default namespace, about
/// ours in our own.
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
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}
