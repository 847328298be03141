//! Settings objects with every offline command: check, render, cat, why and plan.

use snapbox::str;

use crate::{Folder, config, mco};

const MAX_PODS: &str = "examples/settings/kubelet-max-pods.yaml";

const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
  labels:
    machineconfiguration.openshift.io/mco-built-in: ''
    pools.operator.machineconfiguration.openshift.io/worker: ''
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
    let path = "/etc/kubernetes/kubelet.conf.d/99-mco-0.conf";
    mco(&["cat", "-f", MAX_PODS, path]).assert().success().stdout_eq(str![[r#"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 110
systemReserved:
  memory: 2Gi

"#]]);
    mco(&["why", "-f", MAX_PODS, path]).assert().success().stdout_eq(str![[r#"
path /etc/kubernetes/kubelet.conf.d/99-mco-0.conf in pool worker:
  wins        99-worker-generated-kubelet  sets overwrite, contents, mode  [examples/settings/kubelet-max-pods.yaml:6:1]

"#]]);
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
    folder.mco(&["check", "-f", "a.yaml"]).assert().code(1).stdout_eq(str![[r#"
a.yaml:7:3: error: KubeletConfiguration: maxPods is -1, and must be 1 or more [SettingsRefused]
  in KubeletConfig/bad, spec.kubeletConfig

"#]]);
}

#[test]
fn a_plan_shows_what_a_kubelet_config_does_to_nodes() {
    let text = plan(include_str!("../../../../examples/settings/kubelet-max-pods.yaml"));
    let lines = [
        "file /etc/kubernetes/kubelet.conf.d/99-mco-0.conf added                   reboot",
        "each node: drain (reboot), reboot",
        "1. n0",
    ];
    for line in lines {
        assert!(text.contains(line), "{line}: {text}");
    }
}

// covers: REG-1
#[test]
fn a_plan_shows_that_mirrors_need_no_reboot() {
    let text = plan(include_str!("../../../../examples/settings/mirrors.yaml"));
    let lines = [
        "file /etc/containerd/certs.d/registry.example/hosts.toml added   nothing",
        "containerd reads it for every pull",
        "each node: no drain (no action asks for it), nothing else",
    ];
    for line in lines {
        assert!(text.contains(line), "{line}: {text}");
    }
}
