//! Differences between two MachineConfigs, part by part.
//!
//! Files are compared by their result on disk. A file that only changed its encoding, for example
//! from plain to compressed, is listed separately: the reference counts such a file as changed and
//! reboots for it.

pub mod reconcile;

use std::{collections::BTreeMap, fmt};

use mco_ignition::config::{File, Unit};
use serde::{Deserialize, Serialize};

use crate::machine::{self, Machine};

/// The differences between two MachineConfigs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDiff {
    /// Name of the old config.
    pub from: String,
    /// Name of the new config.
    pub to: String,
    /// Files that differ, by path.
    pub files: Vec<PartChange>,
    /// Units that differ: added, then changed, then removed ones, each by name.
    pub units: Vec<PartChange>,
    /// Change of SSH keys or password.
    pub users: Option<UserChange>,
    /// Change of the kernel arguments.
    pub kernel_arguments: Option<ListChange>,
    /// Change of the operating system image.
    pub os_image: Option<Replacement>,
    /// Change of the kernel type.
    pub kernel_type: Option<Replacement>,
    /// Change of the extension packages.
    pub extensions: Option<ListChange>,
    /// New FIPS mode.
    pub fips: Option<bool>,
    /// Use of an image built for the pool, before or after the update.
    #[serde(default)]
    pub image_mode: ImageMode,
}

/// Use of an OS image that was built for the pool (image mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImageMode {
    /// The node boots no such image, before or after.
    #[default]
    Off,
    /// The node will boot such an image.
    On,
    /// The node booted such an image and returns to the image of its config.
    Leaving,
}

/// OS images built for a node's old and new config, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltImages {
    /// Image that the node boots now.
    pub from: Option<String>,
    /// Image that the node is to boot.
    pub to: Option<String>,
}

/// A file or unit that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartChange {
    /// Path of the file or name of the unit.
    pub name: String,
    /// Kind of the difference.
    pub change: Change,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// Only the new config has it.
    Added,
    /// Both configs have it, with different results on disk.
    Changed,
    /// Both configs have it, encoded differently, with the same result on disk.
    Respelled,
    /// Only the old config has it.
    Removed,
}

/// Differences in the passwd section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserChange {
    /// True if the SSH keys differ.
    pub keys: bool,
    /// True if the password differs.
    pub password: bool,
}

/// A change of a list: all old entries are removed, then all new ones added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    /// Entries of the old list.
    pub remove: Vec<String>,
    /// Entries of the new list.
    pub add: Vec<String>,
}

/// A value that replaces another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Old value.
    pub from: String,
    /// New value.
    pub to: String,
}

/// Compares two configs of a node for which OS images were built.
///
/// The images of the configs themselves are ignored then: they are contained in the built images.
#[must_use]
pub fn between_images(from: &Machine, to: &Machine, images: &BuiltImages) -> ConfigDiff {
    let mut diff = between(from, to);
    let text = |image: &Option<String>| image.clone().unwrap_or_default();
    let (old, new) = (text(&images.from), text(&images.to));
    if !(old.is_empty() && new.is_empty()) {
        diff.os_image = replaced(&old, &new);
        diff.image_mode = if new.is_empty() { ImageMode::Leaving } else { ImageMode::On };
    }
    diff
}

/// Compares two configs.
#[must_use]
pub fn between(from: &Machine, to: &Machine) -> ConfigDiff {
    ConfigDiff {
        from: from.name.clone(),
        to: to.name.clone(),
        files: files(from, to),
        units: units(from, to),
        users: users(from, to),
        kernel_arguments: list(&from.spec.kernel_arguments, &to.spec.kernel_arguments),
        os_image: replaced(&from.spec.os_image_url, &to.spec.os_image_url),
        kernel_type: replaced(from.kernel(), to.kernel()),
        extensions: list(&from.spec.extensions, &to.spec.extensions),
        fips: (from.spec.fips != to.spec.fips).then_some(to.spec.fips),
        image_mode: ImageMode::Off,
    }
}

impl ConfigDiff {
    /// Returns true if nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (from, to, image_mode) = (self.from.clone(), self.to.clone(), self.image_mode);
        *self == Self { from, to, image_mode, ..Self::default() }
    }

    /// Returns the names of the operating system parts that differ; each of them takes a reboot.
    #[must_use]
    pub fn system(&self) -> Vec<&'static str> {
        let parts = [
            ("OS image", self.os_image.is_some()),
            ("kernel arguments", self.kernel_arguments.is_some()),
            ("FIPS mode", self.fips.is_some()),
            ("kernel type", self.kernel_type.is_some()),
            ("extensions", self.extensions.is_some()),
        ];
        parts.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

fn files(from: &Machine, to: &Machine) -> Vec<PartChange> {
    let by_path = |machine: &Machine| -> BTreeMap<String, File> {
        let files = machine.config.storage.files.iter();
        files.map(|file| (file.path.clone(), file.clone())).collect()
    };
    parts(&by_path(from), &by_path(to), |old, new| {
        if is_same_on_disk(old, new) { Change::Respelled } else { Change::Changed }
    })
}

fn is_same_on_disk(old: &File, new: &File) -> bool {
    let owner = |file: &File| (file.user.clone(), file.group.clone());
    machine::mode(old) == machine::mode(new)
        && owner(old) == owner(new)
        && old.append == new.append
        && matches!((machine::contents(old), machine::contents(new)), (Ok(old), Ok(new)) if old == new)
}

fn units(from: &Machine, to: &Machine) -> Vec<PartChange> {
    let by_name = |machine: &Machine| -> BTreeMap<String, Unit> {
        let units = machine.config.systemd.units.iter();
        units.map(|unit| (unit.name.clone(), unit.clone())).collect()
    };
    let mut changes = parts(&by_name(from), &by_name(to), |_, _| Change::Changed);
    changes.sort_by_key(|part| part.change);
    changes
}

fn parts<T: PartialEq>(
    from: &BTreeMap<String, T>,
    to: &BTreeMap<String, T>,
    differs: impl Fn(&T, &T) -> Change,
) -> Vec<PartChange> {
    let mut changes = BTreeMap::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        changes.insert(name, Change::Removed);
    }
    for (name, new) in to {
        match from.get(name) {
            None => {
                changes.insert(name, Change::Added);
            }
            Some(old) if old != new => {
                changes.insert(name, differs(old, new));
            }
            Some(_) => {}
        }
    }
    let part = |(name, change): (&String, Change)| PartChange { name: name.clone(), change };
    changes.into_iter().map(part).collect()
}

fn users(from: &Machine, to: &Machine) -> Option<UserChange> {
    // Compat: any difference in the section counts, for the policy on SSH keys too
    // (pkg/daemon/update.go).
    (from.config.passwd != to.config.passwd).then(|| UserChange {
        keys: from.ssh_keys() != to.ssh_keys(),
        password: from.password_hash() != to.password_hash(),
    })
}

fn list(from: &[String], to: &[String]) -> Option<ListChange> {
    (from != to).then(|| ListChange { remove: from.to_vec(), add: to.to_vec() })
}

fn replaced(from: &str, to: &str) -> Option<Replacement> {
    (from != to).then(|| Replacement { from: from.to_owned(), to: to.to_owned() })
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Respelled => "encoded differently",
            Self::Removed => "removed",
        })
    }
}

#[cfg(test)]
mod tests;
