//! A standby unit that rolls a config back if no daemon starts after the reboot.
//!
//! A config may break what starts the daemon: the kubelet, the container engine, the network of
//! both. So before a machine reboots into a config that has to be confirmed, a copy of this program
//! and a unit that starts it are installed on the machine. Both are removed after the confirmation.
//!
//! Invariant: only the holder of the machine's lock decides. A daemon holds the lock as long as it
//! lives, so that a standby never decides beside a daemon.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use mco_core::lifecycle::{
    self, Action, Limits, Observation, State,
    standby::{StandbyDecision, decide, missing_daemon},
};
use mco_host::{
    Attribute, Host, Owner, Root, RootError, System, SystemError,
    input::{self, InputError},
    unit::{self, UnitError},
};
use tracing::{info, warn};

use super::{CHECK_INTERVAL, carry_out, policy};
use crate::{
    disk::{self, DiskError},
    execute::{self, ExecuteError},
    ledger::{self, LedgerError, Stage},
    observe,
    report::chain,
};

/// Name of the unit.
pub const UNIT: &str = "machine-config-daemon-confirm.service";
const UNIT_PATH: &str = "/etc/systemd/system/machine-config-daemon-confirm.service";
/// Directory of the program: writable on image-based systems, too, and kept across images.
const FOLDER: &str = "/var/lib/machine-config-daemon/confirm";
const PARENT: &str = "/var/lib/machine-config-daemon";
const PROGRAM: &str = "mco";

/// A program whose SELinux label is copied: where labels are enforced, systemd does not start just
/// any file in `/var`.
const LABEL_SOURCE: &str = "/usr/bin/env";
const LABEL: &str = "security.selinux";

/// Larger than any build of this program.
const MAX_PROGRAM_SIZE: u64 = 1 << 30;
/// Larger than any `/proc/PID/maps`.
const MAX_MAPS_SIZE: u64 = 4 << 20;

/// A failure to install or remove the standby unit.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// This program cannot be read.
    #[error(transparent)]
    Program(#[from] InputError),
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

/// A program that runs on the machine, whatever libraries the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The files to copy, by their target names.
    files: BTreeMap<String, PathBuf>,
    /// The dynamic loader among the files, if any.
    loader: Option<String>,
}

impl Program {
    /// Returns this program, with its libraries if it runs in a container.
    pub fn own() -> Result<Self, InputError> {
        let maps = input::file(Path::new("/proc/self/maps"), MAX_MAPS_SIZE)?;
        Ok(Self::new(PathBuf::from("/proc/self/exe"), &String::from_utf8_lossy(&maps)))
    }

    /// Builds the program with the libraries in `maps`, in the format of `/proc/PID/maps`.
    #[must_use]
    pub fn new(program: PathBuf, maps: &str) -> Self {
        // After the address, the permissions, the offset, the device and the inode.
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let libraries: BTreeMap<String, PathBuf> = paths
            .filter_map(|path| Some((path.rsplit_once('/')?.1.to_owned(), PathBuf::from(path))))
            .filter(|(name, _)| name.contains(".so"))
            .collect();
        let loader = libraries.keys().find(|name| name.starts_with("ld")).cloned();
        // Older systems name the files by version and not as a loader looks for them; there the
        // machine's own libraries are used.
        let (mut files, loader) = match loader {
            Some(loader) if libraries.contains_key("libc.so.6") => (libraries, Some(loader)),
            _ => (BTreeMap::new(), None),
        };
        files.insert(PROGRAM.to_owned(), program);
        Self { files, loader }
    }

    /// Returns the command line of the unit.
    fn command(&self) -> String {
        let program = format!("{FOLDER}/{PROGRAM} host confirm --standby");
        match &self.loader {
            Some(loader) => format!("{FOLDER}/{loader} --library-path {FOLDER} {program}"),
            None => program,
        }
    }

    /// Returns the text of the unit. Ordered after nothing that a config may have broken.
    fn unit(&self) -> String {
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
            self.command()
        )
    }
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
    let label: Vec<Attribute> =
        root.attributes(LABEL_SOURCE)?.into_iter().filter(|found| found.name == LABEL).collect();
    for (name, path) in &program.files {
        let bytes = input::file(path, MAX_PROGRAM_SIZE)?;
        let target = format!("{FOLDER}/{name}");
        if root.read(&target)?.as_ref() == Some(&bytes) {
            root.set_mode(&target, 0o755)?;
        } else if label.is_empty() {
            root.write(&target, &bytes, 0o755)?;
        } else {
            root.write_labelled(&target, &bytes, 0o755, Owner::default(), &label)?;
        }
    }
    let text = program.unit();
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

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0-55d1 r--p 00000000 08:01 12 /usr/bin/mco
55d1-55d2 rw-p 00000000 00:00 0 [heap]
7f00-7f01 r-xp 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 r--p 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r--p 00000000 08:01 14 /usr/lib/x86_64-linux-gnu/libgcc_s.so.1
7f03-7f04 r--p 00000000 08:01 15 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
7f04-7f05 ---p 00000000 00:00 0
";

    #[test]
    fn a_program_brings_its_libraries_if_the_loader_finds_them() {
        let names = |maps: &str| {
            let program = Program::new(PathBuf::from("/proc/self/exe"), maps);
            let names: Vec<&str> = program.files.keys().map(String::as_str).collect();
            (names.join(" "), program.command())
        };
        let alone = format!("{FOLDER}/mco host confirm --standby");
        let (files, command) = names(MAPS);
        assert_eq!(files, "ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 mco");
        let loader = format!("{FOLDER}/ld-linux-x86-64.so.2 --library-path {FOLDER} {alone}");
        assert_eq!(command, loader);
        // Linked statically, or with file names that the loader does not look for.
        for maps in ["", &MAPS.replace("libc.so.6", "libc-2.28.so")] {
            assert_eq!(names(maps), ("mco".to_owned(), alone.clone()));
        }
    }
}
