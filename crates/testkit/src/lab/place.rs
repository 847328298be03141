//! The folders of labs: one each, locked by the process that has the lab, removed when that is gone.

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

/// Removes what outlives a lab's namespaces.
pub(super) const KEEP: &str = include_str!("../../lab/keep.sh");

/// The folder of one lab.
#[derive(Debug)]
pub(super) struct Place {
    /// Sets it apart from all other labs; part of the names of its cgroups.
    pub(super) id: String,
    /// Everything that the lab keeps on disk.
    pub(super) folder: PathBuf,
    /// Locked as long as this process has the lab.
    _lock: File,
}

impl Place {
    /// Makes the folder of a new lab in `labs`, after removing what dead ones have left there.
    pub(super) fn make(labs: &Path) -> anyhow::Result<Self> {
        let _turn = clean(labs)?;
        loop {
            let id = format!("{:06x}", fastrand::u32(..0x100_0000));
            let folder = labs.join(&id);
            match fs::create_dir(&folder) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", folder.display()));
                }
            }
            let lock = File::create(folder.join("lock")).context("cannot make a lab's lock")?;
            lock.lock().context("cannot lock a lab")?;
            return Ok(Self { id, folder, _lock: lock });
        }
    }

    /// Notes the first process of the lab, so that it can be found when nobody else knows it.
    pub(super) fn note_init(&self, pid: u32) -> anyhow::Result<()> {
        let born = born(pid).context("cannot read the lab's first process")?;
        let note = self.folder.join("init");
        fs::write(note, format!("{pid} {born}\n")).context("cannot note the lab's first process")
    }
}

/// Removes every lab whose owner is gone. As long as the result is kept, nobody starts another.
pub(super) fn clean(labs: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(labs).with_context(|| format!("cannot make {}", labs.display()))?;
    let turn = File::create(labs.join(".lock")).context("cannot make the lock of all labs")?;
    turn.lock().context("cannot wait for the lock of all labs")?;
    for entry in fs::read_dir(labs).context("cannot look for old labs")? {
        let folder = entry.context("cannot look for old labs")?.path();
        let Ok(lock) = File::open(folder.join("lock")) else {
            // Either not a lab, or one that its keeper removes right now.
            continue;
        };
        if lock.try_lock().is_ok() {
            end_init(&folder)?;
            run("removing an old lab", Command::new("sh").args(["-c", KEEP, "keep"]).arg(&folder))?;
        }
    }
    Ok(turn)
}

/// Ends the first process of a lab, and with it all others, if it is still the one that was noted.
fn end_init(folder: &Path) -> anyhow::Result<()> {
    let note = fs::read_to_string(folder.join("init")).unwrap_or_default();
    let mut words = note.split_whitespace();
    match (words.next().map(str::parse), words.next()) {
        (Some(Ok(pid)), Some(born)) => signal(pid, born, Signal::KILL),
        _ => Ok(()),
    }
}

/// Sends a process a signal that ends it, if it is still the one that was started then, and waits for
/// its end.
pub(super) fn signal(pid: u32, noted: &str, signal: Signal) -> anyhow::Result<()> {
    let handle = Pid::from_raw(pid.cast_signed());
    let Some(handle) = handle.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Ok(());
    };
    // The handle is of whoever has the number now; only the time of birth says who that is.
    if born(pid).is_ok_and(|born| born == noted) {
        pidfd_send_signal(&handle, signal).context("cannot end a lab")?;
        poll(&mut [PollFd::new(&handle, PollFlags::IN)], None)
            .context("cannot wait for the end of a lab")?;
    }
    Ok(())
}

/// When a process was started, in ticks since the host's boot.
pub(super) fn born(pid: u32) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may itself hold blanks and parentheses.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().nth(19).map(str::to_owned).ok_or_else(|| ErrorKind::InvalidData.into())
}
