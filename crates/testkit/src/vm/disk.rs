//! The disk of a machine that does not run: copies of it, and the files on it.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use rustix::io::Errno;

use super::{Layout, Tree, run::run};

/// The size of a sector in bytes.
const SECTOR: u64 = 512;
/// Folder of the records of unfinished changes.
const RECORDS: &str = "/var/lib/machine-config-daemon";
/// Files of the boot loader that change: the menu, and the name under which it is written first.
const MENUS: [&str; 2] = ["grub.cfg", "grub.cfg.mco-new"];

/// The disk of a machine that does not run.
#[derive(Clone, Debug)]
pub struct Disk {
    path: PathBuf,
    layout: Layout,
}

impl Disk {
    pub(super) fn new(path: PathBuf, layout: Layout) -> Self {
        Self { path, layout }
    }

    /// Returns the path of the image.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the layout of the disk.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Copies the disk to a new file.
    pub fn copy(&self, to: &Path) -> anyhow::Result<Self> {
        copy_part(&self.path, 0..u64::MAX, to)?;
        Ok(Self::new(to.to_owned(), self.layout))
    }

    /// Extracts `/etc`, `/root`, the records of `mco` and the boot loader's menu to a new folder, as they are after the
    /// kernel has replayed the journals. The disk itself is not changed.
    pub fn extract(&self, to: &Path) -> anyhow::Result<()> {
        self.extract_changed(to, |_, _| Ok(()))
    }

    /// Like [`Disk::extract`], after `change` has changed a copy of each file system, whose offset
    /// on the disk is its argument.
    pub fn extract_changed(
        &self,
        to: &Path,
        change: impl Fn(&File, Range<u64>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let grub = to.join("boot/grub");
        fs::create_dir_all(&grub).with_context(|| format!("failed to create {}", to.display()))?;
        let (root, boot) = match self.layout {
            Layout::One => (2048..2048 + 393_216, None),
            Layout::SeparateBoot => (133_120..133_120 + 393_216, Some(2048..2048 + 131_072)),
        };
        let folder = if boot.is_some() { "/grub" } else { "/boot/grub" };
        let mut commands = MENUS
            .map(|name| format!("dump -p {folder}/{name} {}", grub.join(name).display()))
            .to_vec();
        let read = |sectors: Range<u64>, commands: &[String]| {
            let part = sectors.start * SECTOR..sectors.end * SECTOR;
            let image = copy_to_memory(&self.path, part.clone())?;
            change(&image, part)?;
            read_image(&image, &to.with_extension("commands"), commands)
        };
        if let Some(boot) = boot {
            read(boot, &commands)?;
            commands.clear();
        }
        commands.extend(["/etc", "/root"].map(|path| format!("rdump {path} {}", to.display())));
        // Not there before the first change.
        let records = to.join(RECORDS.trim_start_matches('/'));
        let above = records.parent().unwrap_or(to);
        fs::create_dir_all(above)
            .with_context(|| format!("failed to create {}", above.display()))?;
        commands.push(format!("rdump {RECORDS} {}", above.display()));
        read(root, &commands)?;
        // debugfs creates the file before it notices that there is none on the disk.
        let temporary = grub.join("grub.cfg.mco-new");
        if fs::metadata(&temporary).is_ok_and(|stat| stat.len() == 0) {
            fs::remove_file(&temporary).context("failed to remove an empty file")?;
        }
        Ok(())
    }

    /// Returns the menu of the boot loader as GRUB reads it: without the changes that only the journal
    /// of a separate `/boot` has. `scratch` is a file name that is free.
    pub fn menu_without_journal(&self, scratch: &Path) -> anyhow::Result<String> {
        anyhow::ensure!(self.layout == Layout::SeparateBoot, "the disk has no separate /boot");
        let image = copy_to_memory(&self.path, 2048 * SECTOR..(2048 + 131_072) * SECTOR)?;
        let image = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
        let dump = format!("dump /grub/grub.cfg {}", scratch.display());
        // Catastrophic mode: debugfs reads the inode tables as they are.
        run("debugfs", Command::new("debugfs").args(["-c", "-R", &dump]).arg(&image), &[0])?;
        let menu = fs::read_to_string(scratch).context("failed to read the menu")?;
        fs::remove_file(scratch).context("failed to remove the menu")?;
        Ok(menu)
    }

    /// Returns the files that [`Disk::extract`] extracts.
    pub fn tree(&self, scratch: &Path) -> anyhow::Result<Tree> {
        self.extract(scratch)?;
        let tree = Tree::read(scratch);
        fs::remove_dir_all(scratch).context("failed to remove extracted files")?;
        tree
    }
}

/// Copies a part of a disk to memory, which is freed with the returned file.
fn copy_to_memory(disk: &Path, part: Range<u64>) -> anyhow::Result<File> {
    let memory = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC);
    let mut memory = File::from(memory.context("failed to get memory for a disk")?);
    copy_into(disk, part, &mut memory)
        .with_context(|| format!("failed to copy {}", disk.display()))?;
    Ok(memory)
}

/// Replays the journal of a file system, and executes commands of debugfs.
fn read_image(image: &File, script: &Path, commands: &[String]) -> anyhow::Result<()> {
    let image = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
    // 1: the journal was replayed.
    let mut check = Command::new("e2fsck");
    run("e2fsck", check.args(["-p", "-E", "journal_only"]).arg(&image), &[0, 1])?;
    fs::write(script, commands.join("\n")).context("failed to write commands of debugfs")?;
    run("debugfs", Command::new("debugfs").arg("-f").arg(script).arg(&image), &[0])?;
    fs::remove_file(script).context("failed to remove commands of debugfs")
}

/// Copies a part of a file to a new one; holes stay holes.
pub(super) fn copy_part(from: &Path, part: Range<u64>, to: &Path) -> anyhow::Result<()> {
    let copy = File::create(to).and_then(|mut target| copy_into(from, part, &mut target));
    copy.with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))
}

fn copy_into(from: &Path, part: Range<u64>, target: &mut File) -> io::Result<()> {
    let mut source = File::open(from)?;
    let end = part.end.min(source.metadata()?.len());
    target.set_len(end - part.start)?;
    let (mut at, mut buffer) = (part.start, Vec::new());
    while at < end {
        at = match rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) {
            Ok(at) => at.min(end),
            // No data up to the end.
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        if at == end {
            break;
        }
        let hole = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(at))?.min(end);
        let size = (hole - at).min(4 << 20);
        buffer.clear();
        source.seek(SeekFrom::Start(at))?;
        (&mut source).take(size).read_to_end(&mut buffer)?;
        target.seek(SeekFrom::Start(at - part.start))?;
        target.write_all(&buffer)?;
        at += size;
    }
    Ok(())
}
