//! The lab that a person has: it runs in the background until it is told to end.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use super::{
    Ingredients,
    place::{born, signal},
};

/// A lab that runs in the background.
#[derive(Debug)]
pub struct Background {
    pid: u32,
    born: String,
    /// The lab's name.
    id: String,
    note: PathBuf,
}

impl Background {
    /// The one that runs, if any does.
    #[must_use]
    pub fn find(ingredients: &Ingredients) -> Option<Self> {
        let note = note(ingredients);
        let text = fs::read_to_string(&note).ok()?;
        let mut words = text.split_whitespace().map(str::to_owned);
        let (pid, noted, id) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let same = born(pid).is_ok_and(|born| born == noted);
        same.then_some(Self { pid, born: noted, id, note })
    }

    /// Notes that process `pid` has lab `id`.
    pub fn note(ingredients: &Ingredients, pid: u32, id: &str) -> anyhow::Result<()> {
        let born = born(pid).context("the lab has ended already")?;
        let note = note(ingredients);
        fs::write(&note, format!("{pid} {born} {id}\n"))
            .with_context(|| format!("cannot write {}", note.display()))
    }

    /// Ends it and waits until nothing is left of it.
    pub fn end(self) -> anyhow::Result<()> {
        signal(self.pid, &self.born, Signal::TERM)?;
        fs::remove_file(&self.note).context("cannot forget the lab")
    }

    /// Becomes a program in one of its machines; a shell where there is none.
    pub fn enter(&self, machine: &str, words: &[String]) -> anyhow::Result<()> {
        let leader = self.leader(machine)?;
        let shell = ["bash".to_owned(), "--login".to_owned()];
        let words = if words.is_empty() { shell.as_slice() } else { words };
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(leader.to_string());
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]);
        command.arg("--").args(words).stdin(Stdio::inherit());
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Err(command.exec()).context("cannot start nsenter")
    }

    /// The first process of a machine, as the host numbers it.
    fn leader(&self, machine: &str) -> anyhow::Result<u32> {
        let group = format!("/mco-lab-{}/{machine}", self.id);
        for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            let status = read("status");
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let numbers: Vec<&str> = numbers.unwrap_or_default().split_whitespace().collect();
            // Numbered by the host, by the lab and by itself; in a pod there is one more.
            if let [_, _, "1"] = numbers.as_slice()
                && read("cgroup").contains(&group)
            {
                return Ok(pid);
            }
        }
        bail!("the lab has no machine {machine} that is up")
    }
}

fn note(ingredients: &Ingredients) -> PathBuf {
    ingredients.labs().join("background")
}
