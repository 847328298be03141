//! `mco down`: stops the cluster that `mco up` runs.

use std::{io::Write as _, path::PathBuf, process::ExitCode, sync::mpsc, thread, time::Duration};

use anyhow::Context as _;

use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::DEFAULT_DIR,
    up::state_dir::{self, UpState},
};

/// Time that the other process may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);

/// Stop the cluster that `mco up` runs on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    /// Directory of `mco up`
    #[arg(long, default_value = DEFAULT_DIR, value_name = "DIR")]
    dir: PathBuf,
    /// Delete the state in the directory too
    #[arg(long)]
    purge: bool,
}

/// Sends SIGTERM to the process of `mco up` and waits until it has ended.
pub(crate) fn run(args: &DownArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let dir = args.dir.display();
    // Held during the purge, so that no `mco up` starts in between.
    let _lock = match UpState::read(&args.dir)? {
        UpState::Absent => {
            writeln!(screen, "no cluster in {dir}")?;
            return Ok(ExitCode::SUCCESS);
        }
        UpState::Stopped(lock) => {
            writeln!(screen, "the cluster in {dir} is not running")?;
            lock
        }
        UpState::Running { process: None, .. } => {
            return Err(error_with_hint(
                format!("the cluster in {dir} is still starting"),
                "try again in a few seconds",
            ));
        }
        UpState::Running { lock, process: Some(process) } => {
            state_dir::stop(process).context("failed to stop the process")?;
            print::note(&format!("waiting for process {} to stop", process.as_raw_nonzero()));
            let (done, waiting) = mpsc::channel();
            thread::spawn(move || done.send(lock.lock().map(|()| lock)));
            let lock = waiting.recv_timeout(STOP_TIMEOUT).map_err(|_| {
                let pid = process.as_raw_nonzero();
                error_with_hint(
                    format!("process {pid} did not stop within {} s", STOP_TIMEOUT.as_secs()),
                    format!("run `kill -9 {pid}`; the state is kept"),
                )
            })?;
            writeln!(screen, "the cluster in {dir} has stopped")?;
            lock?
        }
    };
    if args.purge {
        state_dir::purge(&args.dir).with_context(|| format!("failed to remove {dir}"))?;
        writeln!(screen, "removed {dir}")?;
    }
    Ok(ExitCode::SUCCESS)
}
