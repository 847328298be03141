//! Settings objects with every offline command: check, render, cat, why and plan.

use snapbox::str;

use crate::{Folder, config, mco};

const MAX_PODS: &str = "examples/settings/kubelet-max-pods.yaml";

const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
  labels: {pools.operator.machineconfiguration.openshift.io/worker: ''}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ''}}
";

const NODE: &str = "apiVersion: v1
kind: Node
metadata:
  name: n0
  labels: {node-role.kubernetes.io/worker: ''}
status:
  nodeInfo: {containerRuntimeVersion: 'containerd://1.7.0'}
  conditions: [{type: Ready, status: 'True'}]
";

fn folder(change: &str) -> Folder {
    let now = format!(
        "{POOL}---\n{}\n---\n{NODE}",
        config("50-a", "config: {ignition: {version: 3.2.0}}")
    );
    Folder::new(&[("now.yaml", now.as_bytes()), ("change.yaml", change.as_bytes())])
}

fn plan(change: &str) -> String {
    let folder = folder(change);
    let output = folder.mco(&["plan", "-f", "now.yaml", "-f", "change.yaml"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_examples_of_settings_have_no_errors() {
    mco(&["check", "-f", "examples/settings"]).assert().success();
}

#[test]
fn a_kubelet_config_is_rendered_offline() {
    mco(&[
        "cat",
        "-f",
        MAX_PODS,
        "--pool",
        "worker",
        "/etc/kubernetes/kubelet.conf.d/99-worker.conf",
    ])
    .assert()
    .success();
}

#[test]
fn a_refused_value_is_reported_with_its_place() {
    let bad = "apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: bad}
spec:
  machineConfigPoolSelector:
    matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ''}
  kubeletConfig:
    maxPods: -1
";
    let folder = Folder::new(&[("a.yaml", bad.as_bytes())]);
    folder.mco(&["check", "-f", "a.yaml"]).assert().code(1).stdout_eq(str![]);
}

#[test]
fn a_plan_shows_what_a_kubelet_config_does_to_nodes() {
    let text = plan(&std::fs::read_to_string(crate::workspace().join(MAX_PODS)).unwrap());
    assert_eq!(text, "");
}

// covers: REG-1
#[test]
fn a_plan_shows_that_mirrors_need_no_reboot() {
    let mirrors = crate::workspace().join("examples/settings/mirrors.yaml");
    let text = plan(&std::fs::read_to_string(mirrors).unwrap());
    assert_eq!(text, "");
}
