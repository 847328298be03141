//! Wherever a daemon crashes, the next one ends up with the new config or the old one and nothing
//! else.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc};

use mco_api::MachineConfig;
use mco_apply::{
    ParsedConfig, disk,
    execute::{self, ExecuteError, Outcome},
    first_boot,
    ledger::{self, Resume},
    verify,
};
use mco_core::{
    machine::Machine,
    plan::{self, Circumstances, NodePlan, default_policies},
};
use mco_host::{
    Host, Root, SimulatedSystem, System as _,
    fault::{Fault, Faults},
};
use serde_json::{Value, json};

type Simulated = Host<SimulatedSystem>;

/// Returns a directory in memory if there is one: the tests write much and need no durability.
pub(crate) fn folder() -> tempfile::TempDir {
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

pub(crate) fn old() -> MachineConfig {
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["one"], "passwordHash": "$1$a"}]},
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

pub(crate) fn new() -> MachineConfig {
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["two"], "passwordHash": "$1$b"}]},
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

/// Creates a machine that has the old config, and files of the administrator where the new one
/// writes.
pub(crate) fn create_machine(folder: &Path) {
    let root = Root::open(folder).unwrap();
    SimulatedSystem::write_base_files(&root).unwrap();
    for path in ["/usr/etc/motd", "/etc/motd"] {
        root.write(path, b"welcome", 0o644).unwrap();
    }
    let mut host = open(Root::open(folder).unwrap());
    first_boot::provision(&mut host, &old()).unwrap();
    host.system.boot().unwrap();
    root.write("/etc/admin", b"by hand", 0o604).unwrap();
}

pub(crate) fn open(root: Root) -> Simulated {
    let system = SimulatedSystem::open(&root).unwrap();
    Host { root, system }
}

fn planned(from: &MachineConfig, to: &MachineConfig) -> NodePlan {
    let (from, to) = (read(from), read(to));
    plan::node(&from, &to, &default_policies(), &Circumstances::default()).unwrap()
}

fn read(config: &MachineConfig) -> Machine {
    Machine::read(config).unwrap()
}

pub(crate) fn begin(host: &mut Simulated) -> Result<Outcome, ExecuteError> {
    let parsed = |config: MachineConfig| ParsedConfig::read(config).unwrap();
    execute::begin(host, &parsed(old()), &parsed(new()), planned(&old(), &new()), &mut |_| {})
}

/// Does what a new daemon does with the ledger of an old one, until nothing is left to do.
pub(crate) fn recover(folder: &Path) -> Simulated {
    let mut host = open(Root::open(folder).unwrap());
    for tries in 0.. {
        let Some((update, progress)) = ledger::open(&host.root).unwrap() else { break };
        assert!(tries < 10, "recovery does not end: {progress:?}");
        let booted = host.system.facts().unwrap().boot_id;
        match ledger::resume(&progress, &update.boot_id, &booted) {
            Resume::Continue(_) => {
                drop(execute::proceed(&mut host, &update, &progress, &mut |_| {}));
            }
            Resume::Undo => drop(execute::roll_back_failed(&mut host, &update, &progress)),
            Resume::Reboot => {
                execute::reboot(&mut host, "x").unwrap();
                host.system.boot().unwrap();
            }
            Resume::Verify => ledger::close(&host.root).unwrap(),
        }
    }
    host
}

/// Returns everything in the tree, without what differs from run to run: kind, mode, owner and
/// contents.
pub(crate) fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            let stat = fs::symlink_metadata(&path).unwrap();
            // The record of the last update has the boot in which it began, and its pack.
            let is_record = name.contains("mco-before") || name.ends_with("mco-last-update.json");
            if is_record {
                continue;
            }
            let what = if stat.is_dir() {
                pending.push(path);
                String::new()
            } else if stat.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if name.starts_with("var/lib/mco-simulated") {
                continue;
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let (mode, user, group) = (stat.mode(), stat.uid(), stat.gid());
            found.insert(name, format!("{mode:o} {user}:{group} {what}"));
        }
    }
    found
}

/// Returns the booted and staged deployments of the machine.
pub(crate) fn system(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("var/lib/mco-simulated/state.json")).unwrap();
    let mut state: Value = serde_json::from_str(&text).unwrap();
    state["bootId"] = Value::Null;
    state
}

/// The trees before and after, and the number of changes to the disk in between.
pub(crate) struct Ways {
    pub(crate) old: BTreeMap<String, String>,
    pub(crate) new: BTreeMap<String, String>,
    pub(crate) old_system: Value,
    new_system: Value,
    points: usize,
}

pub(crate) fn ways() -> Ways {
    let folder = folder();
    create_machine(folder.path());
    let (old, old_system) = (tree(folder.path()), system(folder.path()));
    let faults = Arc::new(Faults::none());
    let mut host = open(faulty(folder.path(), &faults));
    assert_eq!(begin(&mut host).unwrap(), Outcome::RebootDue);
    let points = faults.points();
    let host = recover(folder.path());
    assert_eq!(verify::whole(&host, &read(&new())).unwrap(), None);
    let new = tree(folder.path());
    Ways { old, new, old_system, new_system: system(folder.path()), points }
}

pub(crate) fn faulty(folder: &Path, faults: &Arc<Faults>) -> Root {
    Root::open(folder).unwrap().with_faults(Arc::clone(faults))
}

// covers: C134, C92, C64, C72, C73
#[test]
fn a_crash_at_any_change_ends_with_the_new_config() {
    let ways = ways();
    assert!(ways.points > 100, "every change to the disk is a point: {}", ways.points);
    assert!(ways.new["etc/motd"].ends_with("welcome"), "{:#?}", ways.new);
    assert!(!ways.new.contains_key("etc/gone"), "{:#?}", ways.new);
    let mut began = 0;
    for number in 1..=ways.points {
        let folder = folder();
        create_machine(folder.path());
        let faults = Arc::new(Faults::at(number, Fault::Crash));
        let mut host = open(faulty(folder.path(), &faults));
        let died = begin(&mut host);
        let at = faults.failed().unwrap_or_default();
        assert!(died.is_err() || number == ways.points, "{number} {at}: {died:?}");
        drop(host);
        let has_begun = ledger::open(&Root::open(folder.path()).unwrap()).unwrap().is_some();
        began += usize::from(has_begun);
        recover(folder.path());
        // Before the ledger only the ledger's own files are written.
        let (want, want_system) =
            if has_begun { (&ways.new, &ways.new_system) } else { (&ways.old, &ways.old_system) };
        let found = tidied(tree(folder.path()), has_begun);
        similar_asserts::assert_eq!(
            found,
            tidied(want.clone(), has_begun),
            "crashed at {} {}",
            number,
            at
        );
        assert_eq!(system(folder.path()), *want_system, "crashed at {number} {at}");

        let mut host = open(Root::open(folder.path()).unwrap());
        if !has_begun {
            begin(&mut host).unwrap();
        }
        drop(host);
        recover(folder.path());
        similar_asserts::assert_eq!(tree(folder.path()), ways.new, "again after {} {}", number, at);
    }
    assert!(began > 80, "most of it is after the ledger: {began}");
}

/// A crash before the ledger may leave an empty directory for packs and a temporary file in it; the
/// next update reuses both.
pub(crate) fn tidied(
    mut tree: BTreeMap<String, String>,
    has_begun: bool,
) -> BTreeMap<String, String> {
    if !has_begun {
        tree.retain(|name, _| {
            !name.contains("mco-before") && !name.contains(".mco-update.json.mco-new")
        });
    }
    tree
}

// covers: C91
#[test]
fn a_crash_at_any_change_of_a_rollback_ends_with_the_old_config() {
    let ways = ways();
    let attempt = |folder: &Path, faults: &Arc<Faults>| {
        create_machine(folder);
        let mut host = open(faulty(folder, faults));
        host.system.call_log().fail("stage-os image-2");
        begin(&mut host)
    };
    let folder = folder();
    let faults = Arc::new(Faults::none());
    let failed = attempt(folder.path(), &faults).unwrap_err();
    assert_eq!(failed.to_string(), "error running systemctl stage-os image-2: exit status 1");
    similar_asserts::assert_eq!(tree(folder.path()), ways.old);
    assert_eq!(system(folder.path()), ways.old_system);

    let mut back = 0;
    for number in 1..=faults.points() {
        let folder = self::folder();
        let faults = Arc::new(Faults::at(number, Fault::Crash));
        let died = attempt(folder.path(), &faults).unwrap_err();
        let at = format!("{number} {}: {died}", faults.failed().unwrap_or_default());
        let host = recover(folder.path());
        let current = disk::current_config(&host.root).unwrap().unwrap();
        // Crashed before the fault was recorded: the next daemon resumes the update, which
        // succeeds.
        let is_new = current != old();
        let want = if is_new { &ways.new } else { &ways.old };
        back += usize::from(!is_new);
        let found = tidied(tree(folder.path()), is_new);
        similar_asserts::assert_eq!(found, tidied(want.clone(), is_new), "died at {}", at);
    }
    assert!(back > 50, "the rollback was crashed: {back}");
}

// covers: C91
#[test]
fn a_disk_error_at_any_change_leaves_the_old_config_or_the_new() {
    let ways = ways();
    for number in 1..=ways.points {
        let folder = folder();
        create_machine(folder.path());
        let faults = Arc::new(Faults::at(number, Fault::Once(rustix::io::Errno::IO)));
        let mut host = open(faulty(folder.path(), &faults));
        let done = begin(&mut host);
        drop(host);
        let host = recover(folder.path());
        let current = disk::current_config(&host.root).unwrap().unwrap();
        let is_new = current != old();
        let want = if is_new { &ways.new } else { &ways.old };
        let found = tidied(tree(folder.path()), is_new);
        let at = format!("{number} {} {done:?}", faults.failed().unwrap_or_default());
        similar_asserts::assert_eq!(found, tidied(want.clone(), is_new), "{}", at);
    }
}

// covers: C134
#[test]
fn a_completed_update_can_be_rolled_back() {
    let ways = ways();
    let folder = folder();
    create_machine(folder.path());
    let mut host = open(Root::open(folder.path()).unwrap());
    begin(&mut host).unwrap();
    drop(host);
    let mut host = recover(folder.path());
    assert!(ledger::reopen(&host.root).unwrap());
    let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
    let staged = execute::roll_back(&mut host, &update, &progress).unwrap();
    assert_eq!(staged, mco_host::Restored::NeedsReboot, "another image runs by now");
    host.system.boot().unwrap();
    drop(host);
    let host = recover(folder.path());
    similar_asserts::assert_eq!(tree(folder.path()), ways.old);
    assert_eq!(system(folder.path()), ways.old_system);
    assert!(!ledger::reopen(&host.root).unwrap(), "once only");
}

// covers: C136
#[test]
fn a_file_that_is_up_to_date_is_not_written_again() {
    let folder = folder();
    create_machine(folder.path());
    let inode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().ino();
    let before = inode("etc/same");
    let mut host = open(Root::open(folder.path()).unwrap());
    // Another process wrote it first.
    host.root.write("/etc/deep/new", b"1", 0o644).unwrap();
    let there = inode("etc/deep/new");
    begin(&mut host).unwrap();
    assert_eq!((inode("etc/same"), inode("etc/deep/new")), (before, there));
}
