//! The machine with a kernel of its own: it is saved and restored, and leaves nothing behind.

#![expect(clippy::disallowed_methods, reason = "starts a process, and reads the host's processes")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use mco_testkit::{
    PATIENCE,
    api::{command, wait},
    vm::{Layout, SavedMachine, VmFolder, VmPrerequisites},
};

/// Returns the prerequisites. Prints the reason and returns `None` if one is missing.
fn prerequisites() -> Option<VmPrerequisites> {
    VmPrerequisites::find().map_err(|missing| eprintln!("skipped: {missing}")).ok()
}

#[test]
fn a_machine_is_saved_restored_cut_and_removed() {
    let Some(prerequisites) = prerequisites() else { return };
    let folder = Arc::new(VmFolder::make(&prerequisites.machines()).expect("a folder"));
    let base = SavedMachine::find(&prerequisites, Layout::One).expect("a saved machine");
    let mut vm = base.restore(&folder).expect("restored");
    vm.write("/etc/durable", b"one\n").expect("written");
    vm.ask("sync; echo two > /etc/lost").expect("run");
    assert_eq!(vm.run("cat /etc/lost; exit 7").expect("run").code, 7);
    let saved = vm.save().expect("saved");

    let mut vm = saved.restore(&folder).expect("restored");
    assert_eq!(vm.ask("cat /etc/durable /etc/lost").expect("run"), "one\ntwo");
    let disk = vm.cut().expect("the power is cut");
    let tree = disk.tree(&folder.new_path("tree")).expect("the disk is readable");
    assert_eq!(tree.bytes("/etc/durable"), Some(b"one\n".as_slice()));
    assert_ne!(tree.bytes("/etc/lost"), Some(b"two\n".as_slice()), "it was only in memory");
    assert!(tree.bytes("/boot/grub/grub.cfg").is_some_and(|menu| !menu.is_empty()));

    let path = folder.path().to_owned();
    drop(folder);
    assert_eq!(left(&path), Vec::<String>::new());
}

#[test]
fn a_machine_is_removed_after_its_process_was_killed() {
    let Some(_) = prerequisites() else { return };
    let mut command = command(env!("CARGO_BIN_EXE_vm"));
    let started = command.arg("one").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = started.expect("the process starts");
    let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let mut lines = output.lines().map_while(Result::ok);
    let ready = lines.find_map(|line| line.strip_prefix("ready ").map(PathBuf::from));
    let folder = ready.expect("the machine starts");
    assert!(left(&folder).len() > 1, "the running machine is found");
    child.kill().expect("killed");
    child.wait().expect("dead");
    let gone = wait("the machine to be gone", PATIENCE, || left(&folder).is_empty().then_some(()));
    gone.unwrap_or_else(|error| panic!("{error}: {:?}", left(&folder)));
}

/// Lists processes and files of a machine.
fn left(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(&*folder.to_string_lossy()) {
            left.push(format!("process {}", entry.path().display()));
        }
    }
    if folder.exists() {
        left.push(format!("folder {}", folder.display()));
    }
    left
}
