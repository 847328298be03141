//! The command line of `mco daemon`, which is the reference's, and its errors at startup.

use std::{os::unix::fs::symlink, path::Path};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::PostParams};
use mco_api::annotation;
use mco_cluster::client;
use mco_testkit::api::{ApiServer as _, Embedded};
use serde_json::json;
use snapbox::cmd::Command;

use crate::{Folder, mco};

/// Returns the error of a run that must fail.
fn failure(args: &[&str]) -> String {
    let run = mco(args).env_remove("NODE_NAME").env_remove("KUBECONFIG");
    let run = run.env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    let text = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

// covers: C01
#[test]
fn the_version_is_printed() {
    let run = mco(&["daemon", "version"]).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.starts_with(&format!("MachineConfigDaemon {version}-")), "{text}");
    assert!(run.status.success() && text.ends_with('\n') && text.lines().count() == 1, "{text}");
}

// covers: C02
#[test]
fn flags_have_the_names_and_defaults_of_the_reference() {
    let run = mco(&["daemon", "start", "--help"]).output().unwrap();
    let help = String::from_utf8(run.stdout).unwrap();
    let flags = [
        ("--kubeconfig", ""),
        ("--node-name", "NODE_NAME"),
        ("--root-mount", "[default: /rootfs]"),
        ("--kubelet-healthz-enabled", "[default: true]"),
        ("--kubelet-healthz-endpoint", "[default: http://localhost:10248/healthz]"),
        ("--once-from", ""),
        ("--skip-reboot", ""),
        ("--metrics-listen-address", "[default: 127.0.0.1:8797]"),
    ];
    for (flag, default) in flags {
        let at = help.find(flag).unwrap_or_else(|| panic!("no {flag} in {help}"));
        let entry = help[at + 2..].split("\n      --").next().unwrap_or_default();
        assert!(entry.contains(default), "{flag}: {entry}");
    }
    assert!(help.contains("--metrics-url"), "the reference's name for that address: {help}");
    // Unknown suites are accepted, as in the reference.
    let tls = ["--tls-cipher-suites=TLS_A,TLS_B", "--tls-min-version=VersionTLS12"];
    let started = [&["daemon", "start"], &tls[..]].concat();
    assert!(failure(&started).contains("node-name is required"));
    let text = failure(&["daemon", "start", "--node-name", "a", "--desired-configmap=/a"]);
    assert!(text.contains("--desired-configmap is not supported"), "{text}");
}

// covers: C03
#[test]
fn the_node_name_is_required() {
    assert!(failure(&["daemon", "start"]).contains("error: node-name is required"));
    assert!(failure(&["daemon", "start", "--node-name", ""]).contains("node-name is required"));
    let text = failure(&["daemon", "start", "--node-name", "No Name"]);
    assert!(text.contains("No Name"), "{text}");
}

// covers: C07
#[test]
fn a_missing_kubeconfig_is_an_error() {
    let folder = Folder::new(&[("root/etc/kubernetes/kubeconfig", b"")]);
    let root = folder.path("root");
    let start = |rest: &[&str]| {
        let args = ["daemon", "start", "--node-name", "a", "--root-mount", root.to_str().unwrap()];
        failure(&[&args, rest].concat())
    };
    let text = start(&[]);
    let want = "error: no kubeconfig was given, and the process does not run in a pod with a service account";
    assert!(text.contains(want), "{text}");
    let text = start(&["--kubeconfig", "/there/is/none"]);
    assert!(text.contains("error: invalid kubeconfig /there/is/none"), "{text}");
}

// covers: C04, C128
#[test]
fn a_running_machine_is_not_simulated() {
    let kubeconfig = b"apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        contexts: [{name: a, context: {cluster: a, user: a}}]\n\
        clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        users: [{name: a, user: {token: t}}]\n";
    let folder = Folder::new(&[("root/proc/1/stat", b""), ("kubeconfig", kubeconfig)]);
    let (root, file) = (folder.path("root"), folder.path("kubeconfig"));
    let text = failure(&[
        "daemon",
        "start",
        "--node-name=a",
        "--metrics-url=127.0.0.1:0",
        "--log-format=text",
        "--root-mount",
        root.to_str().unwrap(),
        "--kubeconfig",
        file.to_str().unwrap(),
    ]);
    assert!(text.contains(&format!("Version: {} (", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains("is the root of a running machine"), "{text}");
}

#[tokio::test]
async fn a_node_is_told_to_abandon_its_update() {
    let folder = tempfile::tempdir().unwrap();
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    let client = client::connect(Some(api.kubeconfig())).await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    let node = json!({"metadata": {"name": "worker-0", "annotations": {"other": "kept"}}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let recover = |name: &str| {
        let kubeconfig = api.kubeconfig().to_str().unwrap();
        let run = mco(&["node", "recover", name, "--kubeconfig", kubeconfig]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.code(), text(run.stdout), text(run.stderr))
    };
    let (code, out, err) = recover("worker-0");
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(out, "node \"worker-0\" forgets its unfinished update\n");
    let annotations = nodes.get("worker-0").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations[annotation::RECOVER.name()], "abandon");
    assert_eq!(annotations["other"], "kept");
    let (code, out, err) = recover("worker-1");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("unknown node \"worker-1\"") && err.contains("worker-0"), "{err}");
}

#[test]
fn a_pivot_is_forced_by_the_command_of_older_releases() {
    let folder = Folder::new(&[("root/etc/passwd", b"")]);
    let program = folder.path("machine-config-daemon");
    symlink(env!("CARGO_BIN_EXE_mco"), &program).unwrap();
    let pivot = |image: &str| {
        let command = Command::new(&program).args(["pivot", image, "--root"]);
        let run = command.arg(folder.path("root")).output().unwrap();
        String::from_utf8(run.stderr).unwrap()
    };
    let text = pivot("quay.io/example/os@sha256:01");
    assert!(text.contains("cannot boot the image quay.io/example/os@sha256:01"), "{text}");
    assert!(pivot("not an image").contains("invalid image"));
}
