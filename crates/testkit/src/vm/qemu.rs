//! One run of QEMU: from the power button to the power cut.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{channel::Channel, qmp::Qmp};
use crate::{
    PATIENCE,
    api::{Process, command, wait},
};

/// The way a machine starts.
#[derive(Clone, Debug)]
pub(super) enum Start {
    /// By the boot loader on its disk.
    BootLoader,
    /// By a kernel of the host, with these arguments.
    Kernel {
        /// Folder with `vmlinuz` and `initrd`.
        folder: PathBuf,
        /// Kernel arguments.
        arguments: String,
    },
    /// From a saved state.
    Saved(PathBuf),
}

/// The disks of a machine.
#[derive(Clone, Debug)]
pub(super) struct Disks {
    /// Disk with the root file system.
    pub(super) root: PathBuf,
    /// Read-only file system of `/usr`.
    pub(super) usr: PathBuf,
    /// Read-only file system of `/opt`.
    pub(super) opt: PathBuf,
    /// File that gets a record of every write to the root disk.
    pub(super) log: Option<PathBuf>,
}

/// A running QEMU. Killed when dropped.
#[derive(Debug)]
pub(super) struct Qemu {
    process: Process,
    control: Qmp,
    pub(super) channel: Channel,
}

impl Qemu {
    /// Starts QEMU with sockets and logs in `folder`. The machine runs when the call returns.
    pub(super) fn start(folder: &Path, disks: &Disks, start: &Start) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        let (control, channel) = (folder.join("control"), folder.join("channel"));
        let mut qemu = command("qemu-system-x86_64");
        qemu.current_dir("/").args(HARDWARE).args(drives(disks));
        qemu.arg("-chardev").arg(format!("file,id=s0,path={}", folder.join("console").display()));
        qemu.args(["-serial", "chardev:s0"]);
        qemu.arg("-chardev")
            .arg(format!("socket,id=c0,path={},server=on,wait=off", channel.display()));
        qemu.args(["-device", "virtserialport,chardev=c0,name=cmd"]);
        qemu.arg("-qmp").arg(format!("unix:{},server=on,wait=off", control.display()));
        add_start(&mut qemu, start);
        let mut process = Process::start("QEMU", &mut qemu, &folder.join("qemu.log"))?;
        let mut streams = Vec::new();
        for path in [&control, &channel] {
            process.wait_ready(PATIENCE, || {
                UnixStream::connect(path).map(|stream| streams.push(stream)).is_ok()
            })?;
        }
        let mut streams = streams.into_iter();
        let mut next = || streams.next().context("QEMU has two sockets");
        let (control, channel) = (Qmp::open(next()?)?, Channel::open(next()?));
        let mut qemu = Self { process, control, channel };
        if matches!(start, Start::Saved(_)) {
            qemu.wait_status("a restored machine", "query-status", "paused")?;
            qemu.control.execute("cont", &json!({}))?;
        }
        Ok(qemu)
    }

    /// Stops the machine and saves its state in a file. It does not run afterwards.
    pub(super) fn save(&mut self, state: &Path) -> anyhow::Result<()> {
        self.control.execute("stop", &json!({}))?;
        // Without a limit, because the machine does not run meanwhile.
        self.control.execute("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }))?;
        let uri = format!("exec:cat > {}", state.display());
        self.control.execute("migrate", &json!({ "uri": uri }))?;
        self.wait_status("the state to be saved", "query-migrate", "completed")
    }

    /// Waits until the answer to a query has this status.
    fn wait_status(&mut self, what: &str, query: &str, status: &str) -> anyhow::Result<()> {
        let control = &mut self.control;
        let seen = wait(what, PATIENCE, || match control.execute(query, &json!({})) {
            Ok(answer) if answer.get("status") == Some(&Value::from(status)) => Some(Ok(())),
            Ok(answer) if answer.get("status") == Some(&Value::from("failed")) => {
                Some(Err(anyhow::anyhow!("{what}: {answer}")))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        seen?.with_context(|| self.process.log())
    }

    /// Waits until the machine has switched itself off.
    pub(super) fn wait_off(&mut self, patience: Duration) -> anyhow::Result<()> {
        self.process.wait(patience).map(drop)
    }

    /// Cuts the power: kills QEMU at once.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }
}

/// The machine without disks and connections. A saved state needs exactly the same machine.
const HARDWARE: [&str; 24] = [
    "-accel",
    "tcg,tb-size=256",
    // Without the vector instructions of later models, whose emulation is slower than the code that does
    // without them.
    "-cpu",
    "Nehalem,+rdrand",
    "-machine",
    "q35",
    "-m",
    "512",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-object",
    "rng-random,id=g0,filename=/dev/urandom",
    "-device",
    "virtio-rng-pci,rng=g0",
    "-device",
    "virtio-serial-pci",
    // 10.0.2.2 is the host. The machine has no address until a test gives it one.
    "-netdev",
    "user,id=n0",
    "-device",
    "virtio-net-pci,netdev=n0,romfile=",
    "-nographic",
];

/// Returns a number that differs for other hardware.
pub(super) fn hardware_hash() -> u64 {
    let bytes = HARDWARE.iter().flat_map(|word| word.bytes());
    // FNV-1a.
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn drives(disks: &Disks) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    let root = disks.root.display();
    match &disks.log {
        None => {
            add("-blockdev", format!("driver=file,node-name=f0,filename={root}"));
            add("-blockdev", "driver=raw,node-name=d0,file=f0".to_owned());
        }
        Some(log) => {
            add("-blockdev", format!("driver=file,node-name=f0,filename={root}"));
            add("-blockdev", "driver=raw,node-name=r0,file=f0".to_owned());
            add("-blockdev", format!("driver=file,node-name=l0,filename={}", log.display()));
            add(
                "-blockdev",
                "driver=blklogwrites,node-name=d0,file=r0,log=l0,log-sector-size=512".to_owned(),
            );
        }
    }
    add("-device", "virtio-blk-pci,drive=d0,write-cache=on".to_owned());
    for (number, path) in [(1, &disks.usr), (2, &disks.opt)] {
        let path = path.display();
        add("-blockdev", format!("driver=file,node-name=f{number},read-only=on,filename={path}"));
        add("-blockdev", format!("driver=raw,node-name=d{number},read-only=on,file=f{number}"));
        add("-device", format!("virtio-blk-pci,drive=d{number}"));
    }
    words
}

fn add_start(qemu: &mut Command, start: &Start) {
    match start {
        Start::BootLoader => {}
        Start::Kernel { folder, arguments } => {
            qemu.arg("-kernel").arg(folder.join("vmlinuz"));
            qemu.arg("-initrd").arg(folder.join("initrd")).arg("-append").arg(arguments);
        }
        Start::Saved(state) => {
            qemu.arg("-incoming").arg(format!("exec:cat {}", state.display()));
        }
    }
}
