//! Disks that fail: full, read-only, immutable, or with a file in the way.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use mco_apply::{disk, execute::Outcome};
use mco_host::Root;

use crate::crash::{begin, create_machine, old, open, recover, tidied, tree, ways};

/// Runs a command that a test needs; returns true if it succeeded.
fn run(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let done = Command::new(words.next().unwrap()).args(words).output();
    done.is_ok_and(|output| output.status.success())
}

/// Runs a command when the test is over, however it ends.
struct Finally(String);

impl Drop for Finally {
    fn drop(&mut self) {
        run(&self.0);
    }
}

/// Fails an update by the state of the disk, then repeats it after `clear`.
fn fails_for(folder: &Path, why: &str, clear: impl FnOnce()) {
    let before = tree(folder);
    let mut host = open(Root::open(folder).unwrap());
    let error = begin(&mut host).unwrap_err();
    let text = mco_cluster::report::chain(&error);
    assert!(text.contains(why), "{text:?} says {why:?}");
    drop(host);
    let host = recover(folder);
    assert_eq!(disk::current_config(&host.root).unwrap(), Some(old()));
    drop(host);
    similar_asserts::assert_eq!(tidied(tree(folder), false), tidied(before, false));
    clear();
    let mut host = open(Root::open(folder).unwrap());
    assert_eq!(begin(&mut host).unwrap(), Outcome::RebootDue);
    drop(host);
    recover(folder);
}

// covers: C91
#[test]
fn a_file_in_place_of_a_directory_fails_the_update_and_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    create_machine(folder.path());
    let deep = folder.path().join("etc/deep");
    fs::write(&deep, "in the way").unwrap();
    fails_for(folder.path(), "/etc/deep/new: Not a directory", || fs::remove_file(&deep).unwrap());
    similar_asserts::assert_eq!(tree(folder.path()), ways().new);
}

// covers: C91
#[test]
fn an_immutable_file_or_directory_fails_the_update_and_leaves_no_trace() {
    for path in ["etc/changed", "etc/deep", "etc/gone"] {
        let folder = tempfile::tempdir().unwrap();
        create_machine(folder.path());
        let path = folder.path().join(path);
        if path.ends_with("deep") {
            fs::create_dir(&path).unwrap();
        }
        let path = path.display().to_string();
        if !run(&format!("chattr +i {path}")) {
            eprintln!("skipped: this user or disk cannot make files immutable");
            return;
        }
        let _mend = Finally(format!("chattr -i {path}"));
        fails_for(folder.path(), "Operation not permitted", || {
            assert!(run(&format!("chattr -i {path}")));
        });
    }
}

// covers: C91
#[test]
fn a_read_only_directory_fails_the_update_and_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    create_machine(folder.path());
    let deep = folder.path().join("etc/deep");
    fs::create_dir(&deep).unwrap();
    let deep = deep.display().to_string();
    let mounted = run(&format!("mount --bind {deep} {deep}"))
        && run(&format!("mount -o remount,bind,ro {deep}"));
    let _mend = Finally(format!("umount {deep}"));
    if !mounted {
        eprintln!("skipped: this user cannot mount");
        return;
    }
    fails_for(folder.path(), "Read-only file system", || {
        assert!(run(&format!("umount {deep}")));
    });
}

// covers: C91, C134
#[test]
fn a_full_disk_leaves_the_old_config_whole_or_the_new_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().display().to_string();
    if !run(&format!("mount -t tmpfs -o size=4m none {path}")) {
        eprintln!("skipped: this user cannot mount a small disk");
        return;
    }
    let _mend = Finally(format!("umount {path}"));
    let ways = ways();
    let (mut failed, mut done) = (0, 0);
    for spare in (0..200).step_by(5) {
        let folder = PathBuf::from(&path).join(format!("machine-{spare}"));
        fs::create_dir(&folder).unwrap();
        create_machine(&folder);
        let filler = place.path().join("filler");
        fill(&filler, spare * 1024);
        let mut host = open(Root::open(&folder).unwrap());
        let outcome = begin(&mut host);
        drop(host);
        match outcome {
            Ok(_) => done += 1,
            Err(_) => failed += 1,
        }
        // The disk stays full for the next attempt, too.
        fs::remove_file(&filler).unwrap();
        let host = recover(&folder);
        let is_new = disk::current_config(&host.root).unwrap() != Some(old());
        drop(host);
        let want = if is_new { &ways.new } else { &ways.old };
        let found = tidied(tree(&folder), is_new);
        similar_asserts::assert_eq!(found, tidied(want.clone(), is_new), "{} KiB spare", spare);
        fs::remove_dir_all(&folder).unwrap();
    }
    assert!(failed > 5 && done > 0, "both happened: {failed} failed, {done} done");
}

/// Fills the disk except for so many bytes.
fn fill(path: &Path, spare: usize) {
    let block = vec![0_u8; 1024];
    let mut contents = Vec::new();
    // Larger than the disk, so that it is full whatever else is on it.
    while contents.len() < 8 << 20 {
        contents.extend_from_slice(&block);
    }
    // Fails at the end of the disk, which is the purpose.
    drop(fs::write(path, &contents));
    let size = usize::try_from(fs::metadata(path).unwrap().len()).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(size.saturating_sub(spare) as u64).unwrap();
}
