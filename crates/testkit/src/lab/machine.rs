//! A machine of the lab: a container with its own systemd, kubelet and containerd that can be
//! booted, rebooted, disconnected and killed.

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
    cgroup::Cgroups,
    disk::{Contents, Identity, write_disk},
    namespaces::{BASE, LAB, Namespaces},
    ostree::BootLoader,
    run::{output_in_machine, run, stdout},
};

/// A machine of the lab.
#[derive(Debug)]
pub struct Machine {
    identity: Identity,
    namespaces: Arc<Namespaces>,
    power: Arc<Power>,
}

/// The network connection of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The machine reaches the other machines.
    Connected,
    /// The machine sends and receives nothing.
    Cut,
}

impl Machine {
    /// Creates the disk of machine number `index`, counted from one.
    pub(super) fn make(
        index: u8,
        folder: &super::folder::LabFolder,
        base: &std::path::Path,
        namespaces: &Arc<Namespaces>,
        cgroups: &Arc<Cgroups>,
        contents: Contents<'_>,
    ) -> anyhow::Result<Self> {
        let identity = identity(index);
        let name = identity.name.clone();
        write_disk(&folder.path.join(&name), base, &identity, contents)?;
        cgroups.add(&name)?;
        let (disk, root) = (format!("{LAB}/{name}"), root(&name));
        // volatile: the disk is removed with the lab, so writes need not be synced to the host's
        // disk.
        let mount = format!(
            "mount -t overlay {name} \
             -o volatile,lowerdir={BASE},upperdir={disk}/upper,workdir={disk}/work {root}\n\
             mount --bind {disk}/var {root}/var"
        );
        namespaces.shell(&format!("mounting the disk of {name}"), &mount)?;
        Ok(Self::new(identity, namespaces, cgroups, None))
    }

    /// Creates machine number `index` with the disk of a boot loader.
    pub(super) fn with_boot_loader(
        index: u8,
        namespaces: &Arc<Namespaces>,
        cgroups: &Arc<Cgroups>,
        loader: BootLoader,
    ) -> anyhow::Result<Self> {
        let identity = identity(index);
        cgroups.add(&identity.name)?;
        Ok(Self::new(identity, namespaces, cgroups, Some(loader)))
    }

    fn new(
        identity: Identity,
        namespaces: &Arc<Namespaces>,
        cgroups: &Arc<Cgroups>,
        loader: Option<BootLoader>,
    ) -> Self {
        let power = Power::new(identity.clone(), namespaces.clone(), cgroups.clone(), loader);
        Self { identity, namespaces: namespaces.clone(), power: Arc::new(power) }
    }

    /// Returns the name of the machine, which is also that of its node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Returns the address in the lab's network.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.identity.address
    }

    /// Boots the machine and waits until its systemd is up.
    pub fn boot(&self) -> anyhow::Result<()> {
        self.power.power_on()?;
        self.power.wait_up()
    }

    /// Starts the boot without waiting for it.
    pub fn start(&self) -> anyhow::Result<()> {
        self.power.power_on()
    }

    /// Reboots the machine with `systemctl reboot` and waits until it is up again.
    pub fn reboot(&self) -> anyhow::Result<()> {
        let boots = self.power.boots();
        // The reboot may interrupt the command before it returns.
        drop(self.run(&["systemctl", "reboot"])?);
        self.power.wait_boot_after(boots)
    }

    /// Runs `act`, which makes the machine reboot by itself, and waits until the machine is up
    /// again.
    pub fn wait_reboot_by(&self, act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let boots = self.power.boots();
        act()?;
        self.power.wait_boot_after(boots)
    }

    /// Kills all processes of the machine at once.
    pub fn power_cut(&self) -> anyhow::Result<()> {
        self.power.cut()
    }

    /// Connects or disconnects the network of the machine.
    pub fn set_network(&self, network: Network) -> anyhow::Result<()> {
        self.power.set_network(network)
    }

    /// Runs a program in the machine. A failure of the program is not an error.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<Output> {
        let pid = self.power.leader()?;
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(pid.to_string());
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]);
        command.arg("--").args(words).current_dir("/");
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        output_in_machine(&format!("run {} in {}", words.join(" "), self.name()), &mut command)
    }

    /// Runs a program in the machine and returns its output. Fails if the program fails.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        let what = format!("{} in {}", words.join(" "), self.name());
        stdout(&what, &self.run(words)?)
    }

    /// Opens the machine's disk from outside. Works for stopped machines too.
    pub fn disk(&self) -> anyhow::Result<Root> {
        let path = self.root();
        Root::open(&path).with_context(|| format!("failed to open the disk of {}", self.name()))
    }

    /// Reads a file of the disk. Returns `None` if the file does not exist.
    pub fn read(&self, path: &str) -> anyhow::Result<Option<String>> {
        let read = self.disk()?.read(path);
        let read = read.with_context(|| format!("failed to read {path} of {}", self.name()))?;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Writes a file of the disk from outside, unnoticed by the machine.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let written = self.disk()?.write(path, text.as_bytes(), 0o644);
        written.with_context(|| format!("failed to write {path} of {}", self.name()))
    }

    /// Returns the last lines of the journal, of one unit or of all. Works for stopped machines
    /// too.
    pub fn journal(&self, unit: Option<&str>, lines: u32) -> anyhow::Result<String> {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--output=short-precise", "--lines"]);
        command.arg(lines.to_string()).arg("--directory").arg(self.root().join("var/log/journal"));
        if let Some(unit) = unit {
            command.args(["--unit", unit]);
        }
        run(&format!("reading the journal of {}", self.name()), &mut command)
    }

    /// Returns name and log of every container of a namespace's pods, read from the disk.
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

    /// Returns the console output of the machine's systemd.
    #[must_use]
    pub fn console(&self) -> String {
        self.power.console()
    }

    /// Returns the path of the disk for programs that run in the lab.
    #[must_use]
    pub fn root_in_lab(&self) -> String {
        root(self.name())
    }

    pub(super) fn root(&self) -> PathBuf {
        self.namespaces.path(&root(self.name()))
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
