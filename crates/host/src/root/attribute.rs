//! Extended attributes of files and directories.
//!
//! A file of a config takes over the security label and the `user.` attributes of the file that it
//! replaces. Access control lists are not taken over, because the config sets the permissions of a
//! file, nor are capabilities, which no file of a config should have by accident. A copy or a
//! restored file has them all.

use std::{io, os::fd::AsFd};

use cap_std_ext::cap_std::fs::Dir;
use rustix::{
    fs::{Mode, OFlags, XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{Root, RootError, read};

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// The name, such as `security.selinux`.
    pub name: String,
    /// The value.
    pub value: Vec<u8>,
}

const LABEL: &str = "security.selinux";
const USER_PREFIX: &str = "user.";
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Access control list and default of new entries, and capabilities.
const RIGHTS: [&str; 3] = [ACCESS_LIST, "system.posix_acl_default", "security.capability"];

/// The attributes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that a new version of the file takes over.
    Labels,
    /// All that matter.
    All,
}

impl Which {
    fn has(self, name: &str) -> bool {
        let is_label = name == LABEL || name.starts_with(USER_PREFIX);
        is_label || (self == Self::All && RIGHTS.contains(&name))
    }
}

/// Largest attribute that the kernel allows.
const MAX_ATTRIBUTES: usize = 64 << 10;

impl Root {
    /// Returns the attributes of a regular file or a directory; none for anything else.
    pub fn attributes(&self, path: &str) -> Result<Vec<Attribute>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(Vec::new()) };
        of(&directory, name, Which::All).map_err(|source| read::refused(path, source))
    }

    /// Sets exactly these attributes of a directory.
    pub fn set_attributes(&self, path: &str, attributes: &[Attribute]) -> Result<(), RootError> {
        self.with_open(path, |file| replace(file, attributes)).map(drop)
    }
}

/// Returns attributes of a regular file or a directory; none for anything else.
pub(super) fn of(directory: &Dir, name: &str, which: Which) -> io::Result<Vec<Attribute>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return Ok(Vec::new()) };
    let mut names = vec![0; MAX_ATTRIBUTES];
    let length = match flistxattr(&file, names.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::NOTSUP | Errno::ACCESS | Errno::PERM) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = names.get(..length).unwrap_or_default();
    let mut attributes = Vec::new();
    for name in names.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok()) {
        if !which.has(name) {
            continue;
        }
        let mut value = vec![0; MAX_ATTRIBUTES];
        match fgetxattr(&file, name, value.as_mut_slice()) {
            Ok(length) => {
                value.truncate(length);
                attributes.push(Attribute { name: name.to_owned(), value });
            }
            // Removed since it was listed, or not readable.
            Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    attributes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(attributes)
}

/// Sets attributes of a file, and removes an access control list and capabilities that are not
/// among them: a new file has the list that its directory sets for new entries.
pub(super) fn replace(file: impl AsFd, attributes: &[Attribute]) -> io::Result<()> {
    for name in RIGHTS.iter().filter(|name| !attributes.iter().any(|it| it.name == **name)) {
        match fremovexattr(&file, *name) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::ACCESS | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    put(file, attributes)
}

/// Sets attributes of a file.
pub(super) fn put(file: impl AsFd, attributes: &[Attribute]) -> io::Result<()> {
    for Attribute { name, value } in attributes {
        match fsetxattr(&file, name.as_str(), value, XattrFlags::empty()) {
            // A file system without attributes, or an unprivileged user: the contents matter more.
            Ok(()) | Err(Errno::NOTSUP | Errno::ACCESS | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
