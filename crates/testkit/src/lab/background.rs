//! The lab of `make lab`: runs in the background until it is stopped.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use super::{
    LabPrerequisites,
    folder::{signal, start_time},
};

/// A lab that runs in the background.
#[derive(Debug)]
pub struct Background {
    pid: u32,
    start_time: String,
    /// The lab's id.
    id: String,
    note: PathBuf,
}

impl Background {
    /// Finds the running background lab.
    #[must_use]
    pub fn find(ingredients: &LabPrerequisites) -> Option<Self> {
        let note = note(ingredients);
        let text = fs::read_to_string(&note).ok()?;
        let mut words = text.split_whitespace().map(str::to_owned);
        let (pid, noted, id) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let same = start_time(pid).is_ok_and(|start_time| start_time == noted);
        same.then_some(Self { pid, start_time: noted, id, note })
    }

    /// Records that process `pid` runs the lab `id`.
    pub fn note(ingredients: &LabPrerequisites, pid: u32, id: &str) -> anyhow::Result<()> {
        let start_time = start_time(pid).context("the lab has already ended")?;
        let note = note(ingredients);
        fs::write(&note, format!("{pid} {start_time} {id}\n"))
            .with_context(|| format!("failed to write {}", note.display()))
    }

    /// Stops the lab and waits until its remains are removed.
    pub fn end(self) -> anyhow::Result<()> {
        signal(self.pid, &self.start_time, Signal::TERM)?;
        fs::remove_file(&self.note)
            .with_context(|| format!("failed to remove {}", self.note.display()))
    }

    /// Replaces this process by a program in one of the machines, or by a shell if `words` is
    /// empty.
    pub fn enter(&self, machine: &str, words: &[String]) -> anyhow::Result<()> {
        let leader = self.leader(machine)?;
        let shell = ["bash".to_owned(), "--login".to_owned()];
        let words = if words.is_empty() { shell.as_slice() } else { words };
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(leader.to_string());
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]);
        command.arg("--").args(words).stdin(Stdio::inherit());
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Err(command.exec()).context("failed to start nsenter")
    }

    /// Returns the host's process id of a machine's first process.
    fn leader(&self, machine: &str) -> anyhow::Result<u32> {
        let group = format!("/mco-lab-{}/{machine}", self.id);
        for entry in fs::read_dir("/proc").context("failed to read /proc")?.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            let status = read("status");
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let numbers: Vec<&str> = numbers.unwrap_or_default().split_whitespace().collect();
            // Process ids in the host, in the lab and in the machine. A process in a pod has a
            // fourth one.
            if let [_, _, "1"] = numbers.as_slice()
                && read("cgroup").contains(&group)
            {
                return Ok(pid);
            }
        }
        bail!("machine {machine} of the lab is not running")
    }
}

fn note(ingredients: &LabPrerequisites) -> PathBuf {
    ingredients.labs().join("background")
}
