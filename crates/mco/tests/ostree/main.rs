//! `mco host` on a booted machine with ostree deployments: OS updates, kernel arguments, extensions,
//! rollbacks and power cuts.

#![expect(clippy::panic, reason = "a panic fails the test")]

mod back;
mod config;
mod cuts;
mod program;
mod update;

use std::path::Path;

use mco_testkit::lab::{Machine, OstreeMachine, OstreePrerequisites, Tool};

/// Panics with the error and its sources.
fn done<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}

/// Returns a machine; prints a line and returns `None` if the test cannot run here.
fn machine(tool: Tool) -> Option<OstreeMachine> {
    match OstreePrerequisites::find() {
        Ok(ingredients) => {
            let program = Path::new(env!("CARGO_BIN_EXE_mco"));
            Some(done(OstreeMachine::up(&ingredients, program, tool)))
        }
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

/// Runs a command in the machine; returns its exit code and its output.
fn run(machine: &Machine, words: &str) -> (i32, String) {
    let words: Vec<&str> = words.split(' ').collect();
    let output = done(machine.run(&words));
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).trim().to_owned())
}

/// Returns the output of a command that succeeds.
fn ask(machine: &Machine, words: &str) -> String {
    let (code, text) = run(machine, words);
    assert_eq!(code, 0, "{words}: {text}");
    text
}

/// Runs `mco` on the machine; returns its exit code and its output.
fn mco(machine: &Machine, words: &str) -> (i32, String) {
    run(machine, &format!("/usr/local/bin/mco {words}"))
}
