//! The namespaces of a lab: processes, mounts and network of its own. Everything that the lab runs
//! is inside and dies with their first process; nothing that it mounts or links is seen outside.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use super::{
    error::{LabError, run, said, trying},
    place::{KEEP, Place},
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
    /// Waits for the first process and removes what outlives it.
    keeper: Child,
    /// The first process lives as long as this is open.
    life: Option<ChildStdin>,
    /// The first process.
    init: u32,
}

impl Space {
    /// Makes them.
    pub(super) fn make(place: &Place, base: &Path, kube: &Path) -> Result<Self, LabError> {
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
            .map_err(trying("start the lab's first process"))?;
        let life = keeper.stdin.take();
        let mut line = String::new();
        if let Some(output) = keeper.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(trying("hear from the lab's first process"))?;
        }
        if line != "ready\n" {
            let output = keeper.wait_with_output().map_err(trying("hear from the keeper"))?;
            said("making the lab's namespaces", &output)?;
            return Err(LabError::Missing("its namespaces cannot be made".to_owned()));
        }
        let unshare = child(keeper.id())?;
        let init = child(unshare)?;
        place.note_init(init)?;
        Ok(Self { keeper, life, init })
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
    pub(super) fn shell(&self, what: &str, script: &str) -> Result<String, LabError> {
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
    pub(super) fn end(&mut self) -> Result<(), LabError> {
        drop(self.life.take());
        let status = self.keeper.wait().map_err(trying("wait for the end of the lab"))?;
        if status.success() {
            return Ok(());
        }
        Err(LabError::Command { what: "removing the lab".to_owned(), said: status.to_string() })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// The first child of a process.
pub(super) fn child(pid: u32) -> Result<u32, LabError> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let what = || format!("find the child of process {pid}");
    let children = fs::read_to_string(path).map_err(trying(what()))?;
    let first = children.split_whitespace().next().and_then(|first| first.parse().ok());
    first.ok_or_else(|| LabError::Command { what: what(), said: "it has none".to_owned() })
}
