//! `mco install` and `mco uninstall`.

#![expect(clippy::disallowed_methods, reason = "the test writes a kubeconfig")]

use std::path::Path;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, Node, Secret},
        rbac::v1::ClusterRole,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use mco_api::{ClusterOperator, KubeletConfig, MachineConfigPool, label};
use mco_cluster::client;
use mco_testkit::{
    api::{self, ApiServer, Embedded, KubeApiServer, Process, command},
    object_wait, objects,
};
use serde_json::{Value, json};

use crate::{
    mco,
    processes::{installed, stop},
};

const OPERATOR: &str = "machine-config-operator";

fn run(words: &[&str], kubeconfig: Option<&Path>) -> (bool, String) {
    let mut command = mco(words).env_remove("KUBECONFIG");
    if let Some(file) = kubeconfig {
        command = command.env("KUBECONFIG", file);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn objects_of(words: &[&str]) -> Vec<Value> {
    let (is_ok, text) = run(&[&["install", "-o", "json"], words].concat(), None);
    assert!(is_ok, "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[test]
fn the_manifests_have_the_given_settings() {
    let words =
        ["--image", "registry.test/mco:7", "--profile", "full", "--join-tokens", "required"];
    let objects = objects_of(&words);
    let operator = objects.last().unwrap();
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.test/mco:7");
    let args = container["args"].to_string();
    for word in ["--operator-image=registry.test/mco:7", "--profile=full", "--join-tokens=required"]
    {
        assert!(args.contains(word), "{args}");
    }
    let kinds = objects.iter().filter(|it| it["kind"] == "CustomResourceDefinition").count();
    assert_eq!(kinds, mco_api::crds().len());
    assert!(objects.iter().all(|it| it["kind"] != "DaemonSet"), "the operator creates these");

    let (is_ok, yaml) = run(&["install"], None);
    assert!(is_ok, "{yaml}");
    assert_eq!(yaml.matches("\n---\n").count() + 1, objects_of(&[]).len());
    let (is_ok, text) = run(&["install", "--profile", "half"], None);
    assert!(!is_ok && text.contains("[possible values: adopt, full]"), "{text}");
}

#[test]
fn the_manifests_of_a_takeover_have_its_flags_and_leave_kinds_and_namespace_alone() {
    let args = |objects: &[Value]| {
        let operator = objects.last().unwrap();
        operator["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
    };
    let objects = objects_of(&["--take-over", "--adopt-build=v4.21.0-7ff"]);
    for word in ["\"--take-over\"", "\"--adopt-build=v4.21.0-7ff\""] {
        assert!(args(&objects).contains(word), "{}", args(&objects));
    }
    let of_others = ["CustomResourceDefinition", "Namespace"];
    assert!(objects.iter().all(|it| of_others.iter().all(|kind| it["kind"] != *kind)));
    assert!(args(&objects_of(&["--take-over"])).contains("\"--adopt-build=auto\""));
    assert!(!args(&objects_of(&[])).contains("take-over"));
    let (is_ok, text) = run(&["install", "--adopt-build=v4.21.0-7ff"], None);
    assert!(!is_ok && text.contains("--take-over"), "{text}");
}

#[test]
fn the_manifests_name_no_other_namespace_than_the_given_one() {
    let objects = objects_of(&["--namespace", "node-config", "--image", "openshift.test/mco:1"]);
    let text = serde_json::to_string(&objects).unwrap();
    let kinds = serde_json::to_string(&mco_api::crds()).unwrap();
    let count = |text: &str| text.matches(label::NAMESPACE).count();
    assert_eq!(count(&text), count(&kinds), "only descriptions of kinds name the standard one");
    assert!(!text.contains("own-namespace"), "every place is filled");
    let namespaces: Vec<&Value> = objects.iter().filter(|it| it["kind"] == "Namespace").collect();
    assert_eq!(namespaces[0]["metadata"]["name"], "node-config");
    assert_eq!(namespaces[0]["metadata"]["labels"][label::INSTALLATION], "");
    assert_eq!(namespaces[1]["metadata"]["name"], "machine-config-join-tokens");
    let operator = objects.last().unwrap();
    assert_eq!(operator["metadata"]["namespace"], "node-config");
    let args = operator["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("\"--namespace=node-config\""), "{args}");
    let standard = objects_of(&["--namespace", label::NAMESPACE]);
    assert_eq!(standard, objects_of(&[]), "the standard namespace needs no flag");

    for (name, why) in [
        ("default", "this namespace has other objects"),
        ("kube-system", "this namespace has other objects"),
        ("machine-config-join-tokens", "this namespace has other objects"),
        ("Node_Config", "lower-case letters, digits and hyphens"),
    ] {
        let (is_ok, text) = run(&["install", "--namespace", name], None);
        assert!(!is_ok && text.contains(why), "{name}: {text}");
    }
    let (is_ok, text) = run(&["install", "--namespace", "a", "--take-over"], None);
    assert!(!is_ok && text.contains("cannot be used with '--take-over'"), "{text}");
}

#[test]
fn a_kubeconfig_that_is_named_must_be_usable() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent").display().to_string();
    let (is_ok, text) = run(&["install", "--kubeconfig", &absent], None);
    assert!(!is_ok && text.contains("failed to read kubeconfig"), "{text}");
    let invalid = folder.path().join("invalid");
    std::fs::write(&invalid, "clusters: 1\n").unwrap();
    let (is_ok, text) = run(&["install", "--kubeconfig", &invalid.display().to_string()], None);
    assert!(!is_ok && text.contains("invalid kubeconfig"), "{text}");
    // The manifests need no cluster.
    let (is_ok, text) = run(&["install"], Some(&invalid));
    assert!(is_ok && text.contains("kind: Deployment"), "{text}");
    assert!(
        text.contains("note: installations in the cluster were not checked: invalid"),
        "{text}"
    );
}

/// Commands find an installation in another namespace, and a second one is refused.
async fn an_installation_elsewhere_is_found(api: &dyn ApiServer) {
    let folder = tempfile::tempdir().unwrap();
    let file = Some(api.kubeconfig());
    let words = ["--namespace", "node-config", "--operator-image", "registry.test/mco:1"];
    let (operator, client) = start_operator(api, folder.path(), &words).await;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "node-config");
    let exists = |found: Option<&Deployment>| found.is_some();
    let name = "machine-config-controller";
    object_wait::wait_until(deployments.clone(), name, "a Deployment", exists).await.unwrap();

    let (is_ok, text) = run(&["install", "--namespace", "other"], file);
    assert!(!is_ok && text.contains("has an installation in namespace node-config"), "{text}");
    let (is_ok, text) = run(&["install", "--namespace", "node-config"], file);
    assert!(is_ok && text.contains("namespace: node-config"), "{text}");
    let (is_ok, text) = run(&["logs", "controller"], file);
    assert!(!is_ok && text.contains("namespace node-config has no pod of"), "{text}");
    let (_, text) = run(&["doctor"], file);
    assert!(text.contains("the namespace node-config admits the daemons"), "{text}");
    assert!(text.contains("kubectl describe pods -n node-config -l k8s-app="), "{text}");

    assert!(stop(operator).success());
    let (is_ok, text) = run(&["uninstall", "--yes"], file);
    assert!(is_ok && text.contains("Deployment node-config/machine-config-controller deleted"));
    assert!(deployments.get_opt(name).await.unwrap().is_none());
    // The label of the namespace is left.
    let (is_ok, text) = run(&["install", "--namespace", "other"], file);
    assert!(!is_ok && text.contains("has an installation in namespace node-config"), "{text}");
    let way_out =
        "kubectl label namespace node-config machineconfiguration.openshift.io/installation-";
    assert!(text.contains(way_out), "{text}");
    let (_, text) = run(&["uninstall", "--yes", "--forget"], file);
    assert!(text.contains("Namespace node-config deleted"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_elsewhere_is_found_on_the_embedded_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    an_installation_elsewhere_is_found(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_elsewhere_is_found_on_a_real_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    an_installation_elsewhere_is_found(&server).await;
}

/// Creates objects that an uninstallation must not touch: a pool, and a ClusterRole of another owner.
async fn create_others(client: &Client) {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    pools.create(&PostParams::default(), &objects::pool("worker")).await.unwrap();
    let roles = Api::<ClusterRole>::all(client.clone());
    let key = "app.kubernetes.io~1managed-by";
    let patch = json!([{"op": "remove", "path": format!("/metadata/labels/{key}")}]);
    let patch = Patch::<ClusterRole>::Json(serde_json::from_value(patch).unwrap());
    roles.patch("machine-config-server", &PatchParams::default(), &patch).await.unwrap();
    let finalizers = ["99-worker-generated-kubelet", "example.test/a"];
    let config = json!({"metadata": {"name": "a", "finalizers": finalizers}, "spec": {}});
    let config: KubeletConfig = serde_json::from_value(config).unwrap();
    let configs = Api::<KubeletConfig>::all(client.clone());
    configs.create(&PostParams::default(), &config).await.unwrap();
    let annotations = json!({"machineconfiguration.openshift.io/state": "Done", "other": "stays"});
    let node = json!({"metadata": {"name": "n1", "annotations": annotations}});
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_is_checked_applied_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    let file = Some(server.kubeconfig());
    let (is_ok, text) = run(&["install", "--dry-run=server"], file);
    assert!(is_ok, "{text}");
    let line = format!("ClusterRole {OPERATOR} created (server dry run)");
    assert!(text.lines().any(|found| found == line), "{text}");
    let line = format!(
        "Deployment {}/{OPERATOR} not checked: its namespace does not exist yet (server dry run)",
        label::NAMESPACE
    );
    assert!(text.lines().any(|found| found == line), "{text}");
    let (is_ok, text) = run(&["uninstall"], file);
    assert!(is_ok && text.starts_with("nothing to delete"), "{text}");

    api::install(&server).unwrap();
    api::account(&server, OPERATOR).unwrap();
    let (is_ok, text) = run(&["install", "--dry-run=server"], file);
    assert!(is_ok && text.contains(&format!("{OPERATOR} unchanged (server dry run)")), "{text}");
    let client = client::connect(file).await.unwrap();
    create_others(&client).await;

    let (is_ok, listed) = run(&["uninstall"], file);
    assert!(is_ok && listed.contains("run the command with --yes to delete"), "{listed}");
    let deployments = Api::<Deployment>::namespaced(client.clone(), label::NAMESPACE);
    assert!(deployments.get(OPERATOR).await.is_ok(), "nothing was deleted");
    let (is_ok, text) = run(&["uninstall", "--yes"], file);
    assert!(is_ok && text.contains("stay as they are"), "{text}");
    assert!(text.contains("ClusterRole machine-config-server stays: it has no label"), "{text}");
    assert_eq!(deployments.list(&ListParams::default()).await.unwrap().items, []);
    let roles = Api::<ClusterRole>::all(client.clone());
    let roles = roles.list(&ListParams::default().labels("!kubernetes.io/bootstrapping")).await;
    let roles: Vec<_> = roles.unwrap().iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(roles, ["machine-config-server"]);
    let pools = Api::<MachineConfigPool>::all(client.clone());
    assert!(pools.get("worker").await.is_ok(), "pools stay");
    let secrets = Api::<Secret>::namespaced(client.clone(), label::NAMESPACE);
    assert!(secrets.list(&ListParams::default()).await.is_ok(), "the namespace stays");

    let (is_ok, text) = run(&["uninstall", "--yes", "--forget"], file);
    assert!(!is_ok && text.contains("Node n1 did not forget: its daemon did not answer"), "{text}");
    assert!(text.contains("`mco host forget --yes` on these machines"), "{text}");
    let line =
        "KubeletConfig a stays until its finalizers of other owners are removed: example.test/a";
    assert!(text.contains(line), "{text}");
    finalizers_of_others_are_removed(&client).await;
    let node = Api::<Node>::all(client.clone()).get("n1").await.unwrap();
    let annotations: Vec<_> = node.annotations().keys().cloned().collect();
    assert_eq!(annotations, ["other"]);
    let namespace = Api::<Namespace>::all(client.clone()).get(label::NAMESPACE).await.unwrap();
    assert!(namespace.metadata.deletion_timestamp.is_some(), "the namespace is deleted");
    let kinds = Api::<CustomResourceDefinition>::all(client);
    for kind in mco_api::crds() {
        let gone = |found: Option<&CustomResourceDefinition>| found.is_none();
        let name = kind.name_any();
        let waited = object_wait::wait_until(kinds.clone(), &name, "its end", gone);
        waited.await.unwrap();
    }
}

/// The other owner removes its finalizer.
async fn finalizers_of_others_are_removed(client: &Client) {
    let configs = Api::<KubeletConfig>::all(client.clone());
    let config = configs.get("a").await.unwrap();
    assert_eq!(config.finalizers(), ["example.test/a"]);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    configs.patch("a", &PatchParams::default(), &patch).await.unwrap();
}

/// Starts the operator, and waits for its kinds.
pub(crate) async fn start_operator(
    api: &dyn ApiServer,
    folder: &Path,
    words: &[&str],
) -> (Process, Client) {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args(["operator", "start", "--metrics-listen-address", "127.0.0.1:0"]).args(words);
    command.arg("--kubeconfig").arg(api.kubeconfig()).env_remove("RELEASE_VERSION");
    let operator = Process::start("operator", &mut command, &folder.join("operator.log")).unwrap();
    let client = client::connect(Some(api.kubeconfig())).await.unwrap();
    installed(&client, "clusteroperators.config.openshift.io").await;
    (operator, client)
}

/// Runs the operator until it has reported the state of the cluster.
async fn report_once(api: &dyn ApiServer, folder: &Path) -> Api<ClusterOperator> {
    let (operator, client) = start_operator(api, folder, &[]).await;
    let operators = Api::<ClusterOperator>::all(client);
    let is_reported = |found: Option<&ClusterOperator>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| !status.conditions.is_empty())
    };
    let name = label::CLUSTER_OPERATOR;
    object_wait::wait_until(operators.clone(), name, "a status", is_reported).await.unwrap();
    assert!(stop(operator).success());
    operators
}

/// The ClusterOperator goes with the operator, which kept its status current. One of another owner, such
/// as the cluster-version-operator, stays.
async fn no_status_stays_behind(api: &dyn ApiServer) {
    let folder = tempfile::tempdir().unwrap();
    let operators = report_once(api, folder.path()).await;
    let name = label::CLUSTER_OPERATOR;
    let (is_ok, listed) = run(&["uninstall"], Some(api.kubeconfig()));
    assert!(
        is_ok && listed.contains("ClusterOperator machine-config would be deleted"),
        "{listed}"
    );
    let (is_ok, text) = run(&["uninstall", "--yes"], Some(api.kubeconfig()));
    assert!(is_ok && text.contains("ClusterOperator machine-config deleted"), "{text}");
    assert!(operators.get_opt(name).await.unwrap().is_none());

    let other = json!({"metadata": {"name": name}, "spec": {}});
    let other = serde_json::from_value(other).unwrap();
    operators.create(&PostParams::default(), &other).await.unwrap();
    report_once(api, folder.path()).await;
    let (is_ok, text) = run(&["uninstall", "--yes"], Some(api.kubeconfig()));
    assert!(is_ok && text.contains("ClusterOperator machine-config stays"), "{text}");
    assert!(operators.get_opt(name).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_status_stays_behind_on_the_embedded_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    no_status_stays_behind(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_status_stays_behind_on_a_real_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    no_status_stays_behind(&server).await;
}
