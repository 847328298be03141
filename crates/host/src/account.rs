//! Users and groups of a machine, from its own files.

use crate::root::{Owner, Root, RootError};

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
const SHADOW: &str = "/etc/shadow";

/// Returns the ids of a user; none if the machine has no such user.
pub fn user(root: &Root, name: &str) -> Result<Option<Owner>, RootError> {
    let fields = |line: &str| -> Option<Owner> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some(Owner { user, group: fields.next()?.parse().ok()? })
    };
    Ok(text(root, USERS)?.lines().find_map(fields))
}

/// Returns true if the machine has a user of this id.
pub fn is_known(root: &Root, id: u32) -> Result<bool, RootError> {
    let has_id = |line: &str| line.split(':').nth(2).and_then(|it| it.parse().ok()) == Some(id);
    Ok(text(root, USERS)?.lines().any(has_id))
}

/// Returns the id of a group; none if the machine has no such group.
pub fn group(root: &Root, name: &str) -> Result<Option<u32>, RootError> {
    let field = |line: &str| -> Option<u32> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok()
    };
    Ok(text(root, GROUPS)?.lines().find_map(field))
}

/// Returns the encrypted password of a user; none if `/etc/shadow` has no entry for it.
pub fn password(root: &Root, name: &str) -> Result<Option<String>, RootError> {
    let field = |line: &str| -> Option<String> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.next().map(str::to_owned)
    };
    Ok(text(root, SHADOW)?.lines().find_map(field))
}

/// Sets the encrypted password of a user; returns false if `/etc/shadow` has no entry for it.
///
/// For a machine that does not run: a running one has tools that lock the file.
pub fn set_password(root: &Root, name: &str, hash: &str) -> Result<bool, RootError> {
    if hash.contains([':', '\n']) {
        return Err(RootError::Outside { path: SHADOW.to_owned() });
    }
    let Some(stat) = root.stat(SHADOW)? else { return Ok(false) };
    let mut is_there = false;
    let mut lines = String::new();
    for line in text(root, SHADOW)?.lines() {
        match line.split_once(':') {
            Some((user, rest)) if user == name => {
                is_there = true;
                let others = rest.split_once(':').map_or("", |(_, others)| others);
                lines.extend([user, ":", hash, ":", others, "\n"]);
            }
            _ => lines.extend([line, "\n"]),
        }
    }
    if is_there {
        root.write_owned(SHADOW, lines.as_bytes(), stat.mode, Some(stat.owner))?;
    }
    Ok(is_there)
}

fn text(root: &Root, path: &str) -> Result<String, RootError> {
    let bytes = root.read(path)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
