//! Whatever step a daemon dies after, the next one ends up with the same tree.

#![expect(clippy::disallowed_methods, reason = "the tests look at the tree from outside")]

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use mco_host::{Root, SimulatedSystem};
use serde_json::{Value, json};

use super::*;
use crate::{ledger::Resume, verify};

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

fn new() -> MachineConfig {
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["two"]}]},
        "storage": {"files": [
            {"path": "/etc/changed", "contents": {"source": "data:,2"}, "mode": 0o640},
            {"path": "/etc/deep/new", "contents": {"source": "data:,1"}},
            {"path": "/etc/same", "contents": {"source": "data:,1"}, "mode": 0o600}
        ]},
        "systemd": {"units": [
            {"name": "new.service", "contents": "[Install]\nWantedBy=m.target", "enabled": true},
            {"name": "moved.service", "contents": "[Install]\nWantedBy=b.target", "enabled": true},
            {"name": "crio.service", "mask": true},
            {"name": "kubelet.service", "enabled": true, "dropins": [{"name": "b.conf", "contents": "[Unit]"}]}
        ]}
    });
    let rest = json!({"kernelArguments": ["nosmt"], "osImageURL": "image-2"});
    config("rendered-worker-new", &ignition, &rest)
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

/// Everything in the tree, without what differs from run to run.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            let stat = fs::symlink_metadata(&path).unwrap();
            let mode = stat.permissions().mode();
            if stat.is_dir() {
                pending.push(path);
            } else if stat.is_symlink() {
                found.insert(name, format!("-> {}", fs::read_link(&path).unwrap().display()));
            } else if !name.starts_with("var/lib/mco-simulated") {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(name, format!("{mode:o} {text}"));
            }
        }
    }
    found
}

/// Dies after so many steps.
fn dies_after(steps: usize) -> impl FnMut(&Step) -> Result<(), ExecuteError> {
    let mut taken = 0;
    move |_| {
        taken += 1;
        if taken >= steps { Err(ExecuteError::Halted(taken)) } else { Ok(()) }
    }
}

/// What a new daemon does with what an old one left, until nothing is left to do.
fn recover(folder: &Path) -> Host<SimulatedSystem> {
    let root = Root::open(folder).unwrap();
    let system = SimulatedSystem::open(&root).unwrap();
    let mut host = Host { root, system };
    while let Some((update, progress)) = ledger::open(&host.root).unwrap() {
        let booted = host.system.facts().unwrap().boot_id;
        match ledger::resume(&progress, &update.boot_id, &booted) {
            Resume::Continue(done) => drop(proceed(&mut host, &update, done, &mut |_| Ok(()))),
            Resume::Undo(_) => drop(undo(&mut host, &update, &progress, &mut |_| Ok(()))),
            Resume::Reboot => {
                reboot(&mut host, "x").unwrap();
                host.system.boot().unwrap();
            }
            Resume::Verify => ledger::close(&host.root).unwrap(),
        }
    }
    host
}

// covers: C134, C92, C64, C72, C73
#[test]
fn whatever_step_it_dies_after_the_node_converges() {
    let folder = folder();
    let mut host = machine(folder.path());
    let plan = planned(&old(), &new());
    let steps = plan.steps.len();
    let outcome = begin(&mut host, &old(), &new(), plan, &mut |_| Ok(())).unwrap();
    assert_eq!(outcome, Outcome::RebootDue);
    let host = recover(folder.path());
    let whole = verify::whole(&host, &read(&new()).unwrap()).unwrap();
    assert_eq!(whole, None);
    let want = tree(folder.path());
    assert_eq!(want.get("etc/motd").map(String::as_str), Some("100644 welcome"));
    assert!(!want.contains_key("etc/gone"), "{want:#?}");
    assert!(!want.keys().any(|path| path.contains("a.target")), "{want:#?}");

    for dies in 1..=steps {
        let folder = self::folder();
        let mut host = machine(folder.path());
        let plan = planned(&old(), &new());
        let died = begin(&mut host, &old(), &new(), plan, &mut dies_after(dies));
        assert!(matches!(died, Err(ExecuteError::Halted(_))), "step {dies}: {died:?}");
        drop(host);
        recover(folder.path());
        similar_asserts::assert_eq!(tree(folder.path()), want, "died after step {}", dies);
    }
}

// covers: C91
#[test]
fn a_failed_step_leaves_no_trace_whatever_step_it_dies_after() {
    let folder = folder();
    drop(machine(folder.path()));
    let want = tree(folder.path());
    let attempt = |folder: &Path, witness: Witness<'_>| {
        let mut host = machine(folder);
        host.system.journal().fail("stage-os image-2");
        begin(&mut host, &old(), &new(), planned(&old(), &new()), witness)
    };
    let failed = attempt(folder.path(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(failed.to_string(), "error running systemctl stage-os image-2: exit status 1");
    similar_asserts::assert_eq!(tree(folder.path()), want);

    for dies in 1.. {
        let folder = self::folder();
        let died = attempt(folder.path(), &mut dies_after(dies));
        if matches!(died, Err(ExecuteError::Undone(_))) {
            assert!(dies > 20, "both ways were tried: {dies}");
            break;
        }
        let host = recover(folder.path());
        let current = disk::current_config(&host.root).unwrap().unwrap();
        let config = if current == old() { old() } else { new() };
        let found = verify::whole(&host, &read(&config).unwrap()).unwrap();
        assert_eq!(found, None, "died after step {dies}");
    }
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
    let failed = begin(&mut host, &old(), &to, plan.clone(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "could not apply update: reloading crio.service configuration failed. \
         Error: error running systemctl reload crio.service: exit status 1"
    );
    assert!(!folder.path().join("etc/containers/policy.json").exists());
    host.system.journal().mend("reload crio.service");
    let done = begin(&mut host, &old(), &to, plan, &mut |_| Ok(())).unwrap();
    assert_eq!(done, Outcome::Applied);
    assert!(folder.path().join("etc/containers/policy.json").exists());
}
