//! The tracer lists the functions that ran.

use std::{
    fs,
    process::{Command, Stdio},
};

#[test]
fn a_traced_program_lists_the_functions_that_ran_and_no_others() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("skipped: functions can be watched on x86-64 only");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (list, program) = (folder.path().join("list"), env!("CARGO_BIN_EXE_xtask"));
    let mut watcher = Command::new(program);
    // Without arguments the program prints its usage.
    watcher.arg("trace").arg(&list).arg(program).stdin(Stdio::piped());
    let mut watcher = watcher.stderr(Stdio::piped()).spawn().unwrap();
    // Standard input stays open, so that the program exits by itself.
    let _input = watcher.stdin.take();
    let output = watcher.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Operation not permitted") {
        eprintln!("skipped: this machine does not allow ptrace");
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("usage: "), "{said}");
    let list = fs::read_to_string(list).unwrap();
    let has = |name: &str| list.lines().any(|line| line.contains(name));
    assert!(has("5xtask4main"), "{list}");
    assert!(!has("5xtask8generate3all"), "{list}");
}
