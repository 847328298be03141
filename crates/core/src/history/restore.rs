//! The former contents of an edited MachineConfig, from the rendered configs before and after the edit.
//!
//! The difference of the rendered configs is undone in the MachineConfig. Whether that leads back is
//! proved by rendering.

use mco_api::{MachineConfig, RawConfig};
use mco_ignition::{
    Config,
    config::{File, Unit, User},
};

use crate::machine::Machine;

/// The entries that a MachineConfig may set after a change is undone in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those that it sets now, and those that no MachineConfig sets any more.
    Own,
    /// All, because it overrides the other MachineConfigs.
    All,
}

/// The rendered configs before and after a change.
pub(super) struct RenderedChange {
    present: Machine,
    wanted: Machine,
}

impl RenderedChange {
    /// Reads the rendered configs; `None` if one cannot be parsed.
    pub(super) fn read(present: &MachineConfig, wanted: &MachineConfig) -> Option<Self> {
        Some(Self { present: Machine::read(present).ok()?, wanted: Machine::read(wanted).ok()? })
    }

    /// Returns a MachineConfig with the change undone in it; `None` if others have a part in the change.
    pub(super) fn undone_in(&self, config: &MachineConfig, scope: Scope) -> Option<MachineConfig> {
        let Machine { mut spec, config: mut contents, .. } = Machine::read(config).ok()?;
        let (present, wanted) = (&self.present, &self.wanted);
        let is_complete = undo_entries(&present.config, &wanted.config, &mut contents, scope);
        if !is_complete {
            return None;
        }
        undo_list(
            &present.spec.kernel_arguments,
            &wanted.spec.kernel_arguments,
            &mut spec.kernel_arguments,
        );
        undo_list(&present.spec.extensions, &wanted.spec.extensions, &mut spec.extensions);
        for (present, wanted, own) in [
            (&present.spec.kernel_type, &wanted.spec.kernel_type, &mut spec.kernel_type),
            (&present.spec.os_image_url, &wanted.spec.os_image_url, &mut spec.os_image_url),
        ] {
            if present != wanted {
                own.clone_from(wanted);
            }
        }
        let json = String::from_utf8(contents.to_json()).ok()?;
        spec.config = Some(RawConfig::from_json(json).ok()?);
        let mut former = config.clone();
        former.spec = spec;
        Some(former)
    }
}

/// Undoes the change of files, units and users; returns false if entries of other MachineConfigs would
/// have to change.
fn undo_entries(present: &Config, wanted: &Config, own: &mut Config, scope: Scope) -> bool {
    let (files, units, users) =
        (&mut own.storage.files, &mut own.systemd.units, &mut own.passwd.users);
    let path = |it: &File| it.path.clone();
    let unit = |it: &Unit| it.name.clone();
    let user = |it: &User| it.name.clone();
    undo(&present.storage.files, &wanted.storage.files, files, path, scope)
        && undo(&present.systemd.units, &wanted.systemd.units, units, unit, scope)
        && undo(&present.passwd.users, &wanted.passwd.users, users, user, scope)
}

fn undo<T: Clone + PartialEq>(
    present: &[T],
    wanted: &[T],
    own: &mut Vec<T>,
    key: impl Fn(&T) -> String,
    scope: Scope,
) -> bool {
    let find = |entries: &[T], name: &str| entries.iter().position(|it| key(it) == name);
    for entry in wanted.iter().filter(|entry| !present.contains(entry)) {
        let name = key(entry);
        match find(own, &name) {
            Some(place) => own.splice(place..=place, [entry.clone()]).for_each(drop),
            None if scope == Scope::Own && find(present, &name).is_some() => return false,
            None => own.push(entry.clone()),
        }
    }
    for name in present.iter().map(&key).filter(|name| find(wanted, name).is_none()) {
        match find(own, &name) {
            Some(place) => drop(own.remove(place)),
            None => return false,
        }
    }
    true
}

/// Removes the items of a list that were added, and adds those that were removed.
fn undo_list(present: &[String], wanted: &[String], own: &mut Vec<String>) {
    own.retain(|item| wanted.contains(item) || !present.contains(item));
    own.extend(wanted.iter().filter(|item| !present.contains(item)).cloned());
}
