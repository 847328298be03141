//! Snapshots of paths before they are changed, and their restoration.
//!
//! Contents are stored once each, by their hash, compressed, in one pack: one file to write,
//! whatever the number of paths. The list of paths is small and can be part of a larger record.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::{
    root::{Attribute, Owner, Root, RootError, Stat},
    unit,
};

/// Largest file that is restored.
const MAX_CONTENTS: u64 = 256 << 20;

/// The previous state of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Before {
    /// No file.
    Absent,
    /// A regular file.
    File {
        /// Permissions.
        mode: u32,
        /// Owner.
        owner: Owner,
        /// Hash of the contents.
        contents: String,
        /// Extended attributes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attributes: Vec<Attribute>,
    },
    /// A symbolic link with this target.
    Link(String),
    /// A directory.
    Directory {
        /// Permissions.
        mode: u32,
        /// Owner.
        owner: Owner,
        /// Extended attributes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attributes: Vec<Attribute>,
    },
    /// A pipe, a socket or a device, which no update replaces.
    Special,
}

/// The place of some contents in the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Extent {
    offset: u64,
    length: u64,
}

/// The previous state of some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Snapshot {
    /// State of each path; missing parent directories are recorded as absent.
    pub paths: BTreeMap<String, Before>,
    /// Units whose links are all recorded: a link that is not recorded did not exist.
    pub units: BTreeSet<String>,
    /// Directories that existed for such links.
    folders: BTreeSet<String>,
    contents: BTreeMap<String, Extent>,
}

/// The paths of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPaths {
    /// Files, links and directories, each by itself.
    pub paths: BTreeSet<String>,
    /// Directories with their contents.
    pub trees: BTreeSet<String>,
    /// Units with the links that enable them.
    pub units: BTreeSet<String>,
}

/// A failed snapshot or restoration.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The pack does not match the list.
    #[error("backup of {path} is corrupt")]
    Corrupt {
        /// The path.
        path: String,
    },
    /// The tree cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl Snapshot {
    /// Takes a snapshot of the paths; also returns the pack with their contents.
    pub fn take(root: &Root, wanted: &SnapshotPaths) -> Result<(Self, Vec<u8>), SnapshotError> {
        let mut taken = Self { units: wanted.units.clone(), ..Self::default() };
        let mut pack = Vec::new();
        let mut paths = wanted.paths.clone();
        for tree in &wanted.trees {
            descend(root, tree, &mut paths)?;
        }
        for unit in &wanted.units {
            paths.extend(unit::links(root, unit)?);
        }
        if !wanted.units.is_empty() {
            taken.folders = unit::folders(root)?.into_iter().collect();
        }
        for path in paths {
            let before = taken.record(root, &path, &mut pack)?;
            if before == Before::Absent {
                taken.record_missing_parents(root, &path)?;
            }
            taken.paths.insert(path, before);
        }
        Ok((taken, pack))
    }

    /// Restores all paths; unchanged ones are not written.
    pub fn restore(&self, root: &Root, pack: &[u8]) -> Result<(), SnapshotError> {
        self.remove_temporary(root)?;
        for unit in &self.units {
            for link in unit::links(root, unit)? {
                if !self.paths.contains_key(&link) {
                    root.remove(&link)?;
                }
            }
        }
        if !self.units.is_empty() {
            for folder in unit::folders(root)?.iter().filter(|it| !self.folders.contains(*it)) {
                root.remove_empty_directory(folder)?;
            }
        }
        // Entries of a directory are removed before the directory.
        for (path, before) in self.paths.iter().rev() {
            Self::clear(root, path, before)?;
        }
        for (path, before) in &self.paths {
            self.put(root, path, before, pack)?;
        }
        Ok(())
    }

    /// Removes temporary files of interrupted writes at these paths.
    pub fn remove_temporary(&self, root: &Root) -> Result<(), SnapshotError> {
        for path in self.paths.keys() {
            root.remove_temporary(path)?;
        }
        for unit in &self.units {
            unit::remove_temporary(root, unit)?;
        }
        Ok(())
    }

    /// Removes directories that had links of the units and nothing else, once they are empty.
    ///
    /// Removing the last link removes the directory, too, unless the process crashes in between.
    pub fn remove_empty_link_directories(&self, root: &Root) -> Result<(), SnapshotError> {
        for folder in &self.folders {
            let had_ours = self.paths.keys().any(|path| {
                path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
            });
            if had_ours && root.list(folder)?.is_empty() {
                root.remove_empty_directory(folder)?;
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        root: &Root,
        path: &str,
        pack: &mut Vec<u8>,
    ) -> Result<Before, SnapshotError> {
        let Some(stat) = root.stat(path)? else { return Ok(Before::Absent) };
        let (mode, owner) = (stat.mode & 0o7777, stat.owner);
        if stat.is_directory() {
            return Ok(Before::Directory { mode, owner, attributes: root.attributes(path)? });
        }
        if stat.is_link() {
            return Ok(root.read_link(path)?.map_or(Before::Absent, Before::Link));
        }
        if !stat.is_file() {
            return Ok(Before::Special);
        }
        let Some(bytes) = root.read(path)? else { return Ok(Before::Absent) };
        let attributes = root.attributes(path)?;
        Ok(Before::File { mode, owner, contents: self.store(&bytes, pack), attributes })
    }

    fn store(&mut self, bytes: &[u8], pack: &mut Vec<u8>) -> String {
        let hash = hash(bytes);
        if !self.contents.contains_key(&hash) {
            let offset = pack.len() as u64;
            let mut encoder = GzEncoder::new(std::mem::take(pack), Compression::fast());
            encoder.write_all(bytes).expect("memory takes what it is given");
            *pack = encoder.finish().expect("memory takes what it is given");
            let length = pack.len() as u64 - offset;
            self.contents.insert(hash.clone(), Extent { offset, length });
        }
        hash
    }

    fn contents(&self, path: &str, hash: &str, pack: &[u8]) -> Result<Vec<u8>, SnapshotError> {
        let corrupt = || SnapshotError::Corrupt { path: path.to_owned() };
        let Extent { offset, length } = self.contents.get(hash).ok_or_else(corrupt)?;
        let start = usize::try_from(*offset).map_err(|_| corrupt())?;
        let length = usize::try_from(*length).map_err(|_| corrupt())?;
        let part = start.checked_add(length).and_then(|end| pack.get(start..end));
        let mut bytes = Vec::new();
        let decoder = GzDecoder::new(part.ok_or_else(corrupt)?);
        decoder.take(MAX_CONTENTS).read_to_end(&mut bytes).map_err(|_| corrupt())?;
        if self::hash(&bytes) == hash { Ok(bytes) } else { Err(corrupt()) }
    }

    fn record_missing_parents(&mut self, root: &Root, path: &str) -> Result<(), SnapshotError> {
        let mut path = path;
        while let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty())
        {
            if self.paths.contains_key(parent) || root.exists(parent)? {
                break;
            }
            self.paths.insert(parent.to_owned(), Before::Absent);
            path = parent;
        }
        Ok(())
    }

    /// Removes a file that is in the way of the previous one.
    fn clear(root: &Root, path: &str, before: &Before) -> Result<(), SnapshotError> {
        let Some(stat) = root.stat(path)? else { return Ok(()) };
        match (before, stat.is_directory()) {
            // Files of others in a directory that an update created are not removed.
            (Before::Absent | Before::File { .. } | Before::Link(_), true) => {
                root.remove_empty_directory(path)?;
            }
            (Before::Absent | Before::Directory { .. }, false) => {
                root.remove(path)?;
            }
            // Unchanged, or replaced atomically.
            (Before::Special, _)
            | (Before::Directory { .. }, true)
            | (Before::File { .. } | Before::Link(_), false) => {}
        }
        Ok(())
    }

    fn put(
        &self,
        root: &Root,
        path: &str,
        before: &Before,
        pack: &[u8],
    ) -> Result<(), SnapshotError> {
        match before {
            Before::Absent | Before::Special => Ok(()),
            Before::Link(target) => Ok(root.link(target, path)?),
            Before::Directory { mode, owner, attributes } => {
                root.create_directory(path)?;
                let found = root.stat(path)?;
                if found.is_some_and(|found| found.owner != *owner) {
                    root.set_owner(path, *owner)?;
                }
                if found.is_some_and(|found| found.mode & 0o7777 != *mode) {
                    root.set_mode(path, *mode)?;
                }
                if root.attributes(path)? != *attributes {
                    root.set_attributes(path, attributes)?;
                }
                Ok(())
            }
            Before::File { mode, owner, contents, attributes } => {
                if let Some(found) = root.stat(path)?.filter(Stat::is_file) {
                    let same = found.mode & 0o7777 == *mode && found.owner == *owner;
                    let bytes = root.read(path)?.unwrap_or_default();
                    if same && hash(&bytes) == *contents && root.attributes(path)? == *attributes {
                        return Ok(());
                    }
                }
                let bytes = self.contents(path, contents, pack)?;
                Ok(root.write_labelled(path, &bytes, *mode, *owner, attributes)?)
            }
        }
    }
}

fn descend(root: &Root, path: &str, found: &mut BTreeSet<String>) -> Result<(), RootError> {
    found.insert(path.to_owned());
    if root.stat(path)?.is_some_and(|stat| stat.is_directory()) {
        for name in root.list(path)? {
            descend(root, &format!("{path}/{name}"), found)?;
        }
    }
    Ok(())
}

/// Returns the hash by which contents are stored.
#[must_use]
pub fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    digest(&SHA256, bytes).as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
