//! Writes and removes the files, units and SSH keys of a config. Every call can be repeated; files
//! that are up to date are not written again.

mod foresee;
mod obstacle;

use mco_core::machine;
use mco_ignition::{
    config::{self, File, Unit},
    content::ContentError,
};

use crate::{
    account,
    original::{self, Released, Shipped},
    os::OsRelease,
    root::{Owner, Root, RootError, Stat},
    system::{Packaged, System, SystemError},
    unit,
};

/// The user that configs may manage.
const CORE: &str = "core";

/// File with the user's SSH keys.
pub const KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";

/// Directory with everything about logins of the user.
pub const SSH: &str = "/home/core/.ssh";

/// Links that older releases created and no config names any longer.
pub const LEAKED_LINKS: [&str; 2] = [
    "/etc/systemd/system/network-online.target.requires/node-valid-hostname.service",
    "/etc/systemd/system/network-online.target.wants/ovs-configuration.service",
];

/// Created at boot by image-based systems.
const IMAGE_BOOTED: &str = "/run/ostree-booted";

/// A machine: a directory tree and the services that live outside it.
#[derive(Debug)]
pub struct Host<S> {
    /// The files.
    pub root: Root,
    /// The services.
    pub system: S,
}

/// A failure to write or remove a part of a config.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The contents of a file cannot be decoded.
    #[error("could not decode file {path:?}")]
    Decode {
        /// Path of the file.
        path: String,
        /// The decode error.
        source: ContentError,
    },
    /// A path of the config cannot be written, because of another path on the machine.
    #[error(
        "cannot write {path}: {obstacle} is {kind} that no config manages; remove it, or change \
         the config"
    )]
    Obstructed {
        /// Path of the file in the config.
        path: String,
        /// Path on the machine.
        obstacle: String,
        /// Type of the obstacle.
        kind: &'static str,
    },
    /// Two paths of the configs lead to one file of the machine.
    #[error(
        "cannot change {path}: it is the same file as {other}, because a directory above it is a link; \
         use one of the two paths, or remove the file in a change of its own"
    )]
    SameFile {
        /// Path of the file that the update writes or removes.
        path: String,
        /// Path in the new config.
        other: String,
    },
    /// A path of the config is in the read-only image of the machine.
    #[error(
        "cannot write {path}: it is part of the machine's read-only image; use a path below \
         /usr/local, /etc or /var"
    )]
    InImage {
        /// Path of the file in the config.
        path: String,
    },
    /// The file has an append section.
    #[error("found an append section when writing files. Append is not supported")]
    Append,
    /// The owner of a file does not exist on the machine.
    #[error(
        "failed to retrieve file ownership for file {path:?}: failed to retrieve {what}: {name}"
    )]
    Owner {
        /// Path of the file.
        path: String,
        /// User or group.
        what: &'static str,
        /// The unknown name.
        name: String,
    },
    /// The directory of the keys belongs to an unknown user.
    #[error("failed to look up the user of the .ssh path {path}:user: unknown userid {user}")]
    UnknownOwner {
        /// The directory.
        path: &'static str,
        /// Id of its owner.
        user: u32,
    },
    /// A unit could not be enabled or disabled.
    #[error("{what}: {source}")]
    Enable {
        /// The attempted action.
        what: &'static str,
        /// The error of systemd.
        source: SystemError,
    },
    /// A call to the operating system failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A file could not be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl<S: System> Host<S> {
    /// Writes a file.
    pub fn write_file(&mut self, file: &File) -> Result<(), HostError> {
        if !file.append.is_empty() {
            return Err(HostError::Append);
        }
        let path = file.path.as_str();
        let bytes = machine::contents(file)
            .map_err(|source| HostError::Decode { path: path.to_owned(), source })?;
        let owner = self.owner(file)?;
        self.clear_directory(path)?;
        original::keep(&self.root, path, path, self.shipped(path)?)?;
        // Compat: special bits are dropped (pkg/daemon/file_writers.go); configs with them are
        // refused earlier.
        self.write_if_different(path, &bytes, machine::mode(file) & 0o777, owner)
    }

    /// Removes a file, or restores its original. `old` is the config's version: any other content
    /// means that the original is restored already.
    pub fn remove_file(&mut self, old: &File) -> Result<(), HostError> {
        let bytes = machine::contents(old).ok();
        self.release(&old.path, bytes.as_deref(), self.shipped(&old.path)?)
    }

    /// Writes a drop-in; removes an empty one.
    pub fn write_dropin(&mut self, unit: &str, dropin: &config::Dropin) -> Result<(), HostError> {
        let path = machine::dropin_path(unit, &dropin.name);
        match dropin.contents.as_deref() {
            None | Some("") => {
                self.clear_directory(&path)?;
                self.root.remove(&path)?;
            }
            Some(text) => self.write_unit_file(&path, text)?,
        }
        Ok(())
    }

    /// Removes a drop-in, or restores its original.
    pub fn remove_dropin(&mut self, unit: &str, dropin: &config::Dropin) -> Result<(), HostError> {
        let path = machine::dropin_path(unit, &dropin.name);
        self.release(&path, dropin.contents.as_deref().map(str::as_bytes), Shipped::Yes)
    }

    /// Writes a unit that has contents.
    pub fn write_unit(&mut self, unit: &Unit) -> Result<(), HostError> {
        let text = unit.contents.as_deref().unwrap_or_default();
        let path = machine::unit_path(&unit.name);
        if !self.has_original(&path)? {
            // Left by a config that had the path as a file.
            self.root.remove(&original::stamp_path(&path))?;
        }
        self.write_unit_file(&path, text)
    }

    /// Disables units that the old unit file listed in `Also=` and the new one does not, except
    /// those that the config enables.
    pub fn disable_stale_companions(
        &mut self,
        old: &Unit,
        new: &Unit,
        present: &machine::Machine,
    ) -> Result<(), HostError> {
        for other in stale_companions(old, new, present) {
            if unit::links(&self.root, &other)?.is_empty() {
                continue;
            }
            let what = "error disabling unit";
            self.system.disable(&other).map_err(|source| HostError::Enable { what, source })?;
        }
        Ok(())
    }

    /// Masks a unit with a link to `/dev/null`.
    pub fn mask_unit(&mut self, unit: &str) -> Result<(), HostError> {
        let path = machine::unit_path(unit);
        if self.root.stat(&path)?.is_some_and(|found| found.is_directory()) {
            self.root.remove_tree(&path)?;
        }
        Ok(self.root.link("/dev/null", &path)?)
    }

    /// Removes the unit's file or mask.
    ///
    /// Compat: a file in the place of the mask is removed, too (`pkg/daemon/file_writers.go`).
    pub fn unmask_unit(&mut self, unit: &str) -> Result<(), HostError> {
        let path = machine::unit_path(unit);
        if self.root.stat(&path)?.is_some_and(|found| found.is_directory()) {
            self.root.remove_tree(&path)?;
        }
        self.root.remove(&path)?;
        Ok(())
    }

    /// Removes a unit, or restores its original.
    ///
    /// The file of a unit that its config only enabled or gave drop-ins is not the config's and
    /// stays; the reference removes it, and with it, say, a kubelet.
    pub fn remove_unit(&mut self, unit: &Unit) -> Result<(), HostError> {
        let path = machine::unit_path(&unit.name);
        let found = self.root.stat(&path)?;
        let is_other = found.is_some_and(|found| found.is_file() || found.is_directory());
        if is_other && !machine::has_file(unit) {
            return Ok(());
        }
        let old = if unit.mask == Some(true) { None } else { unit.contents.as_deref() };
        self.release(&path, old.map(str::as_bytes), Shipped::Yes)?;
        // Links to a unit that does not exist any longer enable nothing.
        Ok(unit::remove_dangling_links(&self.root, &unit.name)?)
    }

    /// Removes links that older releases created and never removed.
    ///
    /// A unit of the current config keeps its links: without them it would be disabled at the next
    /// boot.
    pub fn remove_leaked_links(&mut self, present: &machine::Machine) -> Result<(), HostError> {
        for link in LEAKED_LINKS {
            let unit = link.rsplit('/').next().unwrap_or(link);
            if present.unit(unit).is_none() {
                self.root.remove(link)?;
            }
        }
        Ok(())
    }

    /// Enables a unit of a config, if it exists.
    pub fn enable_unit(&mut self, unit: &Unit) -> Result<(), HostError> {
        let is_only_masked = foresee::is_only_masked(&self.root, unit)?;
        let unit = unit.name.as_str();
        if is_only_masked || !self.system.has_unit(unit)? {
            return Ok(());
        }
        let what = "error enabling units";
        self.system.enable(unit).map_err(|source| HostError::Enable { what, source })
    }

    /// Disables a unit, if it exists.
    pub fn disable_unit(&mut self, unit: &str) -> Result<(), HostError> {
        if !self.system.has_unit(unit)? {
            return Ok(());
        }
        let what = "error disabling unit";
        self.system.disable(unit).map_err(|source| HostError::Enable { what, source })
    }

    /// Returns true if the managed user exists.
    pub fn has_managed_user(&self) -> Result<bool, HostError> {
        Ok(account::user(&self.root, CORE)?.is_some())
    }

    /// Writes the SSH keys of the managed user; returns false if the user does not exist.
    pub fn write_keys(&mut self, keys: &[&str]) -> Result<bool, HostError> {
        let Some(mut owner) = account::user(&self.root, CORE)? else { return Ok(false) };
        owner.group = account::group(&self.root, CORE)?.unwrap_or(owner.group);
        self.check_known_owner(SSH)?;
        for folder in [SSH, "/home/core/.ssh/authorized_keys.d"] {
            match self.root.stat(folder)? {
                Some(found)
                    if found.is_directory()
                        && (found.owner.user == owner.user || folder != SSH) =>
                {
                    continue;
                }
                // The owner of a foreign directory could change who logs in.
                Some(found) if found.is_directory() => self.root.remove_tree(folder)?,
                // A link instead of the directory could lead into another user's home.
                Some(_) => {
                    self.root.remove(folder)?;
                }
                None => {}
            }
            self.root.create_directory(folder)?;
            self.root.set_mode(folder, 0o700)?;
            self.root.set_owner(folder, owner)?;
        }
        let text: String = keys.iter().flat_map(|key| [key, "\n"]).collect();
        self.write_if_different(KEYS, text.as_bytes(), 0o600, owner)?;
        Ok(true)
    }

    /// Fails if the owner of a directory is unknown on the machine.
    fn check_known_owner(&self, path: &'static str) -> Result<(), HostError> {
        let Some(found) = self.root.stat(path)?.filter(Stat::is_directory) else { return Ok(()) };
        let user = found.owner.user;
        if account::is_known(&self.root, user)? {
            return Ok(());
        }
        Err(HostError::UnknownOwner { path, user })
    }

    fn write_unit_file(&mut self, path: &str, text: &str) -> Result<(), HostError> {
        self.clear_directory(path)?;
        // Compat: only the image's own file in the same place is kept as the original
        // (pkg/daemon/file_writers.go).
        if self.has_original(path)? {
            original::keep(&self.root, path, &format!("/usr{path}"), self.shipped(path)?)?;
        }
        self.write_if_different(path, text.as_bytes(), machine::DEFAULT_MODE, Owner::default())
    }

    /// Returns true if the image ships a unit or drop-in at this path.
    fn has_original(&self, path: &str) -> Result<bool, HostError> {
        Ok(self.is_image()? && self.root.exists(&format!("/usr{path}"))?)
    }

    fn write_if_different(
        &self,
        path: &str,
        bytes: &[u8],
        mode: u32,
        owner: Owner,
    ) -> Result<(), HostError> {
        if let Some(stat) = self.root.stat(path)? {
            let same = stat.is_file() && stat.mode & 0o7777 == mode && stat.owner == owner;
            if same && self.root.read(path)?.as_deref() == Some(bytes) {
                return Ok(());
            }
        }
        Ok(self.root.write_owned(path, bytes, mode, Some(owner))?)
    }

    fn release(&self, path: &str, old: Option<&[u8]>, shipped: Shipped) -> Result<(), HostError> {
        let had_stamp = self.root.exists(&original::stamp_path(path))?;
        let had_copy = self.root.stat(&original::copy_path(path))?.is_some();
        if original::release(&self.root, path, shipped)? == Released::Restored {
            return Ok(());
        }
        if !had_stamp && !had_copy && shipped == Shipped::Yes {
            // Nothing is kept for this path. If the system ships it and it is not the config's
            // version, an earlier attempt restored it and crashed before it could record so.
            let found = self.root.read(path).ok().flatten();
            let is_back = self.root.exists(&format!("/usr{path}"))? && found.as_deref() != old;
            if is_back {
                return Ok(());
            }
        }
        self.root.remove(path)?;
        Ok(())
    }

    /// Finds out if the operating system ships the file at a path.
    fn shipped(&self, path: &str) -> Result<Shipped, HostError> {
        // A dangling link is nothing that could be kept.
        if !self.root.exists(path)? {
            return Ok(Shipped::No);
        }
        // A relative link that the image ships leads nowhere from below `/usr`, and counts.
        let in_image = || {
            let found = self.root.stat(&format!("/usr{path}"))?;
            Ok::<_, HostError>(path.starts_with("/etc/") && found.is_some())
        };
        let shipped = match self.system.packaged(path)? {
            Packaged::Yes => true,
            Packaged::No => in_image()?,
            // Compat: if the system keeps no list of packages, nothing is kept
            // (pkg/daemon/file_writers.go); except on images, which can tell.
            Packaged::Unknown => self.root.exists(IMAGE_BOOTED)? && in_image()?,
        };
        Ok(if shipped { Shipped::Yes } else { Shipped::No })
    }

    /// Returns true if the machine's `/usr` is an image.
    fn is_image(&self) -> Result<bool, HostError> {
        let is_coreos = OsRelease::read(&self.root)?.is_some_and(|release| release.is_coreos());
        Ok(is_coreos || self.root.exists(IMAGE_BOOTED)?)
    }

    fn owner(&self, file: &File) -> Result<Owner, HostError> {
        let refuse = |what, name: &str| HostError::Owner {
            path: file.path.clone(),
            what,
            name: name.to_owned(),
        };
        let numeric = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
        let user = match (numeric(file.user.id), file.user.name.as_deref()) {
            (Some(id), _) => id,
            (None, Some(name)) if !name.is_empty() => {
                let found = account::user(&self.root, name)?;
                found.ok_or_else(|| refuse("UserID for username", name))?.user
            }
            (None, _) => 0,
        };
        let group = match (numeric(file.group.id), file.group.name.as_deref()) {
            (Some(id), _) => id,
            (None, Some(name)) if !name.is_empty() => account::group(&self.root, name)?
                .ok_or_else(|| refuse("GroupID for group", name))?,
            (None, _) => 0,
        };
        Ok(Owner { user, group })
    }
}

/// Returns the units that the old unit file listed in `Also=` and the new one does not, except those
/// that the config enables.
fn stale_companions(old: &Unit, new: &Unit, present: &machine::Machine) -> Vec<String> {
    let kept = unit::companions_in(new);
    let is_on = |other: &str| present.unit(other).is_some_and(|unit| unit.enabled == Some(true));
    let old = unit::companions_in(old).into_iter();
    old.filter(|other| !is_on(other) && !kept.contains(other)).collect()
}

#[cfg(test)]
mod tests;
