//! Power cuts on a file system that promises no more than it must, without a machine: the calls of
//! `mco host` are recorded, and every state that a cut after any call can leave is examined.

#![expect(clippy::disallowed_methods, reason = "writes the files of a machine that does not run")]

use std::{fs, path::Path};

use serde_json::{Value, json};

use mco_testkit::{
    syscalls::{self, Call, Model},
    vm::Tree,
};

use crate::{
    check::{Change, Position, differing, direction},
    configs, done, setting,
};

/// States after each call; `make soak` examines more.
const STATES_PER_CALL: usize = 10;

/// The file that has the progress of a change.
const PROGRESS: &str = "/var/lib/machine-config-daemon/mco-update-progress.json";

/// A change of a machine, and the calls that make it.
struct RecordedChange {
    name: String,
    change: Change,
    calls: Vec<Call>,
}

// covers: C14
#[test]
fn every_change_is_synced_before_the_next_relies_on_it() {
    let Some(recorded) = record_all() else { return };
    let count = setting("MCO_VM_STATES_PER_CALL", STATES_PER_CALL);
    for it in &recorded {
        done(it.examine(count, |_| true));
        let live = done(it.execute_all()).live();
        let missed = differing(&live, &it.change.after);
        assert!(missed.is_empty(), "{}: the model misses changes of {missed:?}", it.name);
    }
}

/// Without this, the test above would not show that the rules notice a missing sync.
#[test]
fn a_missing_sync_is_noticed() {
    let Some(recorded) = record_all() else { return };
    for it in &recorded {
        for kind in ["files before their rename", "directories", "the directory of records"] {
            let is_kind = |path: &str| match kind {
                "files before their rename" => path.ends_with(".mco-new"),
                "directories" => !path.ends_with(".mco-new") && path != PROGRESS,
                _ => path == "/var/lib/machine-config-daemon",
            };
            let kept = |call: &Call| !matches!(call, Call::Sync(path) if is_kind(path));
            assert!(it.examine(2, kept).is_err(), "{}: no sync of {kind} is needed", it.name);
        }
    }
}

/// Records a first install, an apply and a rollback of a machine that does not run.
fn record_all() -> Option<Vec<RecordedChange>> {
    if !syscalls::is_available() {
        eprintln!("skipped: strace is not installed (make vm-tools installs it)");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    };
    write("first.yaml", &configs::first());
    write("second.yaml", &with_key(&configs::second_with(&[])));
    write("root/etc/motd", "welcome\n");
    // A file of a package: its original is kept.
    write("root/var/lib/dpkg/info/motd.list", "/.\n/etc\n/etc/motd\n");
    write("root/etc/unmanaged", "unmanaged\n");
    write("root/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:0:0::/home/core:/bin/sh\n");
    write("root/home/core/.profile", "\n");
    // Every apply takes it from other users: a change of its mode alone.
    write("root/etc/kubernetes/kubeconfig", "kind: Config\n");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (first, second) = (path("first.yaml"), path("second.yaml"));
    let changes = [
        ("install", vec!["apply", "--yes", "-f", &first]),
        ("apply", vec!["apply", "--yes", "-f", &second]),
        ("rollback", vec!["rollback", "--yes"]),
    ];
    let record = |(name, words): (&str, Vec<&str>)| done(record(name, &words, &root));
    Some(changes.map(record).into())
}

/// Adds an SSH key to a config: the directories above it get their mode after they were created.
fn with_key(config: &str) -> String {
    let mut config: Value = serde_json::from_str(config).expect("the config is JSON");
    let ignition = config.pointer_mut("/spec/config").and_then(Value::as_object_mut);
    ignition.expect("the config has an Ignition config").insert(
        "passwd".to_owned(),
        json!({ "users": [{ "name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA test"] }] }),
    );
    config.to_string()
}

fn record(name: &str, words: &[&str], root: &Path) -> anyhow::Result<RecordedChange> {
    let before = Tree::read(root)?;
    let place = root.display().to_string();
    let words = [&["host"], words, &["--root", &place]].concat();
    let program = Path::new(env!("CARGO_BIN_EXE_mco"));
    let calls = syscalls::record(program, &words, root, &root.with_file_name("calls"), &[0])?;
    let original = "/etc/machine-config-daemon/orig/etc/motd.mcdorig";
    let keeps = |tree: &Tree| tree.entries.contains_key(original);
    let after = Tree::read(root)?;
    anyhow::ensure!(keeps(&before) || keeps(&after), "{name}: no original is kept");
    anyhow::ensure!(calls.len() > 50, "{name}: only {} calls", calls.len());
    let change = Change { before, after, direction: direction(name) };
    Ok(RecordedChange { name: name.to_owned(), change, calls })
}

impl RecordedChange {
    /// Examines states after each call. Calls for which `kept` returns false are not executed.
    fn examine(&self, count: usize, kept: impl Fn(&Call) -> bool) -> anyhow::Result<()> {
        let (name, change) = (&self.name, &self.change);
        let mut model = Model::new(&change.before);
        let mut random = fastrand::Rng::with_seed(setting("MCO_VM_SEED", 1) as u64);
        for (number, call) in self.calls.iter().enumerate() {
            if !kept(call) {
                continue;
            }
            model.execute(call)?;
            for state in (0..count).map(|_| model.cut(&mut random)).chain([model.worst_cut()]) {
                let faults = change.faults(&state);
                anyhow::ensure!(faults.is_empty(), "{name}, call {number} {call:?}: {faults:#?}");
            }
        }
        let end = model.worst_cut();
        anyhow::ensure!(
            change.position(&end) == Position::After,
            "{name}: success was reported, but {:?} are not durable",
            differing(&end, &change.after)
        );
        Ok(())
    }

    fn execute_all(&self) -> anyhow::Result<Model> {
        let mut model = Model::new(&self.change.before);
        self.calls.iter().try_for_each(|call| model.execute(call))?;
        Ok(model)
    }
}
