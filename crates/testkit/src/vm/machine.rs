//! A running machine, and a saved one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use base64::Engine as _;

use super::{
    CommandOutput, Disk, Layout, VmFolder, VmPrerequisites,
    disk::copy_part,
    qemu::{Disks, Qemu, Start},
    run::run,
};
use crate::PATIENCE;

/// Size of the file system of `/opt`. The same for all machines, because a saved one remembers it.
const OPT_MEGABYTES: u32 = 256;
/// The longest text of one command.
const MAX_TEXT: usize = 64 << 10;

/// A running machine. Its power is cut when dropped.
#[derive(Debug)]
pub struct Vm {
    qemu: Qemu,
    disks: Disks,
    layout: Layout,
    run: PathBuf,
    folder: Arc<VmFolder>,
}

/// A machine that was saved while it ran.
#[derive(Clone, Debug)]
pub struct SavedMachine {
    pub(super) disk: Disk,
    pub(super) state: PathBuf,
    pub(super) usr: PathBuf,
    /// File system of `/opt`. Another one may be used if the saved machine had not mounted it.
    pub(super) opt: PathBuf,
}

impl Vm {
    /// Boots a machine from its disk, by its boot loader, with the other disks of `like`.
    pub fn boot(folder: &Arc<VmFolder>, disk: &Disk, like: &SavedMachine) -> anyhow::Result<Self> {
        let disks = Disks {
            root: disk.path().to_owned(),
            usr: like.usr.clone(),
            opt: like.opt.clone(),
            log: None,
        };
        Self::start(folder, disks, disk.layout(), &Start::BootLoader)
    }

    pub(super) fn start(
        folder: &Arc<VmFolder>,
        disks: Disks,
        layout: Layout,
        start: &Start,
    ) -> anyhow::Result<Self> {
        let run = folder.new_path("run");
        let qemu = Qemu::start(&run, &disks, start)?;
        let mut vm = Self { qemu, disks, layout, run, folder: Arc::clone(folder) };
        let up = vm.run("true");
        up.with_context(|| format!("the machine did not start:\n{}", vm.console()))?;
        Ok(vm)
    }

    /// Runs a shell command of one line. A failure of the command is not an error.
    pub fn run(&mut self, command: &str) -> anyhow::Result<CommandOutput> {
        self.begin(command)?;
        self.finish()
    }

    /// Runs a shell command and returns its output. Fails if the command fails.
    pub fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        let CommandOutput { code, text } = self.run(command)?;
        anyhow::ensure!(code == 0, "{command} failed with exit code {code}: {text}");
        Ok(text.trim_end().to_owned())
    }

    /// Starts a shell command of one line.
    pub fn begin(&mut self, command: &str) -> anyhow::Result<()> {
        self.qemu.channel.start(command)
    }

    /// Waits until the command that was started prints a line for which `look` returns true.
    /// Returns false if the command ends before.
    pub fn wait_line(&mut self, look: impl FnMut(&str) -> bool) -> anyhow::Result<bool> {
        Ok(self.qemu.channel.read(PATIENCE, look)?.0.is_none())
    }

    /// Waits until the command that was started has ended.
    pub fn finish(&mut self) -> anyhow::Result<CommandOutput> {
        let (code, text) = self.qemu.channel.read(PATIENCE, |_| false)?;
        Ok(CommandOutput { code: code.context("the command has not ended")?, text })
    }

    /// Waits until the command that was started has ended, but not longer than `limit`. Returns
    /// `None` if it still runs.
    pub fn finish_within(&mut self, limit: Duration) -> anyhow::Result<Option<CommandOutput>> {
        let (code, text) = self.qemu.channel.read_for(limit)?;
        Ok(code.map(|code| CommandOutput { code, text }))
    }

    /// Writes a file of the machine.
    pub fn write(&mut self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.ask(&format!("mkdir -p $(dirname {path}); : > {path}"))?;
        for part in bytes.chunks(MAX_TEXT) {
            let text = base64::engine::general_purpose::STANDARD.encode(part);
            self.ask(&format!("echo {text} | base64 -d >> {path}"))?;
        }
        Ok(())
    }

    /// Returns the output of the machine's console.
    #[must_use]
    pub fn console(&self) -> String {
        let bytes = fs::read(self.run.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the size of the record of writes so far; 0 without one.
    #[must_use]
    pub fn log_size(&self) -> u64 {
        let log = self.disks.log.as_ref().and_then(|log| fs::metadata(log).ok());
        log.map_or(0, |stat| stat.len())
    }

    /// Returns the path of the record of writes.
    #[must_use]
    pub fn log(&self) -> Option<&Path> {
        self.disks.log.as_deref()
    }

    /// Saves the machine and ends it.
    pub fn save(mut self) -> anyhow::Result<SavedMachine> {
        let state = self.folder.new_path("state");
        self.qemu.save(&state)?;
        let disk = self.cut_power()?;
        Ok(SavedMachine { disk, state, usr: self.disks.usr.clone(), opt: self.disks.opt.clone() })
    }

    /// Cuts the power: kills QEMU at once. Returns the disk as it is then.
    pub fn cut(mut self) -> anyhow::Result<Disk> {
        self.cut_power()
    }

    fn cut_power(&mut self) -> anyhow::Result<Disk> {
        self.qemu.kill()?;
        Ok(Disk::new(self.disks.root.clone(), self.layout))
    }

    /// Shuts the machine down and returns its disk.
    pub fn power_off(mut self) -> anyhow::Result<Disk> {
        self.begin("systemctl poweroff")?;
        self.qemu.wait_off(PATIENCE)?;
        Ok(Disk::new(self.disks.root.clone(), self.layout))
    }

    /// Cuts the power and boots the machine again by its boot loader.
    pub fn cut_and_boot(self) -> anyhow::Result<Self> {
        let (folder, disks, layout) = (Arc::clone(&self.folder), self.disks.clone(), self.layout);
        self.cut()?;
        Self::start(&folder, disks, layout, &Start::BootLoader)
    }

    /// Shuts the machine down and boots it again by its boot loader.
    pub fn reboot(self) -> anyhow::Result<Self> {
        let (folder, disks, layout) = (Arc::clone(&self.folder), self.disks.clone(), self.layout);
        self.power_off()?;
        Self::start(&folder, disks, layout, &Start::BootLoader)
    }
}

impl Vm {
    /// Waits until the machine reboots by itself, and boots it by its boot loader.
    pub fn follow_reboot(mut self) -> anyhow::Result<Self> {
        let (folder, disks, layout) = (Arc::clone(&self.folder), self.disks.clone(), self.layout);
        // QEMU ends at a reboot; a new one boots faster.
        self.qemu.wait_off(PATIENCE).context("the machine did not reboot")?;
        Self::start(&folder, disks, layout, &Start::BootLoader)
    }

    /// Gives the machine a network, also after a reboot. Returns the address of the host.
    pub fn connect(&mut self) -> anyhow::Result<&'static str> {
        let network = "[Match]\nName=eth0\n[Network]\nAddress=10.0.2.15/24\n";
        self.write("/etc/systemd/network/10-host.network", network.as_bytes())?;
        self.ask("systemctl enable --now systemd-networkd")?;
        Ok("10.0.2.2")
    }
}

impl SavedMachine {
    /// Returns the disk as it was when the machine was saved.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the same machine with `program` as `/opt/mco`, once `/opt` is mounted.
    pub fn with_program(&self, folder: &VmFolder, program: &Path) -> anyhow::Result<Self> {
        let (stage, opt) = (folder.new_path("stage"), folder.new_path("opt"));
        fs::create_dir(&stage).context("failed to create a folder")?;
        // Without debug information, which makes a test binary many times larger.
        let mut strip = Command::new("strip");
        run(
            "strip",
            strip.arg("--strip-debug").arg("-o").arg(stage.join("mco")).arg(program),
            &[0],
        )?;
        make_opt(&stage, &opt)?;
        fs::remove_dir_all(&stage).context("failed to remove a folder")?;
        Ok(Self { opt, ..self.clone() })
    }

    /// Continues the machine with a copy of its disk.
    pub fn restore(&self, folder: &Arc<VmFolder>) -> anyhow::Result<Vm> {
        self.restore_with(folder, None)
    }

    /// Continues the machine with a copy of its disk, and records every write to it.
    pub fn restore_recorded(&self, folder: &Arc<VmFolder>) -> anyhow::Result<Vm> {
        let log = folder.new_path("log");
        fs::write(&log, b"").context("failed to create a record of writes")?;
        self.restore_with(folder, Some(log))
    }

    fn restore_with(&self, folder: &Arc<VmFolder>, log: Option<PathBuf>) -> anyhow::Result<Vm> {
        let root = folder.new_path("disk");
        copy_part(self.disk.path(), 0..u64::MAX, &root)?;
        let disks = Disks { root, usr: self.usr.clone(), opt: self.opt.clone(), log };
        Vm::start(folder, disks, self.disk.layout(), &Start::Saved(self.state.clone()))
    }

    /// Returns a booted machine without any config, saved once for all tests.
    pub fn find(prerequisites: &VmPrerequisites, layout: Layout) -> anyhow::Result<Self> {
        super::install::saved(prerequisites, layout)
    }
}

/// Creates the file system of `/opt` with the files of a folder.
pub(super) fn make_opt(folder: &Path, image: &Path) -> anyhow::Result<()> {
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-O", "^has_journal", "-d"]).arg(folder).arg(image);
    run("mkfs.ext4", make.arg(format!("{OPT_MEGABYTES}m")), &[0]).map(drop)
}
