//! One machine of the lab: a container with its own systemd, kubelet and containerd, that can be
//! booted, rebooted, cut off and killed.

mod power;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use anyhow::Context as _;
use mco_host::Root;

use self::power::Power;
use super::{
    cgroup::Groups,
    furnish::{Identity, furnish},
    run::{output, run, said},
    space::{BASE, LAB, Space},
};

/// One machine.
#[derive(Debug)]
pub struct Machine {
    identity: Identity,
    space: Arc<Space>,
    power: Arc<Power>,
}

/// Whether a machine reaches the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// It does.
    Connected,
    /// Nothing goes in or out.
    Cut,
}

impl Machine {
    /// Makes the disk of machine number `index`, counted from one.
    pub(super) fn make(
        index: u8,
        place: &super::place::Place,
        base: &std::path::Path,
        space: &Arc<Space>,
        groups: &Arc<Groups>,
        credentials: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let identity = identity(index);
        let name = identity.name.clone();
        furnish(&place.folder.join(&name), base, &identity, credentials)?;
        groups.add(&name)?;
        let (disk, root) = (format!("{LAB}/{name}"), root(&name));
        // volatile: what is on it goes with the lab, so nothing need be forced to the host's disk.
        let mount = format!(
            "mount -t overlay {name} \
             -o volatile,lowerdir={BASE},upperdir={disk}/upper,workdir={disk}/work {root}\n\
             mount --bind {disk}/var {root}/var"
        );
        space.shell(&format!("mounting the disk of {name}"), &mount)?;
        let power = Arc::new(Power::new(identity.clone(), space.clone(), groups.clone()));
        Ok(Self { identity, space: space.clone(), power })
    }

    /// Its name, which is also that of its node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Its address in the lab's network.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.identity.address
    }

    /// Switches it on and waits until its systemd has come up.
    pub fn boot(&self) -> anyhow::Result<()> {
        self.power.switch_on()?;
        self.power.wait_up()
    }

    /// Switches it on; it comes up by itself.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        self.power.switch_on()
    }

    /// Reboots it from inside, as a person at its terminal would, and waits until it is up again.
    pub fn reboot(&self) -> anyhow::Result<()> {
        let boots = self.power.boots();
        // The answer may get lost in the reboot.
        drop(self.run(&["systemctl", "reboot"])?);
        self.power.wait_boot_after(boots)
    }

    /// Does something that makes it reboot by itself, and waits until it is up again.
    pub fn rebooted_by(&self, act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let boots = self.power.boots();
        act()?;
        self.power.wait_boot_after(boots)
    }

    /// Takes its power away: every process of it is gone at once.
    pub fn power_cut(&self) -> anyhow::Result<()> {
        self.power.cut()
    }

    /// Cuts its network, or connects it again.
    pub fn set_network(&self, network: Network) -> anyhow::Result<()> {
        self.power.set_network(network)
    }

    /// Runs a program inside.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        let pid = self.power.leader()?;
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(pid.to_string());
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]);
        command.arg("--").args(words).current_dir("/").stdin(std::process::Stdio::null());
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        output(&format!("run {} in {}", words.join(" "), self.name()), &mut command)
    }

    /// What a program inside writes, which must succeed.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        let what = format!("{} in {}", words.join(" "), self.name());
        said(&what, &self.run(words)?)
    }

    /// Its disk, seen from outside, whether it runs or not.
    pub fn disk(&self) -> anyhow::Result<Root> {
        let path = self.root();
        Root::open(&path).with_context(|| format!("cannot open the disk of {}", self.name()))
    }

    /// A file of its disk as text; none where there is none.
    pub fn read(&self, path: &str) -> anyhow::Result<Option<String>> {
        let read = self.disk()?.read(path);
        let read = read.with_context(|| format!("cannot read {path} of {}", self.name()))?;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Writes a file of its disk behind everybody's back.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let written = self.disk()?.write(path, text.as_bytes(), 0o644);
        written.with_context(|| format!("cannot write {path} of {}", self.name()))
    }

    /// The last lines of its journal, of one unit or of all; also of a machine that is off.
    pub fn journal(&self, unit: Option<&str>, lines: u32) -> anyhow::Result<String> {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--output=short-precise", "--lines"]);
        command.arg(lines.to_string()).arg("--directory").arg(self.root().join("var/log/journal"));
        if let Some(unit) = unit {
            command.args(["--unit", unit]);
        }
        run(&format!("reading the journal of {}", self.name()), &mut command)
    }

    /// Name and log of every container of a namespace's pods, as its disk has them.
    #[must_use]
    pub fn pod_logs(&self, namespace: &str) -> Vec<(String, String)> {
        let entries = |path: PathBuf| {
            let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        let ours = |pod: &PathBuf| {
            let name = pod.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{namespace}_"))
        };
        let pods = entries(self.root().join("var/log/pods")).into_iter().filter(ours);
        let logs = pods.flat_map(entries).flat_map(entries);
        logs.filter_map(|log| {
            let name = log.strip_prefix(self.root()).unwrap_or(&log).display().to_string();
            Some((name, fs::read_to_string(&log).ok()?))
        })
        .collect()
    }

    /// What its systemd wrote to the terminal.
    #[must_use]
    pub fn console(&self) -> String {
        self.power.console()
    }

    pub(super) fn root(&self) -> PathBuf {
        self.space.path(&root(self.name()))
    }
}

fn root(name: &str) -> String {
    format!("{LAB}/{name}/root")
}

pub(super) fn identity(index: u8) -> Identity {
    Identity {
        name: format!("m{index}"),
        address: format!("10.77.0.{}", 10 + index),
        pods: format!("10.244.{index}.0/24"),
    }
}
