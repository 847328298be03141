//! The disk of a machine that does not run: copies of it, and the files on it.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use rustix::io::Errno;

use super::{Layout, Tree, run::run};

/// The size of a sector in bytes.
const SECTOR: u64 = 512;
/// Files of the boot loader that change: the menu, and the name under which it is written first.
const MENUS: [&str; 2] = ["grub.cfg", "grub.cfg.new"];

/// A file system on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The root file system.
    Root,
    /// The file system of `/boot`, if that is separate.
    Boot,
}

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

    /// Extracts `/etc`, `/root` and the boot loader's menu to a new folder, as they are after the
    /// kernel has replayed the journals. The disk itself is not changed.
    pub fn extract(&self, to: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(to.join("boot/grub"))
            .with_context(|| format!("failed to create {}", to.display()))?;
        let (root, grub) = match self.layout {
            Layout::One => (2048..2048 + 393_216, "/boot/grub"),
            Layout::SeparateBoot => (133_120..133_120 + 393_216, "/grub"),
        };
        let mut commands: Vec<String> =
            ["/etc", "/root"].map(|path| format!("rdump {path} {}", to.display())).to_vec();
        let menus = MENUS.map(|name| {
            format!("dump -p {grub}/{name} {}", to.join("boot/grub").join(name).display())
        });
        let image = to.with_extension("partition");
        if self.layout == Layout::One {
            commands.extend(menus);
        } else {
            read_partition(&self.path, 2048..2048 + 131_072, &image, &menus)?;
        }
        read_partition(&self.path, root, &image, &commands)?;
        for name in MENUS {
            let path = to.join("boot/grub").join(name);
            // debugfs creates the file before it notices that there is none on the disk.
            if fs::metadata(&path).is_ok_and(|stat| stat.len() == 0) && name != "grub.cfg" {
                fs::remove_file(&path).context("failed to remove an empty file")?;
            }
        }
        Ok(())
    }

    /// Returns the files that [`Disk::extract`] extracts.
    pub fn tree(&self, scratch: &Path) -> anyhow::Result<Tree> {
        self.extract(scratch)?;
        let tree = Tree::read(scratch);
        fs::remove_dir_all(scratch).context("failed to remove extracted files")?;
        tree
    }
}

/// Copies a file system to `image`, replays its journal, and executes commands of debugfs.
fn read_partition(
    disk: &Path,
    sectors: std::ops::Range<u64>,
    image: &Path,
    commands: &[String],
) -> anyhow::Result<()> {
    copy_part(disk, sectors.start * SECTOR..sectors.end * SECTOR, image)?;
    // 1: the journal was replayed.
    let mut check = Command::new("e2fsck");
    run("e2fsck", check.args(["-p", "-E", "journal_only"]).arg(image), &[0, 1])?;
    let script = image.with_extension("commands");
    fs::write(&script, commands.join("\n")).context("failed to write commands of debugfs")?;
    run("debugfs", Command::new("debugfs").arg("-f").arg(&script).arg(image), &[0])?;
    for path in [image, &script] {
        fs::remove_file(path).with_context(|| format!("failed to remove {}", path.display()))?;
    }
    Ok(())
}

/// Copies a part of a file to a new one; holes stay holes.
pub(super) fn copy_part(from: &Path, part: std::ops::Range<u64>, to: &Path) -> anyhow::Result<()> {
    let what = || format!("failed to copy {} to {}", from.display(), to.display());
    let copy = || -> std::io::Result<()> {
        let mut source = File::open(from)?;
        let end = part.end.min(source.metadata()?.len());
        let mut target = File::create(to)?;
        target.set_len(end - part.start)?;
        let mut at = part.start;
        let mut buffer = Vec::new();
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
    };
    copy().with_context(what)
}
