//! A standby unit that rolls a config back if no daemon starts after the reboot.
//!
//! A config may break what starts the daemon: the kubelet, the container engine, the network of
//! both. So before a machine reboots into a config that has to be confirmed, a copy of this program
//! and a unit that starts it are installed on the machine. Both are removed after the confirmation.
//!
//! Invariant: only the holder of the machine's lock decides. A daemon holds the lock as long as it
//! lives, so that a standby never decides beside a daemon.

use std::time::Duration;

use mco_core::lifecycle::{
    self, Action, Limits, Observation, State,
    standby::{StandbyDecision, decide, missing_daemon},
};
use mco_host::{
    Host, Root, RootError, System, SystemError,
    unit::{self, UnitError},
};
use tracing::{info, warn};

use super::{CHECK_INTERVAL, carry_out, policy};
use crate::{
    disk::{self, DiskError},
    execute::{self, ExecuteError},
    ledger::{self, LedgerError, Stage},
    observe,
    program::{PROGRAM, ProgramError},
    report::chain,
};

pub use crate::program::Program;

/// Name of the unit.
pub const UNIT: &str = "machine-config-daemon-confirm.service";
const UNIT_PATH: &str = "/etc/systemd/system/machine-config-daemon-confirm.service";
/// Directory of the program: writable on image-based systems, too, and kept across images.
const FOLDER: &str = "/var/lib/machine-config-daemon/confirm";
const PARENT: &str = "/var/lib/machine-config-daemon";

/// A failure to install or remove the standby unit.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// This program cannot be copied.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The unit cannot be enabled or disabled.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The daemon's own files cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// systemd cannot be reloaded.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Returns the text of the unit. Ordered after nothing that a config may have broken.
fn unit_text(program: &Program) -> String {
    format!(
        "\
[Unit]
Description=Rolls back the new config of this node if its daemon does not start
StartLimitIntervalSec=0
RequiresMountsFor={FOLDER}
# An older deployment has this unit in its own /etc after the program was removed.
ConditionPathExists={FOLDER}/{PROGRAM}

[Service]
ExecStart={}
# 1 means that the config was rolled back.
SuccessExitStatus=1
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
",
        program.command(FOLDER, "host confirm --standby")
    )
}

/// Installs the standby unit if the machine is about to reboot into a config that has to be
/// confirmed, and removes it otherwise.
pub fn arrange<S: System>(host: &mut Host<S>, program: &Program) -> Result<(), StandbyError> {
    let update = ledger::open(&host.root)?;
    let is_due = update.is_some_and(|(_, progress)| progress.stage == Stage::Rebooting);
    if is_due && policy(&host.root)?.is_some() {
        install(&host.root, program)
    } else {
        remove(host)
    }
}

/// Writes program and unit; skips files that are up to date.
fn install(root: &Root, program: &Program) -> Result<(), StandbyError> {
    program.install(root, FOLDER)?;
    let text = unit_text(program);
    if root.read(UNIT_PATH)?.as_deref() != Some(text.as_bytes()) {
        root.write(UNIT_PATH, text.as_bytes(), 0o644)?;
    }
    // By links, because it must start at the next boot only.
    unit::enable(root, UNIT)?;
    info!(unit = UNIT, "Installed the standby unit for the reboot");
    Ok(())
}

/// Removes program and unit, if installed.
pub fn remove<S: System>(host: &mut Host<S>) -> Result<(), StandbyError> {
    let root = &host.root;
    let had_unit = is_installed(root)?;
    if had_unit {
        // Disabled first: a crash in between must not leave a dangling link.
        unit::disable(root, UNIT)?;
        root.remove(UNIT_PATH)?;
    }
    root.remove_temporary(UNIT_PATH)?;
    if root.stat(FOLDER)?.is_some() {
        root.remove_tree(FOLDER)?;
        root.remove_empty_directory(PARENT)?;
    }
    if had_unit {
        host.system.reload_systemd()?;
    }
    Ok(())
}

fn is_installed(root: &Root) -> Result<bool, RootError> {
    Ok(root.stat(UNIT_PATH)?.is_some())
}

/// The state of the decision, as the standby sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyStatus {
    /// The decision was made.
    Decided,
    /// No decision was made, and this much time is left.
    Waiting(Duration),
    /// The config is rolled back, and the machine reboots.
    Rebooting,
}

/// Checks if a daemon has decided about the config that the machine has rebooted into `waited` ago,
/// and rolls the config back if no daemon decides in time.
///
/// Never confirms a config: only the daemon can check everything.
pub fn check<S: System>(
    host: &mut Host<S>,
    waited: Duration,
) -> Result<StandbyStatus, ExecuteError> {
    // A daemon that has decided removes the unit.
    if !is_installed(&host.root).map_err(DiskError::from)? {
        return Ok(StandbyStatus::Decided);
    }
    let lock = host.root.lock(disk::RECORDS).map_err(DiskError::from)?;
    let Some(_lock) = lock else { return Ok(StandbyStatus::Waiting(CHECK_INTERVAL)) };
    loop {
        let seen = Observation { disk: observe::disk_view(host)?, ..Observation::default() };
        let decision = lifecycle::next(State::default(), &seen, &Limits::default(), Duration::ZERO);
        if let Action::Reboot(config) = &decision.action {
            execute::reboot(host, config)?;
            return Ok(StandbyStatus::Rebooting);
        }
        if decision.action == Action::CheckHealth {
            return roll_back_late(host, waited);
        }
        if decision.action != Action::Undo {
            if let Err(fault) = remove(host) {
                warn!(unit = UNIT, error = chain(&fault), "Failed to remove the standby unit");
            }
            return Ok(StandbyStatus::Decided);
        }
        // Each rollback ends, or fails, so that it is not repeated for ever.
        carry_out(host, &Action::Undo)?;
    }
}

/// Rolls the config back once the time to prove healthy is over.
fn roll_back_late<S: System>(
    host: &mut Host<S>,
    waited: Duration,
) -> Result<StandbyStatus, ExecuteError> {
    let Some(policy) = policy(&host.root)? else { return Ok(StandbyStatus::Decided) };
    let deadline = policy.deadline();
    let mut health = None;
    loop {
        match decide(waited, deadline, health.as_ref()) {
            StandbyDecision::Wait(pause) => return Ok(StandbyStatus::Waiting(pause)),
            StandbyDecision::Check => {
                health = Some(policy.check(host).with_cluster(missing_daemon(deadline)));
            }
            StandbyDecision::RollBack(why) => {
                carry_out(host, &Action::RollBack(why))?;
                return Ok(StandbyStatus::Waiting(Duration::ZERO));
            }
        }
    }
}
