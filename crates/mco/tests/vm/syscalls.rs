//! Power cuts on a file system that promises no more than it must, without a machine: the calls of
//! `mco host` are recorded, and every state that a cut after any call can leave is examined.

#![expect(clippy::disallowed_methods, reason = "writes the files of a machine that does not run")]

use std::{fs, path::Path};

use mco_testkit::{
    syscalls::{self, Model},
    vm::Tree,
};

use crate::{
    check::{Change, Position, stale},
    configs, done, setting,
};

/// States after each call; `make soak` examines more.
const STATES_PER_CALL: usize = 10;

// covers: C14
#[test]
fn every_change_is_synced_before_the_next_relies_on_it() {
    if !syscalls::is_available() {
        eprintln!("skipped: strace is not installed (make vm-tools installs it)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    };
    write("first.yaml", &configs::first());
    write("second.yaml", &configs::second_with(&[]));
    write("root/etc/motd", "welcome\n");
    write("root/etc/unmanaged", "unmanaged\n");
    write("root/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (first, second) = (path("first.yaml"), path("second.yaml"));
    for words in [
        vec!["apply", "--yes", "-f", &first],
        vec!["apply", "--yes", "-f", &second],
        vec!["rollback", "--yes"],
    ] {
        done(cut_after_every_call(&words, &root, folder.path()));
    }
}

fn cut_after_every_call(words: &[&str], root: &Path, folder: &Path) -> anyhow::Result<()> {
    let before = Tree::read(root)?;
    let place = root.display().to_string();
    let words = [&["host"], words, &["--root", &place]].concat();
    let program = Path::new(env!("CARGO_BIN_EXE_mco"));
    let calls = syscalls::record(program, &words, root, &folder.join("calls"), &[0])?;
    let change = Change { before, after: Tree::read(root)? };
    let mut model = Model::new(&change.before);
    let mut random = fastrand::Rng::with_seed(setting("MCO_VM_SEED", 1) as u64);
    let count = setting("MCO_VM_STATES_PER_CALL", STATES_PER_CALL);
    for (number, call) in calls.iter().enumerate() {
        model.execute(call)?;
        for state in (0..count).map(|_| model.cut(&mut random)).chain([model.worst_cut()]) {
            let faults = change.faults(&state);
            anyhow::ensure!(faults.is_empty(), "{words:?}, call {number} {call:?}: {faults:#?}");
        }
    }
    let live = model.live();
    let seen = stale(&live, &change.after);
    anyhow::ensure!(seen.is_empty(), "{words:?}: the model misses changes of {seen:?}");
    let worst = model.worst_cut();
    let stale = stale(&worst, &change.after);
    anyhow::ensure!(
        stale.is_empty() && change.position(&worst) == Position::After,
        "{words:?}: success was reported, but {stale:?} are not durable"
    );
    anyhow::ensure!(calls.len() > 50, "only {} calls", calls.len());
    eprintln!("{words:?}: {} calls", calls.len());
    Ok(())
}
