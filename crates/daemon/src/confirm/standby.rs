//! The machine's own way back: a unit that takes a config back where no daemon comes to do so.
//!
//! A config may break what starts the daemon: the kubelet, the container engine, the network of both. So
//! before a machine reboots into a config that has to be confirmed, a copy of this program and a unit that
//! starts it are put on the machine. Neither outlives the confirmation.
//!
//! Invariant: whoever decides holds the machine's lock. A daemon holds it as long as it lives, so that a
//! standby never decides beside one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use mco_api::duration;
use mco_cluster::{Shutdown, report::chain};
use mco_host::{
    Answer, Attribute, Host, Owner, Root, RootError, System, SystemError,
    input::{self, InputError},
    unit::{self, UnitError},
};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{
    Health, PAUSE, faults, policy,
    settle::{Open, Proof, Settled, look, on_host, pause},
};
use crate::{
    Ended,
    disk::{self, DiskError},
    execute::{self, ExecuteError},
    ledger::{self, LedgerError, Stage},
};

/// The unit.
pub const UNIT: &str = "machine-config-daemon-confirm.service";
const UNIT_PATH: &str = "/etc/systemd/system/machine-config-daemon-confirm.service";
/// Where its program is: on image-based systems, too, this can be written and survives another image.
const FOLDER: &str = "/var/lib/machine-config-daemon/confirm";
const PARENT: &str = "/var/lib/machine-config-daemon";
const PROGRAM: &str = "mco";

/// What a program of the machine is labelled with: systemd does not start just any file of `/var` where
/// labels are enforced.
const LABELLED: &str = "/usr/bin/env";
const LABEL: &str = "security.selinux";

/// Larger than any build of ours.
const LARGEST: u64 = 1 << 30;
/// Larger than any list of what a process has mapped.
const LARGEST_LIST: u64 = 4 << 20;

/// Why the machine has no way back of its own.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    /// This program cannot be read.
    #[error(transparent)]
    Program(#[from] InputError),
    /// The unit cannot be switched on or off.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The tree cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The daemon's own files cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// systemd does not hear of it.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// A program that can be started on the machine, whatever libraries that has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What is copied, by the names it gets.
    files: BTreeMap<String, PathBuf>,
    /// Which of them starts the others.
    loader: Option<String>,
}

impl Program {
    /// This very program. One that runs in a container brings its libraries along.
    pub fn own() -> Result<Self, InputError> {
        let maps = input::file(Path::new("/proc/self/maps"), LARGEST_LIST)?;
        Ok(Self::new(PathBuf::from("/proc/self/exe"), &String::from_utf8_lossy(&maps)))
    }

    /// A program that has these files mapped, in the words of `/proc/PID/maps`.
    #[must_use]
    pub fn new(program: PathBuf, maps: &str) -> Self {
        // After the address, the rights, the offset, the device and the inode.
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let libraries: BTreeMap<String, PathBuf> = paths
            .filter_map(|path| Some((path.rsplit_once('/')?.1.to_owned(), PathBuf::from(path))))
            .filter(|(name, _)| name.contains(".so"))
            .collect();
        let loader = libraries.keys().find(|name| name.starts_with("ld")).cloned();
        // Older systems name the files by version and not as a loader looks for them; there the
        // machine's own must do.
        let (mut files, loader) = match loader {
            Some(loader) if libraries.contains_key("libc.so.6") => (libraries, Some(loader)),
            _ => (BTreeMap::new(), None),
        };
        files.insert(PROGRAM.to_owned(), program);
        Self { files, loader }
    }

    /// How systemd is to start it.
    fn command(&self) -> String {
        let program = format!("{FOLDER}/{PROGRAM} host confirm --standby");
        match &self.loader {
            Some(loader) => format!("{FOLDER}/{loader} --library-path {FOLDER} {program}"),
            None => program,
        }
    }

    /// The text of the unit. Ordered after nothing that a config may have broken.
    fn unit(&self) -> String {
        format!(
            "\
[Unit]
Description=Takes the new config of this node back if its daemon does not come up
StartLimitIntervalSec=0
RequiresMountsFor={FOLDER}

[Service]
ExecStart={}
# 1 says that the config was taken back.
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

/// Gives the machine a way back of its own where a config is about to be confirmed, and takes it away
/// where none is.
pub fn arrange<S: System>(host: &mut Host<S>, program: &Program) -> Result<(), StandbyError> {
    let update = ledger::open(&host.root)?;
    let is_due = update.is_some_and(|(_, progress)| progress.stage == Stage::Rebooting);
    if is_due && policy(&host.root)?.is_some() {
        install(&host.root, program)
    } else {
        remove(host)
    }
}

/// Puts program and unit on the machine; what is there already is not written again.
fn install(root: &Root, program: &Program) -> Result<(), StandbyError> {
    let label: Vec<Attribute> =
        root.attributes(LABELLED)?.into_iter().filter(|found| found.name == LABEL).collect();
    for (name, path) in &program.files {
        let bytes = input::file(path, LARGEST)?;
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
    // By links: it is the next boot that counts.
    unit::enable(root, UNIT)?;
    info!("{UNIT} takes the config back should no daemon come up after the reboot");
    Ok(())
}

/// Takes program and unit off the machine, where they are there.
pub fn remove<S: System>(host: &mut Host<S>) -> Result<(), StandbyError> {
    let root = &host.root;
    let had_unit = is_installed(root)?;
    if had_unit {
        // Switched off first: a crash in between must not leave a link to nothing.
        unit::disable(root, UNIT)?;
        root.remove(UNIT_PATH)?;
    }
    root.sweep(UNIT_PATH)?;
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

/// What a standby found.
enum Found {
    /// Somebody decided.
    Settled,
    /// Nobody has, and there is time left.
    Open(Duration),
    /// The config is taken back, and the machine reboots.
    Rebooting,
}

/// Waits until the daemon has decided about the config; takes it back where none has in time.
///
/// Never keeps a config: that is for the daemon, which sees more.
pub async fn stand_by<S: System + 'static>(mut host: Host<S>, shutdown: &Shutdown) -> Settled<S> {
    let since = Instant::now();
    loop {
        let waited = since.elapsed();
        let found;
        (host, found) = on_host(host, move |host| glance(host, waited)).await;
        let left = match found {
            Ok(Found::Settled) => return Settled::Go(host),
            Ok(Found::Rebooting) => return Settled::Ended(Ended::Rebooting),
            Ok(Found::Open(left)) => left.min(PAUSE),
            Err(fault) => {
                error!("Cannot stand by: {}", chain(&fault));
                PAUSE
            }
        };
        if pause(left, shutdown).await {
            return Settled::Ended(Ended::Stopped);
        }
    }
}

fn glance<S: System>(host: &mut Host<S>, waited: Duration) -> Result<Found, ExecuteError> {
    // A daemon that has decided takes us away.
    if !is_installed(&host.root).map_err(DiskError::from)? {
        return Ok(Found::Settled);
    }
    let lock = host.root.lock(disk::RECORDS).map_err(DiskError::from)?;
    let Some(_lock) = lock else { return Ok(Found::Open(PAUSE)) };
    let proof = match look(host)? {
        Open::Nothing => {
            if let Err(fault) = remove(host) {
                warn!(error = chain(&fault), "Cannot remove {UNIT}");
            }
            return Ok(Found::Settled);
        }
        Open::Reboot(config) => {
            execute::reboot(host, &config)?;
            return Ok(Found::Rebooting);
        }
        Open::Prove(proof) => *proof,
    };
    let Proof { update, policy, .. } = proof;
    let deadline = policy.deadline();
    if let Some(left) = deadline.checked_sub(waited).filter(|left| !left.is_zero()) {
        return Ok(Found::Open(left));
    }
    let late = format!("no daemon came up to confirm it within {}", duration::go(deadline));
    let (kubelet, checks) = policy.ask(host);
    // A cluster that is down starts no daemon either, so that the machine's own checks count for both.
    let why = faults(&Health { cluster: Answer::No(late), kubelet, checks }).join("; ");
    if why.is_empty() {
        return Ok(Found::Open(PAUSE));
    }
    error!("Taking the config back: {why}");
    execute::take_back(host, &update, &why)?;
    Ok(Found::Open(Duration::ZERO))
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
    fn a_program_brings_its_libraries_where_a_loader_finds_them() {
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
        // Linked to nothing, or to files that no loader would find by their names.
        for maps in ["", &MAPS.replace("libc.so.6", "libc-2.28.so")] {
            assert_eq!(names(maps), ("mco".to_owned(), alone.clone()));
        }
    }
}
