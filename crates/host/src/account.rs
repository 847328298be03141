//! Users and groups of a machine, from its own files.
//!
//! Image-based systems keep the accounts of the image below `/usr/lib` (nss-altfiles); those in
//! `/etc` come first.

use mco_core::machine::is_one_field;

use crate::root::{Owner, Root, RootError};

const USERS: [&str; 2] = ["/etc/passwd", "/usr/lib/passwd"];
const GROUPS: [&str; 2] = ["/etc/group", "/usr/lib/group"];
const SHADOW: &str = "/etc/shadow";

/// Returns the ids of a user; none if the machine has no such user.
pub fn user(root: &Root, name: &str) -> Result<Option<Owner>, RootError> {
    let fields = |line: &str| -> Option<Owner> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some(Owner { user, group: fields.next()?.parse().ok()? })
    };
    Ok(texts(root, USERS)?.lines().find_map(fields))
}

/// Returns true if the machine has a user of this id.
pub fn is_known(root: &Root, id: u32) -> Result<bool, RootError> {
    let has_id = |line: &str| line.split(':').nth(2).and_then(|it| it.parse().ok()) == Some(id);
    Ok(texts(root, USERS)?.lines().any(has_id))
}

/// Returns the id of a group; none if the machine has no such group.
pub fn group(root: &Root, name: &str) -> Result<Option<u32>, RootError> {
    let field = |line: &str| -> Option<u32> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok()
    };
    Ok(texts(root, GROUPS)?.lines().find_map(field))
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
    if !is_one_field(hash) {
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

fn texts(root: &Root, paths: [&str; 2]) -> Result<String, RootError> {
    let [first, second] = paths.map(|path| text(root, path));
    Ok(format!("{}\n{}", first?, second?))
}

fn text(root: &Root, path: &str) -> Result<String, RootError> {
    let bytes = root.read(path)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C61
    #[test]
    fn accounts_of_the_image_are_found_and_those_in_etc_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let write = |path: &str, text: &str| root.write(path, text.as_bytes(), 0o644).unwrap();
        write("/usr/lib/passwd", "chrony:x:994:992::/:/bin/false\ncore:x:1:1::/:/bin/sh\n");
        write("/usr/lib/group", "chrony:x:992:\n");
        assert_eq!(user(&root, "chrony").unwrap(), Some(Owner { user: 994, group: 992 }));
        write("/etc/passwd", "core:x:1000:1000::/:/bin/sh");
        assert_eq!(user(&root, "core").unwrap(), Some(Owner { user: 1000, group: 1000 }));
        assert_eq!(group(&root, "chrony").unwrap(), Some(992));
        assert!(is_known(&root, 994).unwrap() && !is_known(&root, 7).unwrap());
        assert_eq!(user(&root, "nobody").unwrap(), None);
    }
}
