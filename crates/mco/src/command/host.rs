//! `mco host`: applies manifests to one machine, without a cluster.

mod apply;
mod confirm;
mod forget;
pub(crate) mod once;
pub(crate) mod pivot;
mod plan;
mod recover;
mod rollback;
mod status;
mod target;
mod verify;
mod watch;

use std::{path::PathBuf, process::ExitCode};

pub(crate) use self::target::{confirm as confirm_with_user, open as open_machine};
use crate::print::Screen;

/// Apply manifests to this machine, without a cluster
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
    Status(status::StatusArgs),
    Recover(recover::RecoverArgs),
    Forget(forget::ForgetArgs),
    Watch(watch::WatchArgs),
    Confirm(confirm::ConfirmArgs),
    Pivot(pivot::PivotArgs),
}

const EXAMPLES: &str = "\
Examples:
  mco host plan -f manifests/                     the steps of an apply
  mco host apply -f manifests/                    apply the manifests after a confirmation
  mco host verify                                 the differences from the applied config
  mco host rollback                               undo the last apply
  mco host status                                 config, unfinished update, and ways out of it
  mco host recover undo                           leave an unfinished update: resume, undo, abandon
  mco host forget                                 remove the records of mco; the config stays
  mco host watch                                  print drift until Ctrl-C
  mco host apply -f manifests/ --root /mnt --yes  a machine that is not running, by its disk
  mco host apply -f config.ign --yes              an Ignition config
  mco host confirm                                after a reboot: keep the config or roll back
  mco host pivot quay.io/example/os@sha256:0123   emergency: boot this OS image next

MachineConfigs are merged as a pool renders them, with the node disruption policy of a
MachineConfiguration in the manifests. Every path that an apply changes is first saved on the machine
(below /var/lib/machine-config-daemon): a failed apply is rolled back, and an interrupted one continues
when it is started again.

A root where systemd runs is changed through systemd. Any other root is changed by its files alone:
units are enabled by links, and the config takes effect at the next boot.

Exit status:
  0  success, nothing to do, or no differences
  1  verify, watch: the machine differs; apply: failed and rolled back; confirm: rolled back;
     status: an update is unfinished
  2  not attempted: invalid manifests, a machine that cannot be read, or not confirmed
  3  success, and a reboot is required";

/// The machine
#[derive(Debug, clap::Args)]
struct MachineArgs {
    /// Root directory of the machine
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
}

/// Exit code: the machine differs, or the apply failed and was rolled back.
const DIFFERS: u8 = 1;
/// Exit code: a reboot is required.
const REBOOT_DUE: u8 = 3;

/// Runs a command on one machine.
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
        HostCommand::Status(args) => status::run(args, screen),
        HostCommand::Recover(args) => recover::run(args, screen),
        HostCommand::Forget(args) => forget::run(args, screen),
        HostCommand::Watch(args) => watch::run(args, verbose, screen),
        HostCommand::Confirm(args) => confirm::run(args, screen),
        HostCommand::Pivot(args) => pivot::run(args, screen),
    }
}
