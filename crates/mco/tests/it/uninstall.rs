//! `mco uninstall --forget` beside a controller that still runs, after an interruption, and beside
//! daemons of another owner.

use std::path::Path;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Node, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{KubeletConfig, label};
use mco_testkit::{
    PATIENCE,
    api::{ApiServer, Embedded, KubeApiServer, Process, command},
    object_wait,
};
use serde_json::{Value, json};

use crate::{install::start_operator, processes::stop};

const CONTROLLER: &str = "machine-config-controller";
const DAEMON: &str = "machine-config-daemon";
const WAITING: &str = "waiting for the pods of machine-config-controller to end";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The objects of an installation, without processes.
struct Installed<'a> {
    api: &'a dyn ApiServer,
    client: Client,
    folder: &'a Path,
}

impl<'a> Installed<'a> {
    async fn start(api: &'a dyn ApiServer, folder: &'a Path) -> Self {
        let (operator, client) =
            start_operator(api, folder, &["--operator-image", "registry.test/mco:1"]).await;
        let this = Self { api, client, folder };
        let exists = |found: Option<&DaemonSet>| found.is_some();
        for name in [DAEMON, "machine-config-server"] {
            object_wait::wait_until(this.daemon_sets(), name, "a DaemonSet", exists).await.unwrap();
        }
        let exists = |found: Option<&Deployment>| found.is_some();
        let deployments = this.deployments();
        object_wait::wait_until(deployments, CONTROLLER, "a Deployment", exists).await.unwrap();
        assert!(stop(operator).success());
        this
    }

    fn daemon_sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.client.clone(), label::NAMESPACE)
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), label::NAMESPACE)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), label::NAMESPACE)
    }

    fn kubelet_configs(&self) -> Api<KubeletConfig> {
        Api::all(self.client.clone())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Starts a removal. `name` is that of its log.
    fn remove(&self, name: &str) -> Process {
        let mut command = command(env!("CARGO_BIN_EXE_mco"));
        command.args(["uninstall", "--yes", "--forget"]).env_remove("KUBECONFIG");
        command.arg("--kubeconfig").arg(self.api.kubeconfig());
        Process::start(name, &mut command, &self.folder.join(format!("{name}.log"))).unwrap()
    }

    /// Creates a pod of the controller, and what it and an administrator left.
    async fn add_traces(&self) {
        let container = json!({"name": "a", "image": "registry.test/mco:1"});
        let pod = json!({
            "metadata": {"name": "controller-a", "labels": {"k8s-app": CONTROLLER}},
            "spec": {"serviceAccountName": CONTROLLER, "containers": [container]},
        });
        create(&self.pods(), pod).await;
        let config = json!({"metadata": {"name": "a", "finalizers": ["99-worker-generated-kubelet"]},
            "spec": {}});
        create(&self.kubelet_configs(), config).await;
        let taint = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
        let annotations =
            json!({"machineconfiguration.openshift.io/drainRecord": "", "other": "stays"});
        let node = json!({
            "metadata": {"name": "n1", "annotations": annotations},
            "spec": {"unschedulable": true,
                "taints": [taint("UpdateInProgress"), taint("example.test/a")]},
        });
        create(&self.nodes(), node).await;
    }

    /// Fails if the finalizers or the daemons are removed before the pod of the controller ends.
    async fn processes_have_what_they_need(&self) {
        let config = self.kubelet_configs().get("a").await.unwrap();
        assert_eq!(config.finalizers(), ["99-worker-generated-kubelet"]);
        assert!(self.daemon_sets().get_opt(DAEMON).await.unwrap().is_some());
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn a_removal_waits_for_the_controller_and_can_be_repeated(api: &dyn ApiServer) {
    let folder = tempfile::tempdir().unwrap();
    let installed = Installed::start(api, folder.path()).await;
    installed.add_traces().await;

    let mut first = installed.remove("first");
    let log = folder.path().join("first.log");
    first.wait_ready(PATIENCE, || read(&log).contains(WAITING)).unwrap();
    assert!(installed.deployments().get_opt(CONTROLLER).await.unwrap().is_none());
    installed.processes_have_what_they_need().await;
    first.kill().unwrap();

    let mut second = installed.remove("second");
    let log = folder.path().join("second.log");
    second.wait_ready(PATIENCE, || read(&log).contains(WAITING)).unwrap();
    installed.processes_have_what_they_need().await;
    let at_once = DeleteParams::default().grace_period(0);
    installed.pods().delete("controller-a", &at_once).await.unwrap();
    let status = second.wait(PATIENCE).unwrap();
    let text = second.log();
    assert!(status.success(), "{text}");
    assert!(text.contains("Node n1 stays cordoned: run `kubectl uncordon n1`"), "{text}");

    let node = installed.nodes().get("n1").await.unwrap();
    assert_eq!(node.annotations().keys().collect::<Vec<_>>(), ["other"]);
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    let ours_or_mine = |key: &str| !key.starts_with("node.kubernetes.io/");
    let keys = taints.iter().map(|taint| taint.key.as_str()).filter(|key| ours_or_mine(key));
    assert_eq!(keys.collect::<Vec<_>>(), ["example.test/a"]);
    let kinds = Api::<CustomResourceDefinition>::all(installed.client.clone());
    let gone = |found: Option<&CustomResourceDefinition>| found.is_none();
    let name = "kubeletconfigs.machineconfiguration.openshift.io";
    object_wait::wait_until(kinds, name, "its end", gone).await.unwrap();
}

/// The annotations of nodes are those of the daemons that stay.
async fn daemons_of_another_owner_keep_their_nodes(api: &dyn ApiServer) {
    let folder = tempfile::tempdir().unwrap();
    let installed = Installed::start(api, folder.path()).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {MANAGED_BY: null}}}));
    let params = PatchParams::default();
    installed.daemon_sets().patch(DAEMON, &params, &patch).await.unwrap();
    let mut removal = installed.remove("removal");
    let status = removal.wait(PATIENCE).unwrap();
    let text = removal.log();
    assert!(!status.success() && text.contains("has another owner"), "{text}");
    assert!(text.contains("leave out --forget"), "{text}");
    assert!(
        installed.deployments().get_opt(CONTROLLER).await.unwrap().is_some(),
        "nothing is deleted"
    );
}

#[expect(clippy::disallowed_methods, reason = "the test reads the output of the program")]
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Makes every function a test on each of the two API servers.
macro_rules! on_both {
    ($($claim:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let folder = tempfile::tempdir().unwrap();
                let mco = std::path::Path::new(env!("CARGO_BIN_EXE_mco"));
                let api = super::Embedded::start(mco, folder.path()).unwrap();
                super::$claim(&api).await;
            })+
        }
        mod real {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let folder = tempfile::tempdir().unwrap();
                let Some(api) = super::KubeApiServer::alone(folder.path()).unwrap() else { return };
                super::$claim(&api).await;
            })+
        }
    };
}

on_both! {
    a_removal_waits_for_the_controller_and_can_be_repeated,
    daemons_of_another_owner_keep_their_nodes,
}
