//! Blank machines, which join a running lab.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
};

use anyhow::Context as _;

use super::{
    Lab, Machine,
    control_plane::{self, ADDRESS},
    disk::Contents,
    relay,
    run::{output, run},
};

impl Lab {
    /// Adds a blank machine with the next free number, which is not booted yet: Debian, containerd,
    /// the kubelet's program, and `program` as `/usr/local/bin/mco`.
    pub fn add_blank_machine(&self, number: u8, program: &Path) -> anyhow::Result<Machine> {
        let machine = Machine::make(
            number,
            &self.folder,
            &self.base,
            &self.namespaces,
            &self.cgroups,
            Contents::Blank,
        )?;
        // Strips debug information, which makes a test binary many times larger.
        let to = machine.root().join("usr/local/bin/mco");
        run("strip", Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(program))?;
        Ok(machine)
    }

    /// Makes a port of a machine reachable at the control plane's address, as a load balancer does.
    /// Returns the address.
    pub fn balance(&self, machine: &Machine, port: u16) -> anyhow::Result<SocketAddr> {
        let network = self.namespaces.network();
        let target = format!("{}:{port}", machine.address()).parse();
        let near = relay::start(&network, target.context("the machine has no address")?)?;
        relay::listen_in_lab(&network, ADDRESS.into(), near)
    }

    /// Runs a program of this host in the lab's network. A failure of the program is not an error.
    pub fn run_in_network(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.namespaces.enter(control_plane::GROUP);
        output(&words.join(" "), command.args(words))
    }
}
