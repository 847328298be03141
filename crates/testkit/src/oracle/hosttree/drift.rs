//! Config drift: changes the disk behind the daemon's back, compares the validation, and reverts
//! the change.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mco_core::machine::Machine;
use mco_host::{
    Owner, System as _,
    snapshot::{Snapshot, SnapshotPaths},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Simulated, tree, validation};
use crate::oracle::{difference, text};

/// One change of the disk.
#[derive(Debug, Deserialize)]
pub(super) struct Drift {
    pub(super) after_step: usize,
    kind: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    arg: String,
    /// True if the change is not reverted.
    #[serde(default)]
    pub(super) persist: bool,
}

/// Makes one change and compares its effect and the validation with the recording. Reverts the
/// change unless it persists.
pub(super) fn play(
    host: &mut Simulated,
    drift: &Drift,
    config: &Machine,
    expect: &Value,
    excluded: &BTreeSet<String>,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{drift:?}: {error}");
    let wanted = wanted(drift);
    let (kept, pack) = Snapshot::take(&host.root, &wanted).map_err(|error| failed(&error))?;
    let before = tree::of(&host.root)?;
    act(host, drift).map_err(|error| failed(&error))?;
    let mut found = tree::changes(&before, &tree::of(&host.root)?);
    let mut effect = tree::recorded(expect, &["effect"]);
    for path in excluded {
        found.remove(path);
        effect.remove(path);
    }
    if let Some(difference) = difference(&json!(effect), &json!(found)) {
        return Err(failed(&format!("does {difference}")));
    }
    if let Some(want) = text(expect, "validation") {
        validation::compare(host, config, want, excluded).map_err(|error| failed(&error))?;
    }
    if !drift.persist {
        kept.restore(&host.root, &pack).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn wanted(drift: &Drift) -> SnapshotPaths {
    let mut wanted = SnapshotPaths::default();
    if drift.path.starts_with('/') {
        wanted.paths.extend([drift.path.clone(), moved(&drift.path)]);
    }
    if !drift.unit.is_empty() {
        wanted.units.insert(drift.unit.clone());
    }
    // Includes link folders that become empty, and the links of units that are removed with them.
    wanted.trees.insert("/etc/systemd/system".to_owned());
    wanted
}

fn moved(path: &str) -> String {
    format!("{path}.moved")
}

fn act(host: &mut Simulated, drift: &Drift) -> Result<(), String> {
    let (root, path) = (&host.root, drift.path.as_str());
    let to_text = |error: mco_host::RootError| error.to_string();
    let bytes = || STANDARD.decode(&drift.arg).map_err(|error| error.to_string());
    let present = || Ok::<_, String>(root.read(path).map_err(to_text)?.unwrap_or_default());
    let stat = root.stat(path).ok().flatten();
    let mode = stat.map_or(0o644, |stat| stat.mode & 0o7777);
    let owner = stat.map(|stat| stat.owner);
    match drift.kind.as_str() {
        "append" => root.write_owned(path, &[present()?, bytes()?].concat(), mode, owner),
        "overwrite" => root.write_owned(path, &bytes()?, mode, owner),
        "create" => root.write(path, &bytes()?, 0o644),
        // The copy belongs to root, who makes it.
        "replace-same" => root.write_owned(path, &present()?, mode, Some(Owner::default())),
        "touch" => root.write_owned(path, &present()?, mode, owner),
        "chmod" => {
            let mode = u32::from_str_radix(&drift.arg, 8).map_err(|error| error.to_string())?;
            root.set_mode(path, mode).map(drop)
        }
        "chown" => {
            let (user, group) = drift.arg.split_once(':').ok_or("no owner")?;
            let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
            root.set_owner(path, Owner { user: number(user)?, group: number(group)? }).map(drop)
        }
        "delete" => root.remove(path).map(drop),
        "symlink-null" => root.link("/dev/null", path),
        "symlink-same" => {
            root.rename(path, &moved(path)).and_then(|()| root.link(&moved(path), path))
        }
        "unit-enable" => {
            return host.system.enable(&drift.unit).map_err(|error| error.to_string());
        }
        "unit-disable" => {
            return host.system.disable(&drift.unit).map_err(|error| error.to_string());
        }
        other => return Err(format!("unknown change {other:?}")),
    }
    .map_err(to_text)
}
