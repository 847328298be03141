//! `mco daemon`: the reference's command line, and what is said where it cannot start.

use crate::{Folder, mco};

/// The text of a run that must fail.
fn fault(args: &[&str]) -> String {
    let run = mco(args).env_remove("NODE_NAME").env_remove("KUBECONFIG");
    let run = run.env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    let text = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

// covers: C01
#[test]
fn it_says_which_version_it_is() {
    let run = mco(&["daemon", "version"]).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.starts_with(&format!("MachineConfigDaemon {version}-")), "{text}");
    assert!(run.status.success() && text.ends_with('\n') && text.lines().count() == 1, "{text}");
}

// covers: C02
#[test]
fn its_flags_have_the_reference_s_names_and_defaults() {
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
    // Taken, and without effect there, too.
    let tls = ["--tls-cipher-suites=TLS_A,TLS_B", "--tls-min-version=VersionTLS12"];
    let started = [&["daemon", "start"], &tls[..]].concat();
    assert!(fault(&started).contains("node-name is required"));
    let text = fault(&["daemon", "start", "--node-name", "a", "--desired-configmap=/a"]);
    assert!(text.contains("--desired-configmap is not for this daemon"), "{text}");
}

// covers: C03
#[test]
fn it_must_know_which_node_it_is() {
    assert!(fault(&["daemon", "start"]).contains("error: node-name is required"));
    assert!(fault(&["daemon", "start", "--node-name", ""]).contains("node-name is required"));
    let text = fault(&["daemon", "start", "--node-name", "No Name"]);
    assert!(text.contains("No Name"), "{text}");
}

// covers: C07
#[test]
fn without_a_way_to_the_api_server_it_ends_with_one_clear_error() {
    let folder = Folder::new(&[("root/etc/kubernetes/kubeconfig", b"")]);
    let root = folder.path("root");
    let start = |rest: &[&str]| {
        let args = ["daemon", "start", "--node-name", "a", "--root-mount", root.to_str().unwrap()];
        fault(&[&args, rest].concat())
    };
    let text = start(&[]);
    let want = "error: no kubeconfig was given and this is not a pod of a cluster";
    assert!(text.contains(want), "{text}");
    let text = start(&["--kubeconfig", "/there/is/none"]);
    assert!(text.contains("error: cannot use kubeconfig /there/is/none"), "{text}");
}

// covers: C04, C128
#[test]
fn a_running_machine_is_not_taken_for_a_simulated_one_and_the_version_is_logged_first() {
    let kubeconfig = b"apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        contexts: [{name: a, context: {cluster: a, user: a}}]\n\
        clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        users: [{name: a, user: {token: t}}]\n";
    let folder = Folder::new(&[("root/proc/1/stat", b""), ("kubeconfig", kubeconfig)]);
    let (root, file) = (folder.path("root"), folder.path("kubeconfig"));
    let text = fault(&[
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
