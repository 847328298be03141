//! The folders of labs: one per lab, locked by the process that runs the lab, removed after that
//! process ends.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::run::run;

/// Shell script that runs a lab's namespaces and removes what outlives them.
pub(super) const SUPERVISE_SCRIPT: &str = include_str!("../../lab/supervise.sh");

/// The folder of one lab.
#[derive(Debug)]
pub(super) struct LabFolder {
    /// Id that distinguishes the lab from all others. Part of the names of its cgroups.
    pub(super) id: String,
    /// Directory with all files of the lab.
    pub(super) path: PathBuf,
    /// Locked while this process runs the lab.
    _lock: File,
}

impl LabFolder {
    /// Creates the folder of a new lab in `labs`. Removes the remains of dead labs first.
    pub(super) fn make(labs: &Path) -> anyhow::Result<Self> {
        let _lock_of_all = clean(labs)?;
        loop {
            let id = format!("{:06x}", fastrand::u32(..0x100_0000));
            let path = labs.join(&id);
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("failed to create {}", path.display()));
                }
            }
            let lock = File::create(path.join("lock")).context("failed to create a lab's lock")?;
            lock.lock().context("failed to lock a lab")?;
            return Ok(Self { id, path, _lock: lock });
        }
    }

    /// Records the first process of the lab, so that it can be found after a crash.
    pub(super) fn record_init(&self, pid: u32) -> anyhow::Result<()> {
        let start_time = start_time(pid).context("failed to read the lab's first process")?;
        let note = self.path.join("init");
        fs::write(note, format!("{pid} {start_time}\n"))
            .context("failed to record the lab's first process")
    }
}

/// Removes all labs whose process has ended. No other lab starts while the returned lock is held.
pub(super) fn clean(labs: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(labs).with_context(|| format!("failed to create {}", labs.display()))?;
    let lock_of_all =
        File::create(labs.join(".lock")).context("failed to create the lock of all labs")?;
    lock_of_all.lock().context("failed to wait for the lock of all labs")?;
    for entry in fs::read_dir(labs).context("failed to list old labs")? {
        let folder = entry.context("failed to list old labs")?.path();
        let Ok(lock) = File::open(folder.join("lock")) else {
            // Not a lab, or one that its supervisor removes right now.
            continue;
        };
        if lock.try_lock().is_ok() {
            end_init(&folder)?;
            run(
                "removing an old lab",
                Command::new("sh").args(["-c", SUPERVISE_SCRIPT, "supervise"]).arg(&folder),
            )?;
        }
    }
    Ok(lock_of_all)
}

/// Kills the first process of a lab, and with it all others, if the recorded process still runs.
fn end_init(folder: &Path) -> anyhow::Result<()> {
    let note = fs::read_to_string(folder.join("init")).unwrap_or_default();
    let mut words = note.split_whitespace();
    match (words.next().map(str::parse), words.next()) {
        (Some(Ok(pid)), Some(start_time)) => signal(pid, start_time, Signal::KILL),
        _ => Ok(()),
    }
}

/// Sends a terminating signal to a process and waits for its end. Does nothing if the process id
/// belongs to another process by now.
pub(super) fn signal(pid: u32, noted: &str, signal: Signal) -> anyhow::Result<()> {
    let handle = Pid::from_raw(pid.cast_signed());
    let Some(handle) = handle.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Ok(());
    };
    // The handle refers to the process that has the id now; the start time tells if it is the
    // recorded one.
    if start_time(pid).is_ok_and(|start_time| start_time == noted) {
        pidfd_send_signal(&handle, signal).context("failed to end a lab")?;
        poll(&mut [PollFd::new(&handle, PollFlags::IN)], None)
            .context("failed to wait for the end of a lab")?;
    }
    Ok(())
}

/// Returns the start time of a process, in ticks since the host's boot.
pub(super) fn start_time(pid: u32) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The process name in parentheses may itself contain blanks and parentheses.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().nth(19).map(str::to_owned).ok_or_else(|| ErrorKind::InvalidData.into())
}
