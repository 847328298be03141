//! A machine with a kernel, a boot loader and a disk of its own, for tests that need power cuts.
//!
//! QEMU without acceleration boots Debian's cloud kernel through GRUB from an ext4 file system. A
//! booted machine can be saved and restored within a second, so that a test cuts its power often.
//! Commands reach the machine through a serial port; it has no network. Its `/usr` is read-only and
//! shared by all machines, so that the disk to copy and to examine is small.
//!
//! QEMU ends with the thread that started it, even if the process is killed. A child process then
//! removes the folder of the machine. Disks are read without mounts and loop devices.

#![expect(
    clippy::disallowed_methods,
    reason = "the machine consists of programs and files; no part of it ships"
)]

mod channel;
mod disk;
mod folder;
mod install;
mod machine;
mod qemu;
mod qmp;
mod run;
mod tree;
mod write_log;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub use self::{
    channel::CommandOutput,
    disk::Disk,
    folder::VmFolder,
    machine::{SavedMachine, Vm},
    tree::{Entry, Tree},
    write_log::{CutState, Write, WriteLog},
};

/// The disk layout of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `/boot` is a folder of the root file system.
    One,
    /// `/boot` is a file system of its own.
    SeparateBoot,
}

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::SeparateBoot => "boot",
        }
    }
}

/// The prerequisites of a machine, prepared by `scripts/vm`.
#[derive(Clone, Debug)]
pub struct VmPrerequisites {
    /// Folder with the disks, the kernel and its initial file system.
    base: PathBuf,
}

impl VmPrerequisites {
    /// Finds the prerequisites. The error names the missing one in one line.
    pub fn find() -> Result<Self, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/vm");
        let found = Command::new(&script).arg("where").output();
        let found = found.map_err(|error| format!("{}: {error}", script.display()))?;
        if !found.status.success() {
            return Err(String::from_utf8_lossy(&found.stderr).trim().to_owned());
        }
        let stdout = String::from_utf8_lossy(&found.stdout);
        let base = stdout.lines().find_map(|line| line.strip_prefix("base="));
        let base = base.ok_or_else(|| "scripts/vm did not print base".to_owned())?;
        Ok(Self { base: PathBuf::from(base) })
    }

    /// Returns the folder of all running machines.
    #[must_use]
    pub fn machines(&self) -> PathBuf {
        self.base.with_file_name("vms")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }
}
