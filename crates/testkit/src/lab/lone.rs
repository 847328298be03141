//! One machine that is no node: its own systemd, and nothing that would expect an API server.

use std::{net::SocketAddr, path::Path, process::Command, sync::Arc};

use anyhow::Context as _;

use super::{
    Ingredients, Machine, cgroup::Groups, image, place::Place, plane::ADDRESS, relay, run::run,
    space::Space,
};

/// Units that make a machine a node.
const OF_NODES: [&str; 3] = ["kubelet.service", "containerd.service", "lab-images.service"];

/// A machine that runs. It ends when this goes out of scope.
#[derive(Debug)]
pub struct Lone {
    machine: Machine,
    space: Arc<Space>,
    // Locked as long as the machine is there.
    _place: Place,
}

impl Lone {
    /// Makes one and boots it, with `program` as `/usr/local/bin/mco`.
    pub fn up(ingredients: &Ingredients, program: &Path) -> anyhow::Result<Self> {
        let place = Place::make(&ingredients.labs())?;
        let groups = Arc::new(Groups::make(&place)?);
        let space = Arc::new(Space::make(&place, &ingredients.base, &ingredients.kube)?);
        image::make(&place.folder.join("images"), None)?;
        let machine = Machine::make(1, &place, &ingredients.base, &space, &groups, &[])?;
        let disk = machine.disk()?;
        for unit in OF_NODES {
            let link = format!("/etc/systemd/system/multi-user.target.wants/{unit}");
            disk.remove(&link).with_context(|| format!("cannot switch {unit} off"))?;
        }
        // The debug part of a binary for tests is many times as large as what runs of it.
        disk.create_directory("/usr/local/bin").context("cannot make a folder for programs")?;
        let to = machine.root().join("usr/local/bin/mco");
        run("strip", Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(program))?;
        let lone = Self { machine, space, _place: place };
        lone.machine.boot()?;
        Ok(lone)
    }

    /// Lets the machine reach a server on this machine's loopback address; says by which address.
    pub fn admit(&self, server: SocketAddr) -> anyhow::Result<SocketAddr> {
        relay::admit(&self.space.network(), ADDRESS.into(), server)
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        drop(self.space.end());
    }
}
