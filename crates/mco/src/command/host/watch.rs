//! `mco host watch`: prints drift of the machine from its config, and its end.

use std::{io::Write as _, process::ExitCode, time::Duration};

use mco_apply::verify;
use mco_cluster::Shutdown;
use mco_core::drift;
use mco_daemon::watch::Watch;

use super::{DIFFERS, MachineArgs, target};
use crate::print::Screen;

/// Interval of full checks, which find changes of directories that the kernel no longer watches.
const RESYNC_INTERVAL: Duration = Duration::from_mins(10);

/// Print drift of this machine from its config until Ctrl-C
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    config: target::ConfigArgs,
}

pub(super) fn run(
    args: &WatchArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.machine.root)?;
    let config = args.config.read(&host, verbose)?;
    let machine = target::read(&config)?;
    let paths: Vec<String> = drift::expected(&machine).into_iter().map(|it| it.path).collect();
    let paths = || paths.iter().map(String::as_str).filter(|path| path.starts_with('/'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shutdown = runtime.block_on(async { Shutdown::on_signals() })?;
    let mut printed = None;
    loop {
        // The watch starts before the check, so that no change is missed in between.
        let mut watch = {
            let _context = runtime.enter();
            Watch::new(&host.root, paths())?
        };
        // Outside of the runtime: the systemd connection runs on one of its own.
        let found: Vec<String> =
            verify::differences(&host, &machine)?.iter().map(ToString::to_string).collect();
        let differs = !found.is_empty();
        if printed.as_ref() != Some(&found) {
            if found.is_empty() {
                writeln!(screen, "no differences from {}", machine.name)?;
            }
            for drift in &found {
                writeln!(screen, "{drift}")?;
            }
            screen.flush()?;
            printed = Some(found);
        }
        let is_stopped = runtime.block_on(async {
            tokio::select! {
                () = shutdown.requested() => Ok(true),
                changed = watch.changed() => changed.map(|()| false),
                () = tokio::time::sleep(RESYNC_INTERVAL) => Ok(false),
            }
        })?;
        if is_stopped {
            return Ok(ExitCode::from(if differs { DIFFERS } else { 0 }));
        }
        let _context = runtime.enter();
        drop(watch);
    }
}
