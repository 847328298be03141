//! The namespaces of a lab: processes, mounts and network of its own. Everything that the lab runs
//! is inside and dies with their first process; nothing that it mounts or links is seen outside.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, bail};

use super::{
    place::{KEEP, Place},
    run::{run, said},
};

const SPACE: &str = include_str!("../../lab/space.sh");

/// The lab's folder, as seen inside.
pub(super) const LAB: &str = "/run/lab";
/// The root of the machines, as seen inside.
pub(super) const BASE: &str = "/run/base";
/// The programs of Kubernetes, as seen inside.
pub(super) const KUBE: &str = "/run/kube";

/// The namespaces of a lab.
#[derive(Debug)]
pub(super) struct Space {
    /// Waits for the first process, which lives as long as the keeper's input is open, and removes
    /// what outlives it.
    keeper: Mutex<Option<Child>>,
    /// The first process.
    init: u32,
}

impl Space {
    /// Makes them.
    pub(super) fn make(place: &Place, base: &Path, kube: &Path) -> anyhow::Result<Self> {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEP, "keep"])
            .arg(&place.folder)
            .args([SPACE.as_ref(), base.as_os_str(), kube.as_os_str()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for us; the keeper still has to clean up then.
            .process_group(0)
            .spawn()
            .context("cannot start the lab's first process")?;
        let mut line = String::new();
        if let Some(output) = keeper.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.context("cannot hear from the lab's first process")?;
        }
        if line != "ready\n" {
            let output = keeper.wait_with_output().context("cannot hear from the keeper")?;
            said("making the lab's namespaces", &output)?;
            bail!("the lab's namespaces cannot be made");
        }
        let unshare = child(keeper.id())?;
        let init = child(unshare)?;
        place.note_init(init)?;
        Ok(Self { keeper: Mutex::new(Some(keeper)), init })
    }

    /// A program inside; `group` is the cgroup of the lab that it runs in.
    pub(super) fn enter(&self, group: &str) -> Command {
        let mut command = self.look();
        let join = "while read -r dir; do echo 0 >\"$dir/$0/cgroup.procs\"; done </run/lab/cgroups; exec \"$@\"";
        command.args(["sh", "-ec", join, group]);
        command
    }

    /// A short program inside, in our own cgroup.
    pub(super) fn look(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--pid", "--target"]).arg(self.init.to_string());
        command.arg("--").current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs lines of shell inside.
    pub(super) fn shell(&self, what: &str, script: &str) -> anyhow::Result<String> {
        run(what, self.look().args(["sh", "-euc", script]))
    }

    /// A file of the inside, as seen from outside.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }

    /// The network namespace, to be entered by one of our threads.
    pub(super) fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.init))
    }

    /// Ends everything inside and waits until nothing is left.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut keeper) = keeper else { return Ok(()) };
        // Waiting closes its input, which is what the first process lives by.
        let status = keeper.wait().context("cannot wait for the end of the lab")?;
        anyhow::ensure!(status.success(), "the lab cannot be removed: {status}");
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// The first child of a process.
pub(super) fn child(pid: u32) -> anyhow::Result<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let what = || format!("cannot find the child of process {pid}");
    let children = fs::read_to_string(path).with_context(what)?;
    let first = children.split_whitespace().next().and_then(|first| first.parse().ok());
    first.with_context(what)
}
