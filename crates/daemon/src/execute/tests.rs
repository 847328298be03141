//! What fails is named, and undone.

use std::path::Path;

use mco_core::plan::{self, Circumstances, default_policies};
use mco_host::{Root, SimulatedSystem};
use serde_json::{Value, json};

use super::*;

/// A folder in memory where there is one: the tests write much, and trust the disk to keep it.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn config(name: &str, ignition: &Value, rest: &Value) -> MachineConfig {
    let mut spec = rest.clone();
    spec["config"] = ignition.clone();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": spec
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

fn old() -> MachineConfig {
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["one"]}]},
        "storage": {"files": [
            {"path": "/etc/changed", "contents": {"source": "data:,1"}},
            {"path": "/etc/gone", "contents": {"source": "data:,1"}},
            {"path": "/etc/motd", "contents": {"source": "data:,ours"}},
            {"path": "/etc/same", "contents": {"source": "data:,1"}, "mode": 0o600}
        ]},
        "systemd": {"units": [
            {"name": "gone.service", "contents": "[Install]\nWantedBy=m.target", "enabled": true},
            {"name": "moved.service", "contents": "[Install]\nWantedBy=a.target", "enabled": true},
            {"name": "kubelet.service", "dropins": [{"name": "a.conf", "contents": "[Service]"}]}
        ]}
    });
    config("rendered-worker-old", &ignition, &json!({"kernelArguments": ["quiet"]}))
}

/// A machine that has the old config.
fn machine(folder: &Path) -> Host<SimulatedSystem> {
    let root = Root::open(folder).unwrap();
    SimulatedSystem::furnish(&root).unwrap();
    for path in ["/usr/etc/motd", "/etc/motd"] {
        root.write(path, b"welcome", 0o644).unwrap();
    }
    let system = SimulatedSystem::open(&root).unwrap();
    let mut host = Host { root, system };
    crate::first_boot::provision(&mut host, &old()).unwrap();
    host.system.boot().unwrap();
    host
}

fn planned(from: &MachineConfig, to: &MachineConfig) -> NodePlan {
    let (from, to) = (read(from).unwrap(), read(to).unwrap());
    plan::node(&from, &to, &default_policies(), &Circumstances::default()).unwrap()
}

#[test]
fn a_service_that_does_not_reload_is_named_as_the_reference_names_it() {
    let folder = folder();
    let mut host = machine(folder.path());
    host.system.journal().fail("reload crio.service");
    let mut to = old();
    let ignition = to.spec.config.as_ref().unwrap().get().replace(
        r#"{"contents":{"source":"data:,1"},"path":"/etc/gone"}"#,
        r#"{"contents":{"source":"data:,1"},"path":"/etc/gone"},{"path":"/etc/containers/policy.json"}"#,
    );
    to.spec.config = Some(mco_api::RawConfig::from_json(ignition).unwrap());
    let plan = planned(&old(), &to);
    assert!(!plan.reboots(), "{plan}");
    let failed = begin(&mut host, &old(), &to, plan.clone(), &mut |_| {}).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "could not apply update: reloading crio.service configuration failed. \
         Error: error running systemctl reload crio.service: exit status 1"
    );
    assert!(!folder.path().join("etc/containers/policy.json").exists());
    host.system.journal().mend("reload crio.service");
    let done = begin(&mut host, &old(), &to, plan, &mut |_| {}).unwrap();
    assert_eq!(done, Outcome::Applied);
    assert!(folder.path().join("etc/containers/policy.json").exists());
}

// covers: C77
#[test]
fn the_kubelets_credentials_are_for_the_superuser_only() {
    let folder = folder();
    let mut host = machine(folder.path());
    host.root.write(KUBECONFIG, b"secret", 0o644).unwrap();
    let mut new = old();
    new.metadata.name = Some("rendered-worker-new".to_owned());
    begin(&mut host, &old(), &new, planned(&old(), &new), &mut |_| {}).unwrap();
    assert_eq!(host.root.stat(KUBECONFIG).unwrap().unwrap().mode & 0o7777, 0o600);
}

// covers: C90
#[test]
fn a_machine_that_cannot_reboot_says_so() {
    let folder = folder();
    let mut host = machine(folder.path());
    host.system.journal().fail("reboot");
    let error = reboot(&mut host, "rendered-worker-new").unwrap_err();
    assert_eq!(error.to_string(), "reboot command failed, something is seriously wrong");
}
