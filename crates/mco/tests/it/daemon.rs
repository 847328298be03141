//! The command line of `mco daemon`, which is the reference's, and its errors at startup.

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
    // Accepted without effect, as in the reference.
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
