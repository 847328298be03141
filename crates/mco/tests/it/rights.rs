//! The rights of each process compared with those that it uses, over the life of a cluster on a real
//! kube-apiserver: installation, roll-out, drain, certificates, a new machine, pruning, removal.
//!
//! The API server checks RBAC, the rights of nodes, and the permissions of owner references, and its
//! audit log has every request.

mod cluster;
mod grants;

use self::{cluster::Cluster, grants::Grant};

/// Rights that no request of this test needs, and rights to each object of a kind or in each namespace
/// where its requests name fewer: service account, [target](Grant::target), verbs, and why they are needed.
/// `*` stands for any text without spaces, and `|` separates alternatives of a resource or a name: a right
/// without the name or the namespace of a row needs a reason of its own.
const REASONS: &[(&str, &str, &str, &str)] = &[
    // The API server asks for these while it handles another request; they are no requests.
    (
        "*-operator",
        "rbac.authorization.k8s.io/clusterroles *",
        "escalate bind",
        "checked when a role is given",
    ),
    (
        "*-operator",
        "rbac.authorization.k8s.io/roles * in *",
        "escalate bind",
        "checked when a role is given",
    ),
    (
        "*-operator",
        "rbac.authorization.k8s.io/clusterroles * in machine-config-join-tokens",
        "bind",
        "checked when a role is given",
    ),
    (
        "*-operator",
        "rbac.authorization.k8s.io/roles * in its namespace",
        "escalate bind",
        "checked when a role is given",
    ),
    (
        "*-controller",
        "certificates.k8s.io/signers kubernetes.io/*",
        "approve",
        "checked when a request is approved",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/*/finalizers",
        "update",
        "checked for owner references",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/controllerconfigs/finalizers machine-config-controller",
        "update",
        "checked for owner references",
    ),
    (
        "*-operator",
        "machineconfiguration.openshift.io/osimagestreams",
        "get",
        "checked when a policy that refers to one is stored",
    ),
    (
        "*-operator",
        "config.openshift.io/clusterversions",
        "get",
        "checked when a policy that refers to one is stored",
    ),
    // Objects that have no fixed names.
    (
        "*-controller",
        "machineconfiguration.openshift.io/machineconfigpools|machineconfigpools/status",
        "patch",
        "pools of the administrator",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/kubeletconfigs|containerruntimeconfigs",
        "patch",
        "settings of the administrator",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/kubeletconfigs/status|containerruntimeconfigs/status",
        "patch",
        "settings of the administrator",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/machineconfigs",
        "get patch update delete",
        "rendered and generated configs",
    ),
    (
        "*-controller|*-daemon",
        "machineconfiguration.openshift.io/machineconfignodes/status",
        "patch",
        "one for each node",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/machineconfignodes",
        "patch delete",
        "one for each node",
    ),
    ("*-controller", "core/nodes", "get patch", "all nodes"),
    (
        "*-controller",
        "certificates.k8s.io/certificatesigningrequests/approval",
        "patch",
        "requests of new nodes",
    ),
    ("*-controller", "core/pods/eviction", "create", "pods of all namespaces"),
    (
        "*-controller",
        "core/secrets in its namespace",
        "get list watch",
        "fetched contents, which are named after their sources, and a pull secret of any name",
    ),
    (
        "*-controller|*-server",
        "core/secrets in machine-config-join-tokens",
        "get list watch patch",
        "only with join tokens",
    ),
    ("*-daemon", "core/nodes", "get list watch", "its own node"),
    ("*-daemon", "machineconfiguration.openshift.io/machineconfigs", "get", "rendered configs"),
    (
        "*-daemon",
        "machineconfiguration.openshift.io/machineconfignodes",
        "get list watch",
        "that of its own node",
    ),
    (
        "*-server",
        "machineconfiguration.openshift.io/machineconfigs",
        "list watch",
        "the configs that pools select",
    ),
    (
        "*-operator",
        "machineconfiguration.openshift.io/machineconfigs",
        "get",
        "the cluster of another operator, and the config of the control plane",
    ),
    (
        "*-operator|*-controller|*-server",
        "core/events in its namespace",
        "create patch",
        "a repeated event, or a machine that is refused",
    ),
    // Image mode, and parts of OpenShift.
    (
        "*-controller",
        "machineconfiguration.openshift.io/machineosbuilds",
        "get",
        "only in image mode",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/machineosconfigs|machineosconfigs/status",
        "patch",
        "a MachineOSConfig is reported as not supported",
    ),
    (
        "*-controller",
        "config.openshift.io/imagepolicies/status",
        "patch",
        "only with ImagePolicies",
    ),
    (
        "*-controller",
        "machineconfiguration.openshift.io/internalreleaseimages cluster",
        "get",
        "only with a pull secret",
    ),
    (
        "*-controller|*-operator",
        "core/secrets pull-secret",
        "get list watch",
        "in openshift-config; a Role there cannot be created on a cluster without that namespace",
    ),
    (
        "*-daemon",
        "machineconfiguration.openshift.io/pinnedimagesets",
        "list watch",
        "only with CRI-O",
    ),
    (
        "*-daemon",
        "machineconfiguration.openshift.io/machineconfigpools",
        "watch",
        "pinned images of a machine with systemd",
    ),
    (
        "*-operator",
        "config.openshift.io/infrastructures|featuregates|networks|proxies|dnses|images|apiservers \
         cluster",
        "list watch",
        "objects of OpenShift",
    ),
    (
        "*-operator",
        "config.openshift.io/clusterversions version",
        "list watch",
        "objects of OpenShift",
    ),
    (
        "*-operator",
        "config.openshift.io/clusteroperators image-registry",
        "get",
        "the registry of OpenShift",
    ),
    (
        "*-operator",
        "core/configmaps user-ca-bundle|initial-kube-apiserver-server-ca|image-registry-ca|\
         kube-apiserver-client-ca|kube-cloud-config|kube-apiserver-server-ca|\
         kube-apiserver-to-kubelet-client-ca",
        "list watch",
        "in namespaces of OpenShift; Roles there cannot be created on a cluster without these",
    ),
    (
        "*-operator",
        "core/configmaps merged-trusted-image-registry-ca",
        "list watch create patch",
        "in a namespace of OpenShift; as above",
    ),
    (
        "*-operator",
        "core/configmaps root-ca|bootstrap in kube-system",
        "list watch",
        "the installation of OpenShift",
    ),
    (
        "*-operator",
        "core/configmaps coreos-bootimages|kubeconfig-data in its namespace",
        "create patch",
        "ConfigMaps of OpenShift",
    ),
    (
        "*-operator",
        "core/serviceaccounts machine-os-puller in its namespace",
        "get list watch",
        "credentials of OpenShift's registry",
    ),
    (
        "*-operator",
        "metal3.io/provisionings provisioning-configuration",
        "get",
        "machines of OpenShift on bare metal",
    ),
    (
        "*-operator",
        "admissionregistration.k8s.io/* managed-bootimages-*|osimagestream-prevent-deletion*|\
         internalreleaseimage-deletion-guard*",
        "get create patch delete",
        "policies that only OpenShift has",
    ),
    // Faults, rotations and settings that the test does not have.
    (
        "*-controller",
        "core/secrets machine-config-server-ca|machine-config-server-tls in its namespace",
        "update delete",
        "rotation of certificates",
    ),
    (
        "*-controller",
        "core/configmaps machine-config-server-ca in its namespace",
        "update",
        "rotation of the CA",
    ),
    (
        "*-daemon",
        "core/configmaps kubeconfig-data in its namespace",
        "get",
        "a CA of the API server that the kubelet does not trust yet",
    ),
    (
        "*-daemon",
        "operator.openshift.io/machineconfigurations cluster",
        "list watch",
        "policies that the operator has not published yet",
    ),
    (
        "*-daemon",
        "authentication.k8s.io/tokenreviews",
        "create",
        "the test has no metrics of daemons",
    ),
    ("*-daemon", "authorization.k8s.io/subjectaccessreviews", "create", "as for the token"),
    (
        "*-operator",
        "apiextensions.k8s.io/customresourcedefinitions *",
        "create",
        "a kind that was deleted",
    ),
    ("*-operator", "core/namespaces", "create", "a takeover, whose manifests have no namespaces"),
    (
        "*-operator",
        "machineconfiguration.openshift.io/controllerconfigs machine-config-controller",
        "get patch",
        "a new build, or another CA",
    ),
    (
        "*-operator",
        "machineconfiguration.openshift.io/machineconfigpools master|worker|arbiter",
        "get patch",
        "labels that were removed from a pool",
    ),
    (
        "*-operator",
        "operator.openshift.io/machineconfigurations cluster",
        "get",
        "after a conflict",
    ),
    (
        "*-operator",
        "coordination.k8s.io/leases machine-config-controller in its namespace",
        "get",
        "a controller that seems to be silent",
    ),
];

/// Returns the row with the reason why a right is needed that no request shows to be necessary.
fn reason(grant: &Grant) -> Option<usize> {
    let is_one = |pattern: &str, word: &str| match pattern.split_once('*') {
        Some((first, last)) => word.strip_prefix(first).is_some_and(|rest| rest.ends_with(last)),
        None => pattern == word,
    };
    let is_word = |(pattern, word): (&str, &str)| pattern.split('|').any(|it| is_one(it, word));
    let is = |pattern: &str, text: &str| {
        // The group is a word of its own.
        let (pattern, text) = (pattern.replacen('/', " ", 1), text.replacen('/', " ", 1));
        let (patterns, words) = (pattern.split(' '), text.split(' '));
        patterns.clone().count() == words.clone().count() && patterns.zip(words).all(is_word)
    };
    REASONS.iter().position(|(account, target, verbs, _)| {
        is(account, &grant.account)
            && is(target, &grant.target())
            && verbs.split(' ').any(|verb| verb == grant.verb)
    })
}

/// Fails if a right has no reason.
fn assert_reasons<'g>(what: &str, grants: impl Iterator<Item = &'g Grant>) {
    let without: Vec<String> =
        grants.filter(|it| reason(it).is_none()).map(ToString::to_string).collect();
    assert!(without.is_empty(), "{what}: {without:#?}");
}

// covers: PROC-1
#[test]
fn a_right_to_each_object_of_a_kind_has_a_reason_and_each_reason_a_right() {
    let grants = grants::all();
    let wide = grants.iter().filter(|grant| grant.is_of_any_object());
    assert_reasons("rights that are not limited to names", wide);
    for (row, (account, target, verbs, why)) in REASONS.iter().enumerate() {
        let is_used = grants.iter().any(|grant| reason(grant) == Some(row));
        assert!(is_used, "no right needs the reason {account} {target} {verbs}: {why}");
    }
}

/// Every request of the four processes is allowed, and every right is used as far as it goes, or needed for
/// a reason.
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
    let unused = grants.iter().filter(|grant| !grant.is_needed_by(&requests));
    assert_reasons("rights that nothing uses, or not as far as they go", unused);
}
