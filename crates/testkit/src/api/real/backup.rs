//! Backups of etcd: a snapshot of a running server, and its restoration, after which all resource
//! versions are those of the snapshot.

#![expect(clippy::disallowed_methods, reason = "starts etcdctl, and replaces the data directory")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::{KubeApiServer, launch};

/// The program that saves and restores snapshots.
const PROGRAM: &str = "etcdctl";

/// A snapshot of etcd.
#[derive(Clone, Debug)]
pub struct Snapshot(PathBuf);

impl KubeApiServer {
    /// Saves a snapshot of etcd; returns none if `etcdctl` is not installed.
    pub fn save_snapshot(&self) -> anyhow::Result<Option<Snapshot>> {
        if Command::new(PROGRAM).arg("version").output().is_err() {
            return Ok(None);
        }
        let path = self.dir.join("snapshot.db");
        let [client, _] = self.storage;
        let mut command = etcdctl();
        command.arg(format!("--endpoints=http://127.0.0.1:{client}"));
        run(command.args(["snapshot", "save"]).arg(&path))?;
        Ok(Some(Snapshot(path)))
    }

    /// Stops the API server and etcd, replaces the data of etcd by the snapshot, and starts both at
    /// the same addresses.
    pub fn restore_snapshot(&mut self, Snapshot(path): &Snapshot) -> anyhow::Result<()> {
        self.server.kill()?;
        self.etcd.kill()?;
        let data = self.dir.join("etcd");
        fs::remove_dir_all(&data)
            .with_context(|| format!("failed to remove {}", data.display()))?;
        restore(path, &data, self.storage)?;
        let (server, etcd) = launch(&self.programs, &self.settings, self.port, self.storage)?;
        (self.server, self.etcd) = (server, etcd);
        Ok(())
    }
}

fn restore(snapshot: &Path, data: &Path, [_, peer]: [u16; 2]) -> anyhow::Result<()> {
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = etcdctl();
    command.args(["snapshot", "restore"]).arg(snapshot).arg("--data-dir").arg(data);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    run(command.args(["--initial-advertise-peer-urls", &peer]))
}

fn etcdctl() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("ETCDCTL_API", "3");
    command
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().context("failed to start etcdctl")?;
    if !output.status.success() {
        bail!("etcdctl failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
