//! `mco down`: stops what `mco up` started.

use std::{io::Write as _, path::PathBuf, process::ExitCode, sync::mpsc, thread, time::Duration};

use anyhow::Context as _;

use crate::{
    fault::Advice,
    print::Screen,
    remote::DIR,
    up::place::{self, Standing},
};

/// How long the other process may take to stop.
const PATIENCE: Duration = Duration::from_mins(1);

/// Stop the cluster that `mco up` runs on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    /// Directory of `mco up`
    #[arg(long, default_value = DIR, value_name = "DIR")]
    dir: PathBuf,
    /// Remove everything it kept in the directory too
    #[arg(long)]
    purge: bool,
}

/// Asks the other process to stop and waits until it has.
pub(crate) fn run(args: &DownArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let dir = args.dir.display();
    // Held while we purge, so that nobody starts in between.
    let _lock = match Standing::of(&args.dir)? {
        Standing::Absent => {
            writeln!(screen, "there is no cluster in {dir}")?;
            return Ok(ExitCode::SUCCESS);
        }
        Standing::Stopped(lock) => {
            writeln!(screen, "the cluster in {dir} does not run")?;
            lock
        }
        Standing::Running { process: None, .. } => {
            return Err(Advice::error(
                format!("the cluster in {dir} is only just starting"),
                "try again in a moment",
            ));
        }
        Standing::Running { lock, process: Some(process) } => {
            place::stop(process).context("cannot stop the process")?;
            let (done, waiting) = mpsc::channel();
            thread::spawn(move || done.send(lock.lock().map(|()| lock)));
            let lock = waiting.recv_timeout(PATIENCE).map_err(|_| {
                let number = process.as_raw_nonzero();
                Advice::error(
                    format!("process {number} has not stopped in {} s", PATIENCE.as_secs()),
                    format!("`kill -9 {number}` ends it; nothing is lost"),
                )
            })?;
            writeln!(screen, "the cluster in {dir} has stopped")?;
            lock?
        }
    };
    if args.purge {
        place::purge(&args.dir).with_context(|| format!("cannot remove {dir}"))?;
        writeln!(screen, "removed {dir}")?;
    }
    Ok(ExitCode::SUCCESS)
}
