//! The Helm chart in `deploy/helm`, with the real Helm. The tests are skipped where it is not installed.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::Api;
use mco_api::{ClusterOperator, label};
use mco_cluster::client;
use mco_core::yaml;
use mco_testkit::{
    api::{ApiServer as _, KubeApiServer, Process, account_kubeconfig, command, find_helm},
    object_wait,
};
use serde_json::Value;

use crate::{
    mco,
    processes::{installed, stop},
    workspace,
};

const CHART: &str = "deploy/helm/mco";
const OPERATOR: &str = "machine-config-operator";

/// Runs Helm in the root of the repository; prints a line and returns `None` if it is not installed.
#[expect(clippy::disallowed_methods, reason = "the test runs another program")]
fn helm(words: &[&str], kubeconfig: Option<&Path>) -> Option<Output> {
    let program = match find_helm() {
        Ok(program) => program,
        Err(missing) => {
            writeln!(std::io::stderr(), "skipped: {missing}").unwrap();
            return None;
        }
    };
    let mut command = Command::new(program);
    command.args(words).current_dir(workspace()).env_remove("KUBECONFIG");
    command.envs(kubeconfig.map(|path| ("KUBECONFIG", path)));
    Some(command.output().unwrap())
}

/// Returns the output of a command that succeeded.
fn text(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns objects in the order of their kinds and names. Helm has an order of its own.
fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(|object| !object.is_null() && object["kind"] != "CustomResourceDefinition");
    for metadata in objects.iter_mut().filter_map(|object| object["metadata"].as_object_mut()) {
        // Tells Helm to leave the namespaces with the certificates and tokens of machines.
        metadata.remove("annotations");
    }
    let key = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{}/{}/{}", object["kind"], metadata["namespace"], metadata["name"])
    };
    objects.sort_by_key(key);
    objects
}

#[test]
fn the_chart_has_the_objects_of_mco_install() {
    let rows: [(&[&str], &[&str]); 2] = [
        (&[], &[]),
        (
            &["--set", "image=registry.test/mco:7,profile=full,joinTokens=required"],
            &["--image", "registry.test/mco:7", "--profile", "full", "--join-tokens", "required"],
        ),
    ];
    for (values, flags) in rows {
        let words = [&["template", "mco", CHART], values].concat();
        let Some(output) = helm(&words, None) else { return };
        let chart = yaml::documents(&text(&output)).unwrap();
        let run = mco(&[&["install", "-o", "json"], flags].concat()).output().unwrap();
        let list: Value = serde_json::from_slice(&run.stdout).unwrap();
        let plain = list["items"].as_array().unwrap().clone();
        // The operator creates the kinds, so that they are those of its version after an upgrade, too.
        assert!(plain.iter().any(|object| object["kind"] == "CustomResourceDefinition"));
        let (chart, plain) = (sorted(chart), sorted(plain));
        assert_eq!(chart.len(), plain.len());
        for (chart, plain) in chart.iter().zip(&plain) {
            assert_eq!(chart, plain);
        }
    }
    let Some(output) = helm(&["lint", "--strict", CHART], None) else { return };
    let said = text(&output);
    assert!(said.contains("0 chart(s) failed") && !said.contains("WARNING"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chart_installs_an_operator_that_works() {
    if helm(&["version"], None).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    let kubeconfig = Some(server.kubeconfig());
    text(&helm(&["install", "mco", CHART], kubeconfig).unwrap());
    let client = client::connect(kubeconfig).await.unwrap();
    let deployments = Api::<Deployment>::namespaced(client.clone(), label::NAMESPACE);
    deployments.get(OPERATOR).await.unwrap();

    // The operator has the rights of the chart, and no others.
    let account = account_kubeconfig(&server, OPERATOR).unwrap();
    let mut start = command(env!("CARGO_BIN_EXE_mco"));
    start.args(["operator", "start", "--metrics-listen-address", "127.0.0.1:0"]);
    start.args(["--operator-image", "registry.test/mco:1", "--kubeconfig"]).arg(account);
    start.env_remove("RELEASE_VERSION");
    let log = folder.path().join("operator.log");
    let operator = Process::start("operator", &mut start, &log).unwrap();
    installed(&client, "clusteroperators.config.openshift.io").await;
    let operators = Api::<ClusterOperator>::all(client.clone());
    let is_deployed = |found: Option<&Deployment>| found.is_some();
    let controller = "machine-config-controller";
    let waited =
        object_wait::wait_until(deployments, controller, "the controller", is_deployed).await;
    assert!(waited.is_ok(), "{}", operator.log());
    assert!(operators.get(label::CLUSTER_OPERATOR).await.is_ok(), "{}", operator.log());
    let log = operator.log();
    assert!(stop(operator).success());
    assert!(!log.contains("is forbidden"), "{log}");

    // An upgrade changes the operator and nothing that it made.
    let image = ["--set", "image=registry.test/mco:2"];
    text(&helm(&[&["upgrade", "mco", CHART][..], &image].concat(), kubeconfig).unwrap());
    let deployments = Api::<Deployment>::namespaced(client.clone(), label::NAMESPACE);
    let images = |found: &Deployment| serde_json::json!(found).to_string();
    assert!(images(&deployments.get(OPERATOR).await.unwrap()).contains("registry.test/mco:2"));
    assert!(images(&deployments.get(controller).await.unwrap()).contains("registry.test/mco:1"));

    let (code, said) = uninstall(&server);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("run `helm uninstall mco -n default` first"), "{said}");
    text(&helm(&["uninstall", "mco"], kubeconfig).unwrap());
    assert!(deployments.get_opt(OPERATOR).await.unwrap().is_none());
    // Helm keeps the namespaces, which contain the credentials of joined machines.
    let namespaces = Api::<Namespace>::all(client);
    assert!(namespaces.get(label::NAMESPACE).await.unwrap().metadata.deletion_timestamp.is_none());
    let (code, said) = uninstall(&server);
    assert_eq!(code, Some(0), "{said}");
    assert!(deployments.get_opt(controller).await.unwrap().is_none(), "{said}");
}

/// Runs `mco uninstall`.
fn uninstall(server: &KubeApiServer) -> (Option<i32>, String) {
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let run = mco(&["uninstall", "--yes", "--kubeconfig", kubeconfig]).output().unwrap();
    let said = [run.stdout, run.stderr].concat();
    (run.status.code(), String::from_utf8(said).unwrap())
}
