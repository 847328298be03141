//! Removal of duplicate files, units and users, which 2.x allowed and 3.x does not.
//!
//! Compat: the later entry wins and the order of files and units is reversed, because the reference
//! collects from the end (`removeIgnDuplicateFilesUnitsUsers` in pkg/controller/common/helpers.go).
//! The order affects the names of rendered configs.

use std::collections::{HashMap, HashSet};

use super::{Config, File, Unit, UpgradeError, User};

/// Name of the only user on the machines of a cluster.
const CORE_USER: &str = "core";

/// Removes duplicate files, units and users from `config`.
pub(super) fn clean(config: &mut Config) -> Result<(), UpgradeError> {
    config.storage.files = files(std::mem::take(&mut config.storage.files));
    config.systemd.units = units(std::mem::take(&mut config.systemd.units));
    config.passwd.users = users(std::mem::take(&mut config.passwd.users))?;
    Ok(())
}

/// Compat: files are duplicates if their paths are equal, regardless of their filesystems.
fn files(files: Vec<File>) -> Vec<File> {
    let mut seen = HashSet::new();
    files.into_iter().rev().filter(|file| seen.insert(file.path.clone())).collect()
}

/// Merges units of the same name: the last unit gets the drop-ins of earlier ones that it does not
/// have.
fn units(units: Vec<Unit>) -> Vec<Unit> {
    let mut kept: Vec<Unit> = Vec::with_capacity(units.len());
    let mut places: HashMap<String, usize> = HashMap::new();
    for unit in units.into_iter().rev() {
        let known = places.get(&unit.name).copied();
        let Some(later) = known.and_then(|at| kept.get_mut(at)) else {
            places.insert(unit.name.clone(), kept.len());
            kept.push(unit);
            continue;
        };
        for dropin in unit.dropins {
            if !later.dropins.iter().any(|known| known.name == dropin.name) {
                later.dropins.push(dropin);
            }
        }
    }
    kept
}

/// Merges all users into the last one, which gets the SSH keys of all, its own first.
fn users(users: Vec<User>) -> Result<Vec<User>, UpgradeError> {
    let mut kept: Option<User> = None;
    for user in users.into_iter().rev() {
        if user.name != CORE_USER {
            return Err(UpgradeError::OtherUser(user.name));
        }
        match &mut kept {
            Some(last) => last.ssh_authorized_keys.extend(user.ssh_authorized_keys),
            None => kept = Some(user),
        }
    }
    if let Some(user) = &mut kept {
        let mut seen = HashSet::new();
        user.ssh_authorized_keys.retain(|key| seen.insert(key.clone()));
    }
    Ok(kept.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v2::Dropin;

    fn dropins(names: &str) -> Vec<Dropin> {
        let dropin = |name: &str| {
            let (name, contents) = name.split_once('=').unwrap();
            Dropin { name: name.to_owned(), contents: contents.to_owned() }
        };
        names.split_whitespace().map(dropin).collect()
    }

    // covers: REN-21
    #[test]
    fn the_later_file_wins_and_the_order_is_reversed() {
        let file = |path: &str, mode| File { path: path.to_owned(), mode, ..File::default() };
        let cleaned = files(vec![file("/a", Some(1)), file("/b", Some(2)), file("/a", Some(3))]);
        let shown: Vec<_> = cleaned.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        assert_eq!(shown, [("/a", Some(3)), ("/b", Some(2))]);
    }

    #[test]
    fn a_later_unit_gets_the_missing_drop_ins_of_an_earlier_one() {
        let unit = |contents: &str, names: &str| Unit {
            name: "a.service".to_owned(),
            contents: contents.to_owned(),
            dropins: dropins(names),
            ..Unit::default()
        };
        let cleaned =
            units(vec![unit("first", "x=1 y=1"), unit("second", "y=2 z=2"), unit("third", "z=3")]);
        assert_eq!(cleaned, [unit("third", "z=3 y=2 x=1")]);
    }

    // covers: REN-21
    #[test]
    fn the_last_user_gets_every_key_once() {
        let user = |name: &str, keys: &str| User {
            name: name.to_owned(),
            ssh_authorized_keys: keys.split_whitespace().map(str::to_owned).collect(),
            ..User::default()
        };
        let cleaned = users(vec![user("core", "a b"), user("core", "c a c")]).unwrap();
        assert_eq!(cleaned, [user("core", "c a b")]);
        let refused = users(vec![user("root", ""), user("core", "")]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "unexpected user with name: root. Only core user is supported"
        );
    }
}
