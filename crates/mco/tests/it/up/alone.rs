//! The whole system as one process: `mco up`.

#![expect(clippy::disallowed_methods, reason = "the test starts programs and reads their output")]

use std::{fs, path::PathBuf, process::Command};

use mco_testkit::{
    PATIENCE,
    api::{self, Process},
};
use rustix::process::Signal;

use super::cluster::{Runs, text};
use crate::workspace;

/// A running `mco up` with three masters and three workers.
pub(super) struct Up {
    folder: tempfile::TempDir,
    process: Process,
    starts: usize,
}

impl Up {
    /// Starts `mco up` in a new directory.
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = spawn(&folder, 0, &[]);
        let mut up = Self { folder, process, starts: 1 };
        up.wait_ready();
        up
    }

    fn wait_ready(&mut self) {
        let output = log(&self.folder, self.starts - 1);
        let ready = || {
            let said = fs::read_to_string(&output).unwrap_or_default();
            said.contains("Try in another terminal") && said.contains("get mc,mcp,nodes")
        };
        self.process.wait_ready(PATIENCE, ready).unwrap();
    }

    /// Returns its state directory.
    pub(super) fn dir(&self) -> PathBuf {
        self.folder.path().join("mco")
    }

    /// Runs `mco` with that directory.
    pub(super) fn mco(&self, args: &[&str]) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        command.args(args).arg("--dir").arg(self.dir()).env_remove("KUBECONFIG");
        command.env("NO_COLOR", "1").current_dir(workspace()).output().unwrap()
    }

    /// Starts another process on the same directory.
    pub(super) fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    /// Starts another process on the same directory, with these flags.
    pub(super) fn start_again_with(&mut self, flags: &[&str]) {
        self.process = spawn(&self.folder, self.starts, flags);
        self.starts += 1;
        self.wait_ready();
    }

    /// Sends SIGINT and waits until the process has exited with success.
    pub(super) fn interrupt(&mut self) {
        self.process.signal(Signal::INT).unwrap();
        self.wait_end();
    }

    /// Stops the cluster and deletes its state.
    pub(super) fn down_and_purge(&mut self) -> String {
        let said = text(&self.mco(&["down", "--purge"]));
        self.wait_end();
        said
    }

    fn wait_end(&mut self) {
        let status = self.process.wait(PATIENCE).unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Runs for Up {
    fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    fn nodes(&self) -> PathBuf {
        self.dir().join("nodes")
    }

    fn status_lines(&self) -> String {
        fs::read_to_string(log(&self.folder, self.starts - 1)).unwrap_or_default()
    }

    fn server(&self) -> Option<(String, PathBuf)> {
        let lines = self.status_lines();
        let address = lines.lines().find_map(|line| line.strip_prefix("Config server"))?;
        let address = address.trim().rsplit_once("/config/")?.0.to_owned();
        Some((address, self.dir().join("server/ca.crt")))
    }

    fn logs(&self) -> String {
        format!("mco up:\n{}", self.process.log())
    }

    fn kill_and_start_again(&mut self) {
        self.process.kill().unwrap();
        self.start_again();
    }
}

fn log(folder: &tempfile::TempDir, start: usize) -> PathBuf {
    folder.path().join(format!("output-{start}"))
}

fn spawn(folder: &tempfile::TempDir, start: usize, flags: &[&str]) -> Process {
    let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
    command.args(["up", "--verbose", "--dir"]).arg(folder.path().join("mco")).args(flags);
    Process::start("mco up", &mut command, &log(folder, start)).unwrap()
}
