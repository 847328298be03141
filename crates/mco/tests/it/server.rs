//! The command line of `mco server`, which is the reference's.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use mco_api::{annotation, label};
use mco_testkit::{
    PATIENCE,
    api::{Process, command},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use snapbox::str;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    time::timeout,
};

use crate::{Folder, mco};

// covers: S03
#[test]
fn the_apiserver_url_is_required() {
    mco(&["server", "start"]).assert().code(1).stderr_eq(str![[r#"
error: --apiserver-url cannot be empty

"#]]);
}

#[test]
fn flags_are_accepted_before_and_after_the_action() {
    for args in [
        ["server", "--secure-port", "1", "version"],
        ["server", "version", "--secure-port", "1"],
        ["server", "version", "--tls-cipher-suites", "a,b"],
    ] {
        let out = mco(&args).output().unwrap();
        assert!(out.status.success(), "{args:?}");
        assert!(out.stdout.starts_with(b"MachineConfigServer "), "{args:?}");
    }
}

// covers: S44
#[test]
fn certificates_that_are_not_a_host_and_a_file_are_refused_at_the_start() {
    for certs in ["foo", "a=b=c", "a=b,c", "a=/etc/b"] {
        let out = mco(&["server", "bootstrap", "--bootstrap-certs", certs]).output().unwrap();
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{certs}: {error}");
        assert!(error.contains("--bootstrap-certs <HOST=FILE>"), "{certs}: {error}");
    }
}

// covers: S42
#[test]
fn the_kubeconfig_of_a_bootstrap_must_exist() {
    let folder = Folder::new(&[]);
    let words = ["server", "bootstrap", "--bootstrap-kubeconfig", "missing"];
    let out = folder.mco(&words).output().unwrap();
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{error}");
    assert!(error.contains("failed to read missing"), "{error}");
}

/// Writes the manifests of a small cluster and renders them.
fn rendered() -> Folder {
    let folder = Folder::new(&[
        ("kubeconfig", b"clusters:\n- name: local\n"),
        ("in/gate.json", gate().to_string().as_bytes()),
        ("in/controller.json", controller().to_string().as_bytes()),
        ("in/pool.json", pool().to_string().as_bytes()),
        ("out/certs/one.crt", b"--one--"),
        ("out/certs/two.crt", b"--two--"),
    ]);
    write_certificate(&folder);
    let words = ["controller", "bootstrap", "--manifest-dir", "in", "--dest-dir", "out"];
    let out = folder.mco(&words).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    folder
}

fn gate() -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate",
        "metadata": {"name": "cluster"}})
}

fn pool() -> Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "master"}, "spec": {
            "machineConfigSelector": {"matchLabels": {label::ROLE: "master"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/master": ""}}}})
}

fn controller() -> Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller",
            "annotations": {annotation::GENERATED_BY_VERSION.name(): env!("CARGO_PKG_VERSION")}},
        "spec": {"kubeAPIServerServingCAData": "Y2E="}})
}

/// Starts a server that has nothing but the permissions of its role, and checks that it serves a pool
/// with the API server's URL of the cluster.
pub(crate) async fn serves_a_pool_with_the_url_of_the_cluster(
    client: &Client,
    kubeconfig: &Path,
    pool: &str,
) {
    let map = serde_json::from_value(json!({
        "metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": "clusters:\n- cluster:\n    server: https://api.example.com:6443\n"},
    }));
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-public");
    maps.create(&PostParams::default(), &map.unwrap()).await.unwrap();

    let folder = Folder::new(&[("token/token", b"to.ken"), ("token/ca.crt", b"--ca--")]);
    write_certificate(&folder);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.current_dir(folder.path("")).args(["server", "start", "--apiserver-url", "auto"]);
    command.args(["--bootstrap-token-dir", "token", "--cert", "tls.crt", "--key", "tls.key"]);
    command.args(["--secure-port", "0", "--insecure-port", &free.port().to_string()]);
    command.args(["--metrics-listen-address", "127.0.0.1:0"]).arg("--kubeconfig").arg(kubeconfig);
    command.env_remove("RELEASE_VERSION");
    let mut process = Process::start("server", &mut command, &folder.path("log")).unwrap();
    let listens = process.wait_ready(PATIENCE, || TcpStream::connect(free).is_ok());
    assert!(listens.is_ok(), "{listens:?}: {}", process.log());
    let served = get(free, &format!("/config/{pool}"));
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    let expected = "server%3A%20https%3A%2F%2Fapi.example.com%3A6443";
    assert!(served.contains(expected), "{served}");
    assert!(!process.log().contains("orbidden"), "{}", process.log());
    process.signal(Signal::TERM).unwrap();
    assert!(process.wait(PATIENCE).unwrap().success());
}

fn write_certificate(folder: &Folder) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    folder.write("tls.crt", made.cert.pem().as_bytes());
    folder.write("tls.key", made.signing_key.serialize_pem().as_bytes());
}

/// Starts a server on a free port for plain HTTP.
fn start(folder: &Folder) -> (Process, SocketAddr) {
    start_by(command(env!("CARGO_BIN_EXE_mco")), folder)
}

/// Starts a server by a command that gets its arguments.
fn start_by(mut command: Command, folder: &Folder) -> (Process, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    command.current_dir(folder.path("")).args(["server", "bootstrap", "--server-basedir", "out"]);
    command.args(["--bootstrap-kubeconfig", "kubeconfig", "--cert", "tls.crt", "--key", "tls.key"]);
    // As the help says: separated by a comma.
    command.args(["--bootstrap-certs", "one:5000=certs/one.crt,two=certs/two.crt"]);
    command.args(["--secure-port", "0", "--insecure-port", &free.port().to_string()]);
    command.args(["--metrics-listen-address", "127.0.0.1:0"]);
    let mut process = Process::start("server", &mut command, &folder.path("log")).unwrap();
    process.wait_ready(PATIENCE, || TcpStream::connect(free).is_ok()).unwrap();
    (process, free)
}

/// Returns the response to a request of an old client.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let accept = "accept: application/vnd.coreos.ignition+json;version=3.1.0";
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\n{accept}\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

// covers: S42, S43, S44
#[test]
fn the_files_of_a_bootstrap_are_served() {
    let folder = rendered();
    let (mut process, address) = start(&folder);
    let master = get(address, "/config/master");
    assert!(master.starts_with("HTTP/1.1 200"), "{master}");
    let (_, body) = master.split_once("\r\n\r\n").unwrap();
    let document: Value = serde_json::from_str(body).unwrap();
    let files = document["storage"]["files"].as_array().unwrap();
    let paths: Vec<&str> = files.iter().filter_map(|file| file["path"].as_str()).collect();
    for path in [
        "/etc/docker/certs.d/one:5000/ca.crt",
        "/etc/docker/certs.d/two/ca.crt",
        "/etc/kubernetes/kubeconfig",
        "/etc/kubernetes/kubelet-ca.crt",
    ] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
    let worker = get(address, "/config/worker");
    assert!(worker.starts_with("HTTP/1.1 503"), "{worker}");
    let metrics = get(metrics_address(&process), "/metrics");
    let expected = "mco_server_requests_total{pool=\"master\",code=\"200\",version=\"3.1.0\"} 1";
    assert!(metrics.contains(expected), "{metrics}");
    process.signal(Signal::TERM).unwrap();
    assert!(process.wait(PATIENCE).unwrap().success());
}

/// File descriptors of a server that has too few.
const DESCRIPTORS: &str = "--nofile=64:64";

/// Connections that need more than those.
const CROWD: usize = 150;

#[expect(clippy::disallowed_methods, reason = "the test measures the time of a response")]
#[tokio::test]
async fn a_machine_is_served_although_another_address_has_all_file_descriptors() {
    let folder = rendered();
    let mut limited = command("prlimit");
    limited.args([DESCRIPTORS, env!("CARGO_BIN_EXE_mco")]);
    let (process, address) = start_by(limited, &folder);
    let address = SocketAddr::new([127, 0, 0, 1].into(), address.port());
    let connect = async |last: u8| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(connect(2).await);
    }
    let start = Instant::now();
    let mut machine = connect(3).await;
    machine.write_all(b"GET /config/master HTTP/1.0\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let read = timeout(PATIENCE, machine.read_to_string(&mut answer)).await;
    read.expect("the machine is served").unwrap();
    assert!(answer.starts_with("HTTP/1."), "{answer}");
    // The server closes silent connections after ten seconds.
    let taken = start.elapsed();
    assert!(taken < Duration::from_secs(8), "{taken:?}: {}", process.log());
}

/// Returns the address of the metrics, which the process logs.
fn metrics_address(process: &Process) -> SocketAddr {
    let log = process.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = lines.filter(|line| line["message"] == "Serving metrics");
    found.next().unwrap()["address"].as_str().unwrap().parse().unwrap()
}
