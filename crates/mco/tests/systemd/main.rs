//! `mco host` and the daemon on a booted machine with a systemd of its own.

#![expect(clippy::panic, reason = "a panic fails the test")]

mod cluster;
mod host;
mod node;

use std::path::Path;

use mco_testkit::lab::{LabPrerequisites, Machine, StandaloneMachine};

/// Panics with the error and its sources.
fn done<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}

/// Returns a machine; prints a line and returns `None` if the test cannot run here.
fn machine() -> Option<StandaloneMachine> {
    match LabPrerequisites::find() {
        Ok(ingredients) => {
            Some(done(StandaloneMachine::up(&ingredients, Path::new(env!("CARGO_BIN_EXE_mco")))))
        }
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

/// Returns the output of a command, whether it succeeds or not.
fn output(machine: &Machine, words: &[&str]) -> String {
    String::from_utf8_lossy(&done(machine.run(words)).stdout).trim().to_owned()
}

/// Returns the boot id of the machine.
fn boot_id(machine: &Machine) -> String {
    output(machine, &["cat", "/proc/sys/kernel/random/boot_id"])
}
