//! Runs programs of the host for the lab.

use std::{
    process::{Command, Output, Stdio},
    thread,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Runs a program and returns its output. Fails if the program fails.
pub(super) fn run(what: &str, command: &mut Command) -> anyhow::Result<String> {
    stdout(what, &output(what, command)?)
}

/// Runs a program. A failure of the program is not an error.
pub(super) fn output(what: &str, command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("failed to start {what}"))
}

/// Runs a program in a machine, without input. The program may end with the machine.
pub(super) fn output_in_machine(what: &str, command: &mut Command) -> anyhow::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("failed to start {what}"))?;
    let process = Pid::from_child(&child);
    thread::scope(|scope| {
        scope.spawn(|| keep_running(process));
        child.wait_with_output().with_context(|| format!("failed to run {what}"))
    })
}

/// Continues a process whenever it is stopped, until it ends.
///
/// A machine that shuts down stops all its processes before it kills them. `nsenter` then stops
/// itself too, and the machine would wait for ever until `nsenter` has seen the end of its program.
fn keep_running(process: Pid) {
    let events = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    // An error means that the process has ended and its status was read.
    while let Ok(Some(status)) = waitid(WaitId::Pid(process), events) {
        if !status.stopped() || kill_process(process, Signal::CONT).is_err() {
            return;
        }
    }
}

/// Returns the standard output of a program, or an error if the program failed.
pub(super) fn stdout(what: &str, output: &Output) -> anyhow::Result<String> {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{what} failed: {}: {}{}", output.status, err.trim(), out.trim());
    }
    Ok(out.into_owned())
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn a_program_that_is_stopped_is_continued() {
        let (send, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut command = Command::new("sh");
            command.args(["-c", "kill -STOP $$; echo continued"]);
            send.send(output_in_machine("a program that stops itself", &mut command))
        });
        let output = ended.recv_timeout(Duration::from_mins(1)).expect("the program ends");
        assert_eq!(output.unwrap().stdout, b"continued\n");
    }
}
