//! The rights of each process compared with those that it uses, over the life of a cluster on a real
//! kube-apiserver: installation, roll-out, drain, certificates, a new machine, pruning, removal.
//!
//! The API server checks RBAC, the rights of nodes, and the permissions of owner references, and its
//! audit log has every request.

mod cluster;
mod grants;

use self::{cluster::Cluster, grants::Grant};

/// Rights that no request of this test needs: service account, group and resource, verbs, and why they
/// are needed. `*` stands for any text.
const REASONS: &[(&str, &str, &str, &str)] = &[
    // The API server asks for these while it handles another request; they are no requests.
    ("*", "rbac.authorization.k8s.io/*roles", "escalate bind", "checked when a role is given"),
    (
        "*-controller",
        "certificates.k8s.io/signers",
        "approve",
        "checked when a request is approved",
    ),
    (
        "*",
        "machineconfiguration.openshift.io/*/finalizers",
        "update",
        "checked for owner references",
    ),
    ("*-operator", "*/osimagestreams", "get", "checked when a policy that refers to one is stored"),
    // Image mode, and parts of OpenShift.
    ("*-controller", "*/machineosbuilds", "get", "only in image mode"),
    (
        "*-controller",
        "*/machineosconfigs",
        "patch",
        "a MachineOSConfig is reported as not supported",
    ),
    ("*-controller", "*/machineosconfigs/status", "patch", "status of one that is not supported"),
    ("*-controller", "*/imagepolicies/status", "patch", "only with ImagePolicies"),
    ("*-controller", "*/internalreleaseimages", "get", "only with a pull secret"),
    (
        "*-controller",
        "core/secrets",
        "list watch",
        "only with a pull secret in the ControllerConfig",
    ),
    ("*-daemon", "*/pinnedimagesets", "list watch", "only with CRI-O"),
    ("*-daemon", "*/machineconfigpools", "watch", "pinned images of a machine with systemd"),
    ("*-operator", "config.openshift.io/*", "list watch", "objects of OpenShift"),
    (
        "*-operator",
        "config.openshift.io/clusterversions",
        "get",
        "a policy that refers to one, which only OpenShift has",
    ),
    ("*-operator", "core/configmaps", "get list watch create patch", "ConfigMaps of OpenShift"),
    ("*-operator", "core/secrets", "list watch", "the pull secret of OpenShift"),
    ("*-operator", "core/serviceaccounts", "get list watch", "credentials of OpenShift's registry"),
    ("*-operator", "metal3.io/provisionings", "get", "machines of OpenShift on bare metal"),
    (
        "*-operator",
        "admissionregistration.k8s.io/*",
        "get create patch delete",
        "policies that only OpenShift has",
    ),
    // Faults, rotations and settings that the test does not have.
    ("*", "core/events", "create patch", "a repeated event, or a machine that is refused"),
    ("*", "core/secrets", "get patch", "only with join tokens or a pull secret"),
    ("*-controller", "core/secrets", "update delete", "rotation of certificates"),
    ("*-controller", "core/configmaps", "update", "rotation of the CA"),
    ("*-controller", "*/machineconfignodes/status", "patch", "a node that waits for its turn"),
    ("*-controller", "*/machineconfigs", "patch", "a generated config whose input changed"),
    (
        "*-daemon",
        "core/configmaps",
        "get",
        "a CA of the API server that the kubelet does not trust yet",
    ),
    ("*-daemon", "*/machineconfignodes", "get", "after a conflict"),
    (
        "*-daemon",
        "authentication.k8s.io/tokenreviews",
        "create",
        "the test has no metrics of daemons",
    ),
    ("*-daemon", "*/subjectaccessreviews", "create", "as for the token"),
    ("*-operator", "*/customresourcedefinitions", "create", "a kind that was deleted"),
    ("*-operator", "core/namespaces", "create", "a takeover, whose manifests have no namespaces"),
    ("*-operator", "*/clusteroperators", "get", "one that exists before the first list"),
    ("*-operator", "*/controllerconfigs", "get patch", "a new build, or another CA"),
    ("*-operator", "*/machineconfigpools", "get patch", "labels that were removed from a pool"),
    ("*-operator", "*/machineconfigs", "get", "the cluster of another operator"),
    ("*-operator", "*/machineconfigurations", "get", "after a conflict"),
];

/// Returns the reason why a right that no request used is needed.
fn reason(grant: &Grant) -> Option<&'static str> {
    let is = |pattern: &str, text: &str| match pattern.split_once('*') {
        Some((first, last)) => text.starts_with(first) && text.ends_with(last),
        None => pattern == text,
    };
    let found = REASONS.iter().find(|(account, kind, verbs, _)| {
        is(account, &grant.account)
            && is(kind, &grant.kind())
            && verbs.split(' ').any(|verb| verb == grant.verb)
    });
    found.map(|(.., why)| *why)
}

/// Every request of the four processes is allowed, and every right is used, or needed for a reason.
// covers: O03, PROC-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_is_used_and_none_is_missing() {
    let Some(mut cluster) = Cluster::start().await else { return };
    cluster.install().await;
    cluster.metrics_need_a_token_and_a_right().await;
    cluster.add_nodes().await;
    cluster.roll_out_and_drain().await;
    cluster.apply_settings().await;
    cluster.repair_a_rendered_config().await;
    cluster.serve_a_new_machine().await;
    cluster.prune().await;
    cluster.remove_a_node().await;
    cluster.uninstall().await;

    let requests = cluster.requests();
    let denied: Vec<String> = requests
        .iter()
        .filter(|request| request.code == 403)
        .map(|request| format!("{} {} {}", request.user, request.verb, request.url))
        .collect();
    assert!(denied.is_empty(), "denied requests: {denied:#?}");
    let grants = grants::all();
    let unused = grants.iter().filter(|grant| !requests.iter().any(|it| grant.allows(it)));
    let unused: Vec<String> =
        unused.filter(|it| reason(it).is_none()).map(ToString::to_string).collect();
    assert!(unused.is_empty(), "rights that nothing uses: {unused:#?}");
    // A reason that no right needs any more is removed with the right.
    for (account, kind, verbs, why) in REASONS {
        let row = format!("{account} {kind} {verbs}: {why}");
        assert!(grants.iter().any(|grant| reason(grant) == Some(*why)), "{row}");
    }
}
