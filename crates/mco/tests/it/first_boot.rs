//! A first boot that fails: the machine reports it to the config server, and the administrator sees it.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
};

use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, Process, command, wait},
    pki::Authority,
};
use rustix::process::Signal;

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

/// Starts the program of the machine's first boot, which does not know its pool.
fn start_first_boot(folder: &Folder, root: &Path, server: &str) -> Process {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args(["daemon", "firstboot-complete-machineconfig", "--root-mount"]).arg(root);
    command.env("MCO_REPORT_SERVER", server).env("MCO_REPORT_CA", folder.path("ca.crt"));
    command.env("MCO_REPORT_TOKEN_FILE", root.join("etc/mco/join-token"));
    Process::start("first boot", &mut command, &folder.path("boot.log")).unwrap()
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

    let mut boot = start_first_boot(&folder, &root, &url);
    let shown = wait("the failure in `mco status`", PATIENCE, || {
        let (_, out, _) = cluster.run(&["status"]);
        out.contains("first boot failed").then_some(out)
    });
    let shown = shown.map_err(|error| format!("{error}: {}{}", boot.log(), server.log())).unwrap();
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
    let mut boot = start_first_boot(&folder, &root, "https://127.0.0.1:1");
    let ended = boot.wait(PATIENCE).unwrap();
    assert!(ended.success(), "{}", boot.log());
    assert!(!root.join("etc/mco/join-token").exists());
}
