//! A single machine without Kubernetes: its own systemd, and no unit that needs an API server.

use std::{net::SocketAddr, path::Path, process::Command, sync::Arc};

use anyhow::Context as _;

use super::{
    LabPrerequisites, Machine, cgroup::Cgroups, control_plane::ADDRESS, disk::Contents,
    folder::LabFolder, image, namespaces::Namespaces, relay, run::run,
};

/// Units that make a machine a node.
const NODE_UNITS: [&str; 3] = ["kubelet.service", "containerd.service", "lab-images.service"];

/// A running machine without Kubernetes. Removed when dropped.
#[derive(Debug)]
pub struct StandaloneMachine {
    machine: Machine,
    namespaces: Arc<Namespaces>,
    // The lock on the folder lasts as long as the machine.
    _folder: LabFolder,
}

impl StandaloneMachine {
    /// Creates a machine and boots it, with `program` as `/usr/local/bin/mco`.
    pub fn up(ingredients: &LabPrerequisites, program: &Path) -> anyhow::Result<Self> {
        let folder = LabFolder::make(&ingredients.labs())?;
        let cgroups = Arc::new(Cgroups::make(&folder)?);
        let namespaces = Arc::new(Namespaces::make(&folder, &ingredients.base, &ingredients.kube)?);
        image::make(&folder.path.join("images"), None)?;
        let machine = Machine::make(
            1,
            &folder,
            &ingredients.base,
            &namespaces,
            &cgroups,
            Contents::Node(&[]),
        )?;
        let disk = machine.disk()?;
        for unit in NODE_UNITS {
            let link = format!("/etc/systemd/system/multi-user.target.wants/{unit}");
            disk.remove(&link).with_context(|| format!("failed to disable {unit}"))?;
        }
        // Strips debug information, which makes a test binary many times larger.
        disk.create_directory("/usr/local/bin")
            .context("failed to create a folder for programs")?;
        let to = machine.root().join("usr/local/bin/mco");
        run("strip", Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(program))?;
        let lone = Self { machine, namespaces, _folder: folder };
        lone.machine.boot()?;
        Ok(lone)
    }

    /// Makes a server on the host's loopback address reachable from the machine. Returns the
    /// address to use there.
    pub fn expose_host_server(&self, server: SocketAddr) -> anyhow::Result<SocketAddr> {
        relay::listen_in_lab(&self.namespaces.network(), ADDRESS.into(), server)
    }

    /// Returns the machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }
}

impl Drop for StandaloneMachine {
    fn drop(&mut self) {
        drop(self.namespaces.end());
    }
}
