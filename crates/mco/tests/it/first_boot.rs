//! A first boot that fails: the machine reports it to the config server, and the administrator sees it.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use mco_ignition::data_url;

use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, Process, command, wait},
    pki::Authority,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{Folder, joining::Cluster};

/// Starts a config server with a certificate of `authority`; returns it and its URL.
fn start_server(cluster: &Cluster, folder: &Folder, authority: &Authority) -> (Process, String) {
    let pair = authority.server("config server", &["127.0.0.1".to_owned()]).unwrap();
    folder.write("tls.crt", pair.certificate.as_bytes());
    folder.write("tls.key", pair.key.as_bytes());
    folder.write("bootstrap/token", b"to.ken");
    folder.write("bootstrap/ca.crt", b"--ca--");
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.current_dir(folder.path(""));
    command.args(["server", "start", "--apiserver-url", "https://api.test:6443"]);
    command.args(["--bootstrap-token-dir", "bootstrap", "--cert", "tls.crt", "--key", "tls.key"]);
    command.args(["--secure-port", &free.port().to_string(), "--insecure-port", "0"]);
    command.args(["--metrics-listen-address", "127.0.0.1:0"]);
    command.arg("--kubeconfig").arg(cluster.api.kubeconfig());
    let mut process = Process::start("server", &mut command, &folder.path("server.log")).unwrap();
    let listens = process.wait_ready(PATIENCE, || TcpStream::connect(free).is_ok());
    assert!(listens.is_ok(), "{listens:?}: {}", process.log());
    (process, format!("https://{free}"))
}

/// Starts the program of the machine's first boot with these variables.
fn start_first_boot<'v>(
    folder: &Folder,
    root: &Path,
    variables: impl IntoIterator<Item = (&'v str, String)>,
) -> Process {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args(["daemon", "firstboot-complete-machineconfig", "--root-mount"]).arg(root);
    command.envs(variables);
    Process::start("first boot", &mut command, &folder.path("boot.log")).unwrap()
}

/// Returns the variables of a machine that does not know its pool.
fn without_pool(folder: &Folder, root: &Path, server: &str) -> [(&'static str, String); 3] {
    let path = |path: PathBuf| path.to_str().unwrap().to_owned();
    [
        ("MCO_REPORT_SERVER", server.to_owned()),
        ("MCO_REPORT_CA", path(folder.path("ca.crt"))),
        ("MCO_REPORT_TOKEN_FILE", path(root.join("etc/mco/join-token"))),
    ]
}

/// Waits until `mco status` shows a failed first boot; returns its output.
fn wait_for_failure(cluster: &Cluster, logs: impl Fn() -> String) -> String {
    let shown = wait("the failure in `mco status`", PATIENCE, || {
        let (_, out, _) = cluster.run(&["status"]);
        out.contains("first boot failed").then_some(out)
    });
    shown.map_err(|error| format!("{error}: {}", logs())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_first_boot_is_reported_and_shown() {
    let cluster = Cluster::start().await;
    cluster.annotate("machineconfiguration.openshift.io/join-tokens", "required").await;
    let token = cluster.ok(&["token", "create", "--pool", "infra", "--node", "w-9"]);
    let secret = token.trim().rsplit('.').next().unwrap().to_owned();
    let authority = Authority::new("config server CA").unwrap();
    let config = "etc/ignition-machine-config-encapsulated.json";
    let folder = Folder::new(&[
        ("ca.crt", authority.pair().certificate.as_bytes()),
        ("root/etc/mco/join-token", token.as_bytes()),
        ("root/etc/machine-id", b"0123456789abcdef0123456789abcdef"),
        ("root/proc/sys/kernel/hostname", b"w-9\n"),
        ("root/etc/ignition-machine-config-encapsulated.json", b"{\"metadata\": "),
    ]);
    let root = folder.path("root");
    let (server, url) = start_server(&cluster, &folder, &authority);

    let mut boot = start_first_boot(&folder, &root, without_pool(&folder, &root, &url));
    let shown = wait_for_failure(&cluster, || boot.log() + &server.log());
    // The pool is that of the token; the machine only claims one.
    for part in ["pool infra: first boot failed at", "Machine w-9", "step complete", config] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    for text in [&shown, &boot.log(), &server.log()] {
        assert!(!text.contains(&secret), "{text}");
    }
    boot.signal(Signal::TERM).unwrap();
    boot.wait(PATIENCE).unwrap();
    assert!(root.join("etc/mco/join-token").exists(), "the next attempt may fail, too");
}

#[test]
fn a_complete_installation_removes_the_token() {
    let folder = Folder::new(&[("root/etc/mco/join-token", b"a.b"), ("ca.crt", b"")]);
    let root = folder.path("root");
    let variables = without_pool(&folder, &root, "https://127.0.0.1:1");
    let mut boot = start_first_boot(&folder, &root, variables);
    let ended = boot.wait(PATIENCE).unwrap();
    assert!(ended.success(), "{}", boot.log());
    assert!(!root.join("etc/mco/join-token").exists());
}

/// Writes the files of an Ignition config, as Ignition does.
fn write_files(folder: &Folder, config: &str) {
    let config: Value = serde_json::from_str(config).unwrap();
    for file in config["storage"]["files"].as_array().unwrap() {
        let bytes = data_url::decode(file["contents"]["source"].as_str().unwrap()).unwrap();
        folder.write(&format!("root{}", file["path"].as_str().unwrap()), &bytes);
    }
}

/// Returns the variables of an environment file of systemd. Paths are those of the machine.
fn variables<'t>(text: &'t str, root: &Path) -> Vec<(&'t str, String)> {
    let pairs = text.lines().map(|line| line.split_once('=').unwrap());
    let machine = root.to_str().unwrap();
    let value = |value: &str| {
        let is_path = value.starts_with('/');
        if is_path { format!("{machine}{value}") } else { value.to_owned() }
    };
    pairs.map(|(name, text)| (name, value(text))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_of_a_pointer_config_reports_its_failed_first_boot() {
    let cluster = Cluster::start().await;
    cluster.annotate("machineconfiguration.openshift.io/join-tokens", "required").await;
    let authority = Authority::new("config server CA").unwrap();
    cluster.set_server_ca(&authority.pair().certificate).await;
    let folder = Folder::new(&[
        ("root/proc/sys/kernel/hostname", b"w-8\n"),
        ("root/etc/ignition-machine-config-encapsulated.json", b"{\"metadata\": "),
    ]);
    let root = folder.path("root");
    let (server, url) = start_server(&cluster, &folder, &authority);
    let token = cluster.ok(&["token", "create", "--pool", "infra", "--node", "w-8"]);
    let args = ["pointer", "--pool", "infra", "--node", "w-8", "--server", &url];
    write_files(&folder, &cluster.ok(&[&args[..], &["--token", token.trim()]].concat()));

    let environment = folder.read("root/etc/mco/first-boot.env");
    let mut boot = start_first_boot(&folder, &root, variables(&environment, &root));
    let shown = wait_for_failure(&cluster, || boot.log() + &server.log());
    for part in ["pool infra: first boot failed at", "Machine w-8", "step complete"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    boot.signal(Signal::TERM).unwrap();
    boot.wait(PATIENCE).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_join_is_reported_and_shown() {
    let cluster = Cluster::start().await;
    cluster.annotate("machineconfiguration.openshift.io/join-tokens", "required").await;
    // Only Ignition partitions disks, before the system boots.
    let disks = json!([{"device": "/dev/sdb", "wipeTable": true}]);
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"disks": disks}});
    cluster.set_config("infra", "rendered-infra-1", config).await;
    let token = cluster.ok(&["token", "create", "--pool", "infra", "--node", "w-7"]);
    let authority = Authority::new("config server CA").unwrap();
    let folder = Folder::new(&[
        ("ca.crt", authority.pair().certificate.as_bytes()),
        ("token", token.as_bytes()),
        ("root/run/systemd/system/a", b""),
        ("root/etc/machine-id", b"0123456789abcdef0123456789abcdef"),
        ("root/proc/sys/kernel/hostname", b"w-7\n"),
        ("root/proc/sys/kernel/random/uuid", b"7c1f6e0e-8b6b-4d52-9d0c-000000000007\n"),
    ]);
    let (server, url) = start_server(&cluster, &folder, &authority);
    let args = ["join", "--server", &url, "--pool", "infra", "--ca", "ca.crt"];
    let run = folder.mco(&[&args[..], &["--token-file", "token", "--root-mount", "root"]].concat());
    let run = run.output().unwrap();
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{text}{}", server.log());
    assert!(text.contains("a running system cannot apply storage.disks"), "{text}");
    assert!(text.contains("the failure was reported to the config server"), "{text}");

    let shown = wait_for_failure(&cluster, || text.clone() + &server.log());
    let reason = "a running system cannot apply storage.disks";
    for part in ["pool infra: first boot failed at", "Machine w-7", "step fetch", reason] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let events = cluster.events("FirstBootFailed").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains(reason), "{events:?}");
    let secret = token.trim().rsplit('.').next().unwrap();
    for text in [&shown, &text, &server.log(), &events[0]] {
        assert!(!text.contains(secret), "{text}");
    }
}
