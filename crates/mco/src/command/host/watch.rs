//! `mco host watch`: says when the machine drifts from its config, and when it is back.

use std::{io::Write as _, process::ExitCode, time::Duration};

use mco_cluster::Shutdown;
use mco_core::drift;
use mco_daemon::{verify, watch::Watch};

use super::{DIFFERS, Place, target};
use crate::print::Screen;

/// The kernel may lose track of a directory; a look at everything now and then finds what it missed.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// Say when this machine drifts from its config, until Ctrl-C
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    given: target::Given,
}

pub(super) fn run(
    args: &WatchArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.place.root)?;
    let config = args.given.config(&host, verbose)?;
    let machine = target::read(&config)?;
    let paths: Vec<String> = drift::expected(&machine).into_iter().map(|it| it.path).collect();
    let paths = || paths.iter().map(String::as_str).filter(|path| path.starts_with('/'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shutdown = runtime.block_on(async { Shutdown::on_signals() })?;
    let mut said = None;
    loop {
        // Watched before it is looked at, so that nothing slips between.
        let mut watch = {
            let _context = runtime.enter();
            Watch::new(&host.root, paths())?
        };
        // Outside of the runtime: a machine's systemd is asked on one of its own.
        let found: Vec<String> =
            verify::all(&host, &machine)?.iter().map(ToString::to_string).collect();
        let differs = !found.is_empty();
        if said.as_ref() != Some(&found) {
            if found.is_empty() {
                writeln!(screen, "the machine is as {} says", machine.name)?;
            }
            for drift in &found {
                writeln!(screen, "{drift}")?;
            }
            screen.flush()?;
            said = Some(found);
        }
        let is_told = runtime.block_on(async {
            tokio::select! {
                () = shutdown.requested() => Ok(true),
                changed = watch.changed() => changed.map(|()| false),
                () = tokio::time::sleep(LOOK_AGAIN) => Ok(false),
            }
        })?;
        if is_told {
            return Ok(ExitCode::from(if differs { DIFFERS } else { 0 }));
        }
        let _context = runtime.enter();
        drop(watch);
    }
}
