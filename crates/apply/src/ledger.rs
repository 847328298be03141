//! The ledger: the update in progress, recorded on disk before it begins.
//!
//! Three files. The pack has the contents of everything that the update touches, as they were
//! before it. The ledger has both configs, the whole plan and the snapshot of all paths; once it
//! exists the update has begun. The third file has the progress, a line per step. Every step can be
//! repeated, so a crash between a step and its line costs nothing; and with the pack everything can
//! be restored at any time.
//!
//! A completed update stays recorded until the next, so that it can be rolled back on request.
//!
//! The files are in `/var`, which all deployments of an image-based system share: a rollback to
//! another deployment must not lose them.

mod moved;
mod touched;

use mco_api::MachineConfig;
pub use mco_core::lifecycle::{Progress, Resume, Stage, resume};
use mco_core::{machine::Machine, plan::NodePlan};
use mco_host::{
    Durable, Host, Root, RootError, System, SystemError,
    snapshot::{self, Snapshot, SnapshotError},
};
use serde::{Deserialize, Serialize};

use crate::force;

/// Record of an unfinished update.
pub const LEDGER: &str = "/var/lib/machine-config-daemon/mco-update.json";
const PROGRESS: &str = "/var/lib/machine-config-daemon/mco-update-progress.json";
/// The last completed update.
const LAST_UPDATE: &str = "/var/lib/machine-config-daemon/mco-last-update.json";
const PACKS: &str = "/var/lib/machine-config-daemon/mco-before";

/// The user whose password configs may set.
pub(crate) const CORE: &str = "core";

/// An update that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Version of the format.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Previous config of the node.
    pub from: MachineConfig,
    /// Target config of the node.
    pub to: MachineConfig,
    /// Id of the boot in which the update began.
    pub boot_id: String,
    /// The steps of the update.
    pub plan: NodePlan,
    /// Snapshot of every path that the plan touches.
    pub before: Snapshot,
    /// Name of the pack with the contents.
    pub pack: String,
    /// Previous encrypted password, if the plan sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Previously staged deployment, if the plan changes it and the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
}

/// Version of the format that this program writes, the highest that it reads.
const VERSION: u32 = 1;

/// Returns the version of ledgers that do not name theirs.
fn first_version() -> u32 {
    1
}

/// A failure to read or write the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger cannot be parsed.
    #[error("failed to parse {path}")]
    Parse {
        /// Path of the file.
        path: &'static str,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The ledger was written by a newer program.
    #[error(
        "{path} has version {found} of its format, and this program reads up to {VERSION}; use the \
         newer program"
    )]
    Version {
        /// Path of the file.
        path: &'static str,
        /// Version of the file.
        found: u32,
    },
    /// The pack is missing or damaged, so that the update cannot be rolled back.
    #[error(
        "the backup {path} is {fault}, so that the update cannot be rolled back; `mco node recover` \
         or `mco host recover abandon` leaves this state"
    )]
    Pack {
        /// Path of the pack.
        path: String,
        /// The fault.
        fault: &'static str,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The snapshot cannot be taken or restored.
    #[error("failed to take a snapshot before the update")]
    Snapshot(#[source] SnapshotError),
    /// A call to the operating system failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Records an update before its first step, with a snapshot of everything that it touches.
pub fn begin<S: System>(
    host: &Host<S>,
    from: (&MachineConfig, &Machine),
    to: (&MachineConfig, &Machine),
    plan: NodePlan,
) -> Result<Ledger, LedgerError> {
    let root = &host.root;
    let touched = touched::of(root, &plan, from.1, to.1)?;
    let (before, pack) = Snapshot::take(root, &touched.wanted).map_err(LedgerError::Snapshot)?;
    let password = if touched.password { host.system.password(CORE)? } else { None };
    let staged = if touched.system { host.system.staged()? } else { None };
    let name = snapshot::hash(&pack);
    let ledger = Ledger {
        version: VERSION,
        from: from.0.clone(),
        to: to.0.clone(),
        boot_id: host.system.facts()?.boot_id,
        plan,
        before,
        pack: name,
        password,
        staged,
    };
    // Progress of an older update must never be mistaken for this one's.
    root.remove(PROGRESS)?;
    root.write(&pack_path(&ledger.pack), &pack, 0o600)?;
    write(root, LEDGER, &ledger)?;
    Ok(ledger)
}

/// Records the progress of the update.
pub fn advance(root: &Root, progress: &Progress) -> Result<(), LedgerError> {
    let text = serde_json::to_string(progress)
        .map_err(|source| LedgerError::Parse { path: PROGRESS, source })?;
    // Terminates the previous line, too, which a crash may have left unfinished.
    let line = format!("\n{text}\n");
    // A step that is repeated after a power cut costs time only; a change of the stage must be
    // durable.
    let durable = match progress.stage {
        Stage::Applying => Durable::Later,
        Stage::Rebooting | Stage::Undoing | Stage::Returning => Durable::Now,
    };
    Ok(root.append(PROGRESS, line.as_bytes(), durable)?)
}

/// Returns the pack: the previous contents of everything that the update touches. Fails unless it is
/// complete, so that nothing is removed that could not be restored.
pub fn pack(root: &Root, ledger: &Ledger) -> Result<Vec<u8>, LedgerError> {
    let path = pack_path(&ledger.pack);
    let Some(pack) = root.read(&path)? else {
        return Err(LedgerError::Pack { path, fault: "missing" });
    };
    if snapshot::hash(&pack) != ledger.pack {
        return Err(LedgerError::Pack { path, fault: "damaged" });
    }
    Ok(pack)
}

/// Closes a completed update; it can still be rolled back.
pub fn close(root: &Root) -> Result<(), LedgerError> {
    root.remove_temporary(LEDGER)?;
    if root.stat(LEDGER)?.is_some() {
        root.rename(LEDGER, LAST_UPDATE)?;
    }
    prune(root)
}

/// Removes an update that was rolled back from the ledger.
pub fn forget(root: &Root) -> Result<(), LedgerError> {
    root.remove(LEDGER)?;
    prune(root)
}

/// Forgets an update that can be neither completed nor rolled back, also one whose record cannot be
/// read; returns false if there is none.
///
/// Nothing else on the machine changes. The next update writes everything, also after a reboot.
pub fn abandon(root: &Root) -> Result<bool, LedgerError> {
    let has_update = root.stat(LEDGER)?.is_some();
    if has_update {
        // Before the ledger: a crash in between must not lose the request.
        force::record_abandoned(root)?;
        root.remove(LEDGER)?;
    }
    if last_update(root).is_err() {
        root.remove(LAST_UPDATE)?;
    }
    prune(root)?;
    Ok(has_update)
}

/// Returns true if an unfinished update is recorded, although the record may not be readable.
pub(crate) fn exists(root: &Root) -> Result<bool, LedgerError> {
    moved::from_etc(root)?;
    Ok(root.stat(LEDGER)?.is_some())
}

/// Returns the unfinished update, if any.
pub fn open(root: &Root) -> Result<Option<(Ledger, Progress)>, LedgerError> {
    moved::from_etc(root)?;
    let Some(ledger) = read_ledger(root, LEDGER)? else {
        // A crash at the very end may have left the progress.
        if root.stat(PROGRESS)?.is_some() {
            prune(root)?;
        }
        return Ok(None);
    };
    Ok(Some((ledger, progress(root)?)))
}

/// Returns the last completed update that can be rolled back, if any.
pub fn last_update(root: &Root) -> Result<Option<Ledger>, LedgerError> {
    read_ledger(root, LAST_UPDATE)
}

/// Opens the last update again in order to roll it back; returns false if there is none.
pub fn reopen(root: &Root) -> Result<bool, LedgerError> {
    let Some(ledger) = last_update(root)? else { return Ok(false) };
    root.remove(PROGRESS)?;
    // The stage is recorded before the ledger counts again.
    let done = ledger.plan.steps.len();
    advance(root, &Progress { stage: Stage::Undoing, done, ..Progress::default() })?;
    root.rename(LAST_UPDATE, LEDGER)?;
    Ok(true)
}

fn progress(root: &Root) -> Result<Progress, LedgerError> {
    let bytes = root.read(PROGRESS)?.unwrap_or_default();
    // Bytes after the last newline were never finished, and neither was an unreadable line.
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or_default();
    let mut lines = bytes.get(..whole).unwrap_or_default().rsplit(|&byte| byte == b'\n');
    Ok(lines.find_map(|line| serde_json::from_slice(line).ok()).unwrap_or_default())
}

/// Removes files that no ledger refers to.
fn prune(root: &Root) -> Result<(), LedgerError> {
    root.remove(PROGRESS)?;
    let kept = last_update(root)?.map(|ledger| pack_path(&ledger.pack));
    for name in root.list(PACKS)? {
        let path = format!("{PACKS}/{name}");
        if kept.as_ref() != Some(&path) {
            root.remove(&path)?;
        }
    }
    root.remove_temporary(LAST_UPDATE)?;
    root.remove_temporary(LEDGER)?;
    root.remove_empty_directory(PACKS)?;
    Ok(())
}

pub(crate) fn pack_path(hash: &str) -> String {
    format!("{PACKS}/{hash}")
}

fn write<T: Serialize>(root: &Root, path: &'static str, value: &T) -> Result<(), LedgerError> {
    let bytes = serde_json::to_vec(value).map_err(|source| LedgerError::Parse { path, source })?;
    // The file holds whole configs, which hold secrets.
    Ok(root.write(path, &bytes, 0o600)?)
}

fn read_ledger(root: &Root, path: &'static str) -> Result<Option<Ledger>, LedgerError> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default = "first_version")]
        version: u32,
    }
    let Some(bytes) = root.read(path)? else { return Ok(None) };
    let unreadable = |source| LedgerError::Parse { path, source };
    // A newer format may have other fields, so that its version is read first.
    let Versioned { version: found } = serde_json::from_slice(&bytes).map_err(unreadable)?;
    if found > VERSION {
        return Err(LedgerError::Version { path, found });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_line_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(progress(&root).unwrap(), Progress::default());
        for (bytes, want) in [
            ("{\"stage\":\"app", 0),
            ("{\"stage\":\"applying\",\"done\":1}\n", 1),
            ("{\"stage\":\"applying\",\"done\":1}\n{\"stage\":\"undoing\",\"do", 1),
            ("{\"stage\":\"applying\",\"done\":1}\n{\"stage\":\"applying\",\"done\":2}\n", 2),
            ("{\"stage\":\"applying\",\"done\":1}\n\n{\"sta\n\n", 1),
        ] {
            root.write(PROGRESS, bytes.as_bytes(), 0o600).unwrap();
            assert_eq!(progress(&root).unwrap().done, want, "{bytes}");
        }
    }
}
