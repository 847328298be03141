//! The file tree of a machine in the recording's format, and the difference between two trees.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mco_apply::disk;
use mco_core::machine::UNITS;
use mco_host::{Root, snapshot};
use serde_json::{Value, json};

use crate::oracle::{put, text};

/// The directories that the recording and this suite cover.
const COVERED: [&str; 4] = ["/etc", "/home/core", "/usr/local", "/var/lib/oracle"];
/// The daemon's own records.
pub(super) const RECORDS: &str = "/etc/machine-config-daemon";
/// Maximum length of contents that are recorded verbatim. Longer ones are recorded by hash.
const MAX_CONTENT: usize = 4096;

/// The entry at each path.
pub(super) type Tree = BTreeMap<String, Value>;

/// Reads all entries of the covered directories.
pub(super) fn of(root: &Root) -> Result<Tree, String> {
    let mut found = Tree::new();
    for path in COVERED {
        below(root, path, &mut found).map_err(|error| error.to_string())?;
    }
    found.retain(|path, _| !path.starts_with(&format!("{RECORDS}/mco-")));
    for path in [disk::CURRENT_CONFIG, disk::CURRENT_IMAGE] {
        // `mco` restricts these files to root.
        if let Some(entry) = found.get_mut(path) {
            put(entry, "mode", json!("0644"));
        }
    }
    if let Ok(Some(config)) = disk::current_config(root) {
        let name = config.metadata.name.unwrap_or_default();
        if let Some(entry) = found.get_mut(disk::CURRENT_CONFIG).and_then(Value::as_object_mut) {
            for member in ["content", "sha256", "size"] {
                entry.remove(member);
            }
            entry.insert("holdsConfig".to_owned(), json!(name));
        }
    }
    Ok(found)
}

fn below(root: &Root, path: &str, found: &mut Tree) -> Result<(), mco_host::RootError> {
    let Some(stat) = root.stat(path)? else { return Ok(()) };
    let (user, group) = (stat.owner.user, stat.owner.group);
    let mut entry = json!({"path": path, "uid": user, "gid": group});
    if let Some(target) = root.read_link(path)? {
        put(&mut entry, "type", json!("link"));
        put(&mut entry, "target", json!(target));
    } else {
        put(&mut entry, "mode", json!(format!("{:04o}", stat.mode & 0o7777)));
        let kind = if stat.is_directory() { "dir" } else { "file" };
        put(&mut entry, "type", json!(kind));
        if stat.is_file() {
            let bytes = root.read(path)?.unwrap_or_default();
            if bytes.len() <= MAX_CONTENT {
                put(&mut entry, "content", json!(STANDARD.encode(&bytes)));
            } else {
                put(&mut entry, "sha256", json!(snapshot::hash(&bytes)));
                put(&mut entry, "size", json!(bytes.len()));
            }
        }
    }
    found.insert(path.to_owned(), entry);
    if stat.is_directory() {
        for name in root.list(path)? {
            below(root, &format!("{path}/{name}"), found)?;
        }
    }
    Ok(())
}

/// Returns the difference from an earlier tree, in the recording's format.
pub(super) fn changes(first: &Tree, now: &Tree) -> Tree {
    let mut changed = Tree::new();
    for (path, entry) in now {
        if first.get(path) != Some(entry) {
            changed.insert(path.clone(), entry.clone());
        }
    }
    for path in first.keys().filter(|path| !now.contains_key(*path)) {
        changed.insert(path.clone(), json!({"path": path, "type": "absent"}));
    }
    changed
}

/// Returns a list of recorded entries by path.
pub(super) fn recorded(expect: &Value, members: &[&str]) -> Tree {
    let lists = members.iter().filter_map(|member| expect.get(*member).and_then(Value::as_array));
    let keyed = |entry: &Value| (text(entry, "path").unwrap_or_default().to_owned(), entry.clone());
    lists.flatten().map(keyed).collect()
}

/// Accepts a link whose target is the same unit in another unit directory.
pub(super) fn accept_unit_directories(expected: &mut Tree, found: &Tree) {
    for (path, entry) in expected.iter_mut().filter(|(path, _)| path.starts_with(UNITS)) {
        let target = found.get(path).and_then(|found| text(found, "target"));
        let (Some(ours), Some(theirs)) = (target, text(entry, "target")) else { continue };
        let name = |target: &str| target.rsplit('/').next().map(str::to_owned);
        if ours.contains("/systemd/system/") && name(ours) == name(theirs) {
            let ours = json!(ours);
            put(entry, "target", ours);
        }
    }
}
