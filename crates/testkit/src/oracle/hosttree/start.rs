//! The initial disk of a sequence.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mco_host::{Host, Owner, Root, SimulatedSystem, System as _};
use serde::Deserialize;

use super::{HOOK, Simulated};

/// The initial disk, as far as the suite depends on it.
#[derive(Deserialize)]
pub(super) struct Start {
    #[serde(default)]
    coreos: bool,
    #[serde(default)]
    rpm: Rpm,
    #[serde(default)]
    users: Vec<User>,
    #[serde(default)]
    groups: Vec<Group>,
    entries: Vec<Entry>,
}

#[derive(Default, Deserialize)]
struct Rpm {
    #[serde(default)]
    present: bool,
    #[serde(default)]
    owned: Vec<String>,
}

#[derive(Deserialize)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    #[serde(default)]
    home: String,
    #[serde(default, rename = "passwordField")]
    password: Option<String>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    gid: u32,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    content: String,
    #[serde(default)]
    target: String,
}

/// Writes the initial disk.
pub(super) fn write_disk(
    folder: &std::path::Path,
    start: &Start,
) -> Result<Simulated, mco_host::SystemError> {
    let root = Root::open(folder)?;
    let user = |User { name, uid, gid, home, .. }: &User| {
        format!("{name}:x:{uid}:{gid}::{home}:/bin/sh\n")
    };
    let passwd: String = start.users.iter().map(user).collect();
    let group = |Group { name, gid }: &Group| format!("{name}:x:{gid}:\n");
    root.write("/etc/passwd", passwd.as_bytes(), 0o644)?;
    root.write("/etc/group", start.groups.iter().map(group).collect::<String>().as_bytes(), 0o644)?;
    let release = if start.coreos { "ID=rhcos\nVARIANT_ID=coreos\n" } else { "ID=rhel\n" };
    root.write("/etc/os-release", release.as_bytes(), 0o644)?;
    for entry in &start.entries {
        let owner = Owner { user: entry.uid, group: entry.gid };
        let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or(0o755);
        match entry.kind.as_str() {
            "dir" => {
                root.create_directory(&entry.path)?;
                root.set_owner(&entry.path, owner)?;
                root.set_mode(&entry.path, mode)?;
            }
            "link" => root.link(&entry.target, &entry.path)?,
            _ => {
                let bytes = STANDARD.decode(&entry.content).unwrap_or_default();
                root.write_owned(&entry.path, &bytes, mode, Some(owner))?;
            }
        }
    }
    let mut system = SimulatedSystem::open(&root)?;
    system.set_packaged_paths(start.rpm.present.then(|| start.rpm.owned.iter().cloned().collect()));
    let core = start.users.iter().find(|user| user.name == "core");
    if let Some(password) = core.and_then(|core| core.password.as_deref()) {
        system.set_password("core", password)?;
    }
    system.call_log().fail(&format!("reload {HOOK}"));
    Ok(Host { root, system })
}
