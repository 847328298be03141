//! The namespaces of a lab: PID, mount and network. All processes of the lab run inside and die
//! with the first process. Mounts and links of the lab are not visible outside.

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
    folder::{LabFolder, SUPERVISE_SCRIPT},
    run::{run, stdout},
};

const NAMESPACES_SCRIPT: &str = include_str!("../../lab/namespaces.sh");

/// The lab's folder, as seen inside.
pub(super) const LAB: &str = "/run/lab";
/// The root file system of the machines, as seen inside.
pub(super) const BASE: &str = "/run/base";
/// The Kubernetes programs, as seen inside.
pub(super) const KUBE: &str = "/run/kube";

/// The namespaces of a lab.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// Supervisor of the first process, which lives as long as the supervisor's input is open.
    /// Removes the remains of the namespaces.
    supervisor: Mutex<Option<Child>>,
    /// Process id of the first process.
    init: u32,
}

impl Namespaces {
    /// Creates the namespaces.
    pub(super) fn make(folder: &LabFolder, base: &Path, kube: &Path) -> anyhow::Result<Self> {
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISE_SCRIPT, "supervise"])
            .arg(&folder.path)
            .args([NAMESPACES_SCRIPT.as_ref(), base.as_os_str(), kube.as_os_str()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C must not reach the supervisor, which still has to clean up.
            .process_group(0)
            .spawn()
            .context("failed to start the lab's first process")?;
        let mut line = String::new();
        if let Some(output) = supervisor.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.context("failed to read from the lab's first process")?;
        }
        if line != "ready\n" {
            let output =
                supervisor.wait_with_output().context("failed to read from the supervisor")?;
            stdout("creating the lab's namespaces", &output)?;
            bail!("failed to create the namespaces of the lab");
        }
        let unshare = child(supervisor.id())?;
        let init = child(unshare)?;
        folder.record_init(init)?;
        Ok(Self { supervisor: Mutex::new(Some(supervisor)), init })
    }

    /// Returns a command that runs a program inside, in the cgroup `group` of the lab.
    pub(super) fn enter(&self, group: &str) -> Command {
        let mut command = self.command();
        let join = "while read -r dir; do echo 0 >\"$dir/$0/cgroup.procs\"; done </run/lab/cgroups; exec \"$@\"";
        command.args(["sh", "-ec", join, group]);
        command
    }

    /// Returns a command that runs a short program inside, in the cgroup of this process.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--pid", "--target"]).arg(self.init.to_string());
        command.arg("--").current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs a shell script inside.
    pub(super) fn shell(&self, what: &str, script: &str) -> anyhow::Result<String> {
        run(what, self.command().args(["sh", "-euc", script]))
    }

    /// Returns the outside path of a file inside.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }

    /// Returns the path of the network namespace, for `setns`.
    pub(super) fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.init))
    }

    /// Ends all processes inside and waits until their remains are removed.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        let supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut supervisor) = supervisor else { return Ok(()) };
        // Waiting closes the supervisor's input, which ends the first process.
        let status = supervisor.wait().context("failed to wait for the end of the lab")?;
        anyhow::ensure!(status.success(), "failed to remove the lab: {status}");
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// Returns the first child of a process.
pub(super) fn child(pid: u32) -> anyhow::Result<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let what = || format!("failed to find the child of process {pid}");
    let children = fs::read_to_string(path).with_context(what)?;
    let first = children.split_whitespace().next().and_then(|first| first.parse().ok());
    first.with_context(what)
}
