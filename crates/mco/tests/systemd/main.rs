//! Our processes on a booted machine with a systemd of its own: `mco host` alone, and the daemon of a node as
//! one of its services.

#![expect(clippy::panic, reason = "a test that panics has failed")]

mod cluster;
mod host;
mod node;

use std::path::Path;

use mco_testkit::lab::{Ingredients, Lone, Machine};

/// Ends the test with the whole chain of reasons.
fn done<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}

/// A machine, or a line that says why this test proves nothing here.
fn machine() -> Option<Lone> {
    match Ingredients::find() {
        Ok(ingredients) => Some(done(Lone::up(&ingredients, Path::new(env!("CARGO_BIN_EXE_mco"))))),
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

/// What a command says, whether it succeeds or not.
fn said(machine: &Machine, words: &[&str]) -> String {
    String::from_utf8_lossy(&done(machine.run(words)).stdout).trim().to_owned()
}

/// Changes with every boot of the machine.
fn boot_id(machine: &Machine) -> String {
    said(machine, &["cat", "/proc/sys/kernel/random/boot_id"])
}
