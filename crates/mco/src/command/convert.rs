//! `mco convert`: converts an Ignition config to another version of the specification.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use mco_ignition::TargetVersion;

use crate::{print::Screen, target};

/// Convert an Ignition config to another version of the specification
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// Target version: 2.2.0, or 3.1.0 to 3.5.0
    #[arg(long, value_name = "VERSION")]
    to: TargetVersion,
    /// Ignition config (JSON) or MachineConfig (JSON or YAML), or - for standard input
    file: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  mco convert --to 3.2.0 worker.ign
  mco convert --to 3.5.0 99-worker-custom.yaml
  kubectl get mc rendered-worker-… -o json | mco convert --to 2.2.0 -

A member that the target version lacks is an error if dropping it would change the effect of the
config.";

/// Prints the converted config as one line of JSON.
pub(crate) fn run(args: &ConvertArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let raw = target::ignition(&args.file)?;
    let shown = || format!("failed to convert {} to {}", args.file.display(), args.to);
    let config = mco_ignition::read(&raw).with_context(shown)?.upgrade().with_context(shown)?;
    let converted = mco_ignition::convert(config, args.to).with_context(shown)?;
    screen.write_all(&converted)?;
    writeln!(screen)?;
    Ok(ExitCode::SUCCESS)
}
