//! Operator and controller as processes, on the embedded API server and on a real one.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use k8s_openapi::{
    api::{apps::v1::DaemonSet, coordination::v1::Lease, core::v1::ConfigMap},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::wait::{Condition as _, conditions},
};
use mco_api::{ClusterOperator, ControllerConfig, MachineConfigPool, label};
use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{ApiServer, Embedded, KubeApiServer, Process, Programs, Settings, command, wait},
    object_wait,
    pki::{Authority, Credentials},
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{mco, workspace};

/// Sends SIGTERM and waits until the process has ended.
pub(crate) fn stop(mut process: Process) -> ExitStatus {
    process.signal(Signal::TERM).expect("it runs");
    process.wait(PATIENCE).expect("it ends")
}

/// Waits for a CRD, because a kind can be watched only after the operator has installed it.
pub(crate) async fn installed(client: &Client, kind: &str) {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let is_established = conditions::is_crd_established();
    let is_installed =
        |found: Option<&CustomResourceDefinition>| is_established.matches_object(found);
    object_wait::wait_until(kinds, kind, "its kind", is_installed)
        .await
        .expect("the operator installs it");
}

/// Returns the metrics of a process.
fn metrics(process: &Process) -> String {
    admin(process, "/metrics")
}

/// Returns the answer of a process for a path, at the address that it logs.
pub(crate) fn admin(process: &Process, path: &str) -> String {
    let log = process.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut addresses = lines.filter(|line| line["message"] == "Serving metrics");
    let line = addresses.next().expect("the process serves metrics");
    let mut stream =
        TcpStream::connect(line["address"].as_str().expect("text")).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn operator_and_controller_have_different_ports_for_metrics() {
    for (process, address) in [("operator", "127.0.0.1:8796"), ("controller", "127.0.0.1:8797")] {
        let run = mco(&[process, "start", "--help"]).output().unwrap();
        let help = String::from_utf8(run.stdout).unwrap();
        assert!(help.contains(&format!("[default: {address}]")), "{help}");
    }
}

/// Returns the kubeconfig without the CA of the API server.
#[expect(clippy::disallowed_methods, reason = "the test writes its input files")]
fn without_ca(kubeconfig: &Path, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let line = |line: &str| match line.split_once("certificate-authority-data:") {
        Some((indent, _)) => format!("{indent}insecure-skip-tls-verify: true\n"),
        None => format!("{line}\n"),
    };
    let changed: String = text.lines().map(line).collect();
    assert!(changed.contains("insecure-skip-tls-verify"), "{text}");
    let path = folder.join("without-ca");
    std::fs::write(&path, changed).expect("it is written");
    path
}

#[tokio::test]
async fn a_kubeconfig_without_a_ca_needs_the_one_of_the_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path())
        .expect("the embedded API server starts");
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args(["operator", "start", "--metrics-listen-address", "127.0.0.1:0"]);
    let file = without_ca(api.kubeconfig(), folder.path());
    command.arg("--kubeconfig").arg(file).env_remove("RELEASE_VERSION");
    let log = folder.path().join("operator.log");
    let operator = Process::start("operator", &mut command, &log).expect("the binary starts");
    let text = "the kubeconfig has none, and the ConfigMap \
        openshift-machine-config-operator/kube-root-ca.crt has no ca.crt; set \
        certificate-authority-data in the kubeconfig, or create the ConfigMap";
    let said = || operator.log().contains(text).then_some(());
    let reached = wait("the operator to name the missing CA", PATIENCE, said);
    assert!(reached.is_ok(), "{}", operator.log());

    let client = client::connect(Some(api.kubeconfig())).await.expect("a client");
    let map = serde_json::from_value(json!({
        "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "authority"},
    }));
    let maps = Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE);
    maps.create(&PostParams::default(), &map.expect("a ConfigMap")).await.expect("it is created");
    let configs = Api::<ControllerConfig>::all(client);
    let has_ca = |found: Option<&ControllerConfig>| {
        found.is_some_and(|found| found.spec.root_ca_data == b"authority".to_vec().into())
    };
    let created = object_wait::wait_until(configs, label::CONTROLLER_CONFIG, "the CA", has_ca);
    Box::pin(created).await.expect("the operator uses the CA of the cluster");
}

// covers: PROC-1, PROC-4
#[tokio::test]
async fn operator_and_controller_install_a_cluster_and_stop_on_sigterm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path())
        .expect("the embedded API server starts");
    let admin = |_: &str| api.kubeconfig().to_owned();
    processes_install_a_cluster_and_stop(&api, folder.path(), admin).await;
    api.process().signal(Signal::TERM).expect("it runs");
    assert!(api.process().wait(PATIENCE).expect("it ends").success());
}

/// Applies the manifests in `deploy/`: roles and their bindings take effect, workloads do not run. The
/// operator creates the other roles.
fn apply_manifests(api: &KubeApiServer) {
    let mut kubectl = command(api.kubectl());
    kubectl.arg("--kubeconfig").arg(api.kubeconfig()).args(["apply", "--validate=false", "-k"]);
    let run = kubectl.arg(workspace().join("deploy")).output().expect("kubectl runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// Writes a kubeconfig for the service account of a process.
#[expect(clippy::disallowed_methods, reason = "the test writes its input files")]
fn account(process: &str, api: &KubeApiServer, authority: &Authority, folder: &Path) -> PathBuf {
    let user = format!("system:serviceaccount:{}:machine-config-{process}", label::NAMESPACE);
    let pair = authority.user(&user, Some("system:serviceaccounts")).expect("a certificate");
    let path = folder.join(format!("{process}.kubeconfig"));
    let text = authority.kubeconfig(api.url(), Credentials::Certificate(&pair));
    std::fs::write(&path, text).expect("it is written");
    path
}

/// The processes have the roles of `deploy/` and no others, and the API server checks the permissions
/// of owner references, as on OpenShift.
// covers: PROC-1, PROC-4
#[tokio::test]
async fn operator_and_controller_run_with_their_own_roles_on_a_real_kube_apiserver() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("test").expect("an authority");
    let settings = Settings::loopback(&folder.path().join("api"));
    let api = KubeApiServer::start(&programs, &authority, &settings).expect("it starts");
    apply_manifests(&api);
    let own = |process: &str| account(process, &api, &authority, folder.path());
    processes_install_a_cluster_and_stop(&api, folder.path(), own).await;
}

async fn processes_install_a_cluster_and_stop(
    api: &dyn ApiServer,
    folder: &Path,
    kubeconfig: impl Fn(&str) -> PathBuf,
) {
    let file = api.kubeconfig();
    let start = |process: &str| {
        let mut command = command(env!("CARGO_BIN_EXE_mco"));
        command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
        if process == "operator" {
            command.args(["--operator-image", "registry.test/mco:1"]);
        }
        command.arg("--kubeconfig").arg(kubeconfig(process)).env_remove("RELEASE_VERSION");
        let log = folder.join(format!("{process}.log"));
        Process::start(process, &mut command, &log).expect("the binary starts")
    };
    let operator = start("operator");
    let client = client::connect(Some(file)).await.expect("a client");
    // The last object that the operator creates: the controller has its rights then.
    let sets = Api::<DaemonSet>::namespaced(client.clone(), label::NAMESPACE);
    let exists = |found: Option<&DaemonSet>| found.is_some();
    let created = object_wait::wait_until(sets, "machine-config-server", "a DaemonSet", exists);
    created.await.expect("the operator creates the DaemonSet");
    let controller = start("controller");

    let operators = Api::<ClusterOperator>::all(client.clone());
    installed(&client, "clusteroperators.config.openshift.io").await;
    let has_version = |found: Option<&ClusterOperator>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| !status.versions.is_empty())
    };
    let reached =
        object_wait::wait_until(operators, label::CLUSTER_OPERATOR, "a version", has_version);
    reached.await.expect("the operator reaches its version");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let master = pools.get("master").await.expect("the operator creates the pool");
    let status = master.status.clone().expect("the controller sets the status");
    let name = status.configuration.rendered.name;
    assert!(name.starts_with("rendered-master-"), "{name}");

    let managers = |meta: &ObjectMeta| -> BTreeSet<String> {
        let fields = meta.managed_fields.clone().unwrap_or_default();
        fields.into_iter().filter_map(|field| field.manager).collect()
    };
    let expected = ["machine-config-controller", "machine-config-operator"].map(str::to_owned);
    assert_eq!(managers(&master.metadata), expected.into());
    for process in [&operator, &controller] {
        assert!(!process.log().contains("orbidden"), "{}", process.log());
        let metrics = metrics(process);
        let line = "mco_api_requests_total{method=\"GET\",result=\"2xx\"}";
        assert!(metrics.contains(line), "{metrics}");
    }

    crate::server::serves_a_pool_with_the_url_of_the_cluster(
        &client,
        &kubeconfig("server"),
        "master",
    )
    .await;
    assert!(stop(controller).success() && stop(operator).success());
    for name in ["machine-config-controller", "machine-config"] {
        let lease = Api::<Lease>::namespaced(client.clone(), label::NAMESPACE).get(name).await;
        let spec = lease.expect("the process holds the lease").spec.unwrap_or_default();
        assert_eq!(spec.holder_identity.as_deref(), Some(""), "{name} is free again");
    }
}
