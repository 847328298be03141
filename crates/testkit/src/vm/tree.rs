//! The files of a folder as a value, to compare two states of a machine.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;

/// A file, link or directory.
#[derive(Clone, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File {
        /// Type and permissions.
        mode: u32,
        /// User and group.
        owner: (u32, u32),
        /// Contents.
        bytes: Arc<Vec<u8>>,
    },
    /// A symbolic link with this target.
    Link(PathBuf),
    /// A directory.
    Directory {
        /// Type and permissions.
        mode: u32,
        /// User and group.
        owner: (u32, u32),
    },
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { mode, owner, bytes } => {
                let start = bytes.get(..bytes.len().min(40)).unwrap_or_default();
                let start = String::from_utf8_lossy(start);
                write!(f, "file {mode:o} {owner:?} of {} bytes {start:?}", bytes.len())
            }
            Self::Link(target) => write!(f, "link to {}", target.display()),
            Self::Directory { mode, owner } => write!(f, "directory {mode:o} {owner:?}"),
        }
    }
}

/// The files of a folder, by their paths below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Entries by absolute path on the machine.
    pub entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Reads all files of a folder.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut entries = BTreeMap::new();
        let mut pending = vec![folder.to_owned()];
        while let Some(directory) = pending.pop() {
            let what = || format!("failed to read {}", directory.display());
            for entry in fs::read_dir(&directory).with_context(what)? {
                let path = entry.with_context(what)?.path();
                let stat = fs::symlink_metadata(&path).with_context(what)?;
                let (mode, owner) = (stat.mode(), (stat.uid(), stat.gid()));
                let found = if stat.is_dir() {
                    pending.push(path.clone());
                    Entry::Directory { mode, owner }
                } else if stat.is_symlink() {
                    Entry::Link(fs::read_link(&path).with_context(what)?)
                } else {
                    let bytes = Arc::new(fs::read(&path).with_context(what)?);
                    Entry::File { mode, owner, bytes }
                };
                let name = path.strip_prefix(folder).context("the path is below the folder")?;
                entries.insert(format!("/{}", name.display()), found);
            }
        }
        Ok(Self { entries })
    }

    /// Returns the contents of a file.
    #[must_use]
    pub fn bytes(&self, path: &str) -> Option<&[u8]> {
        match self.entries.get(path)? {
            Entry::File { bytes, .. } => Some(bytes),
            Entry::Link(_) | Entry::Directory { .. } => None,
        }
    }
}
