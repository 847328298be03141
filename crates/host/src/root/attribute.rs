//! Extended attributes of files: the security label, and `user.` attributes.
//!
//! Access control lists are excluded, because the config sets the permissions of a file, and so are
//! capabilities, which no file of a config should have by accident.

use std::{io, os::fd::AsFd};

use cap_std_ext::cap_std::fs::Dir;
use rustix::{
    fs::{Mode, OFlags, XattrFlags, fgetxattr, flistxattr, fsetxattr, openat},
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

/// Largest attribute that the kernel allows.
const MAX_ATTRIBUTES: usize = 64 << 10;

impl Root {
    /// Returns the attributes of a regular file; none for anything else.
    pub fn attributes(&self, path: &str) -> Result<Vec<Attribute>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(Vec::new()) };
        of(&directory, name).map_err(|source| read::refused(path, source))
    }
}

/// Returns the attributes of a regular file; none for anything else.
pub(super) fn of(directory: &Dir, name: &str) -> io::Result<Vec<Attribute>> {
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
        if name != LABEL && !name.starts_with(USER_PREFIX) {
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
    Ok(attributes)
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
