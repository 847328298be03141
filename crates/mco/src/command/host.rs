//! `mco host`: the same manifests on one machine, without a cluster.

mod apply;
mod confirm;
pub(crate) mod once;
mod pivot;
mod plan;
mod rollback;
mod target;
mod verify;
mod watch;

use std::{path::PathBuf, process::ExitCode};

use crate::print::Screen;

/// Configure this machine by manifests, without a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HostCommand {
    Plan(plan::PlanArgs),
    Apply(apply::ApplyArgs),
    Verify(verify::VerifyArgs),
    Rollback(rollback::RollbackArgs),
    Watch(watch::WatchArgs),
    Confirm(confirm::ConfirmArgs),
    Pivot(pivot::PivotArgs),
}

const EXAMPLES: &str = "\
Examples:
  mco host plan -f manifests/                     what would happen, step by step
  mco host apply -f manifests/                    does it, after asking
  mco host verify                                 every difference from the applied config
  mco host rollback                               back to what was there before the last apply
  mco host watch                                  says when something drifts, until Ctrl-C
  mco host apply -f manifests/ --root /mnt --yes  a machine that does not run, by its disk
  mco host apply -f config.ign --yes              an Ignition config, as it is
  mco host confirm                                after a reboot: keep the config, or take it back
  mco host pivot quay.io/example/os@sha256:0123   the last resort: boot this OS image next

MachineConfigs are merged as a pool renders them; the node disruption policy of a MachineConfiguration
among them counts. Everything that an apply will touch is kept on the
machine first (below /etc/machine-config-daemon): an apply that fails is undone, and one that was
killed goes on when it is started again.

A root where systemd runs is changed through it. Any other is changed by its files alone: units are
enabled by links, and everything counts from the machine's next boot.

Exit status:
  0  done, nothing to do, or as the config says
  1  verify, watch: the machine differs; apply: it failed and was undone; confirm: it was taken back
  2  it could not be tried: bad manifests, a machine that cannot be read, an answer of no
  3  done but for a reboot";

/// Where the machine is
#[derive(Debug, clap::Args)]
struct Place {
    /// Directory that is the machine's root
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
}

/// It failed and was undone, or the machine differs.
const DIFFERS: u8 = 1;
/// Done but for a reboot.
const REBOOT_DUE: u8 = 3;

/// Carries out what is asked of one machine.
pub(crate) fn run(
    args: &HostArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    match &args.command {
        HostCommand::Plan(args) => plan::run(args, verbose, screen),
        HostCommand::Apply(args) => apply::run(args, verbose, screen),
        HostCommand::Verify(args) => verify::run(args, verbose, screen),
        HostCommand::Rollback(args) => rollback::run(args, screen),
        HostCommand::Watch(args) => watch::run(args, verbose, screen),
        HostCommand::Confirm(args) => confirm::run(args, screen),
        HostCommand::Pivot(args) => pivot::run(args, screen),
    }
}
