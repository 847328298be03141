//! Users and groups of a machine, as its own files list them.

use crate::root::{Owner, Root, RootError};

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The ids of a user, or none if the machine has no such user.
pub fn user(root: &Root, name: &str) -> Result<Option<Owner>, RootError> {
    let fields = |line: &str| -> Option<Owner> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some(Owner { user, group: fields.next()?.parse().ok()? })
    };
    Ok(text(root, USERS)?.lines().find_map(fields))
}

/// The id of a group, or none if the machine has no such group.
pub fn group(root: &Root, name: &str) -> Result<Option<u32>, RootError> {
    let field = |line: &str| -> Option<u32> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok()
    };
    Ok(text(root, GROUPS)?.lines().find_map(field))
}

fn text(root: &Root, path: &str) -> Result<String, RootError> {
    let bytes = root.read(path)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
