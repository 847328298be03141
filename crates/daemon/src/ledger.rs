//! The ledger: the update in progress, recorded on disk before it begins.
//!
//! Three files. The pack has the contents of everything that the update touches, as they were
//! before it. The ledger has both configs, the whole plan and the snapshot of all paths; once it
//! exists the update has begun. The third file has the progress, a line per step. Every step can be
//! repeated, so a crash between a step and its line costs nothing; and with the pack everything can
//! be restored at any time.
//!
//! A completed update stays recorded until the next, so that it can be rolled back on request.

mod touched;

use mco_api::MachineConfig;
use mco_core::{machine::Machine, plan::NodePlan};
use mco_host::{
    Durable, Host, Root, RootError, System, SystemError,
    snapshot::{self, Snapshot, SnapshotError},
};
use serde::{Deserialize, Serialize};

const LEDGER: &str = "/etc/machine-config-daemon/mco-update.json";
const PROGRESS: &str = "/etc/machine-config-daemon/mco-update-progress.json";
/// The last completed update.
const LAST_UPDATE: &str = "/etc/machine-config-daemon/mco-last-update.json";
const PACKS: &str = "/etc/machine-config-daemon/mco-before";

/// The user whose password configs may set.
pub(crate) const CORE: &str = "core";

/// An update that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
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

/// The progress of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Stage of the update.
    pub stage: Stage,
    /// Number of completed steps.
    pub done: usize,
    /// Reason of the rollback.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Seconds that the node had to prove healthy so far, after the reboot.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub waited: u64,
    /// True once the node proved healthy after the reboot.
    #[serde(skip_serializing_if = "is_false", default)]
    pub confirmed: bool,
    /// Id of the boot in which the update was rolled back, if it was booted before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub back_in: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// The stage of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Steps are being executed.
    #[default]
    Applying,
    /// All steps but the reboot are completed.
    Rebooting,
    /// A step failed or a rollback was requested, and the snapshot is being restored.
    Undoing,
    /// The snapshot is restored; a reboot completes the rollback.
    Returning,
}

/// The way to resume an update after a restart of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Execute the steps from this index on.
    Continue(usize),
    /// Start the reboot, which has not happened.
    Reboot,
    /// Verify the disk: the reboot has happened.
    Verify,
    /// Continue the rollback.
    Undo,
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

/// Decides how to resume an update, given the ids of the boot in which it began and of the current
/// one.
#[must_use]
pub fn resume(progress: &Progress, began_in: &str, booted: &str) -> Resume {
    match progress.stage {
        Stage::Applying => Resume::Continue(progress.done),
        // The rollback is complete once the machine has booted the previous config.
        Stage::Returning if progress.back_in.as_deref() == Some(booted) => Resume::Reboot,
        Stage::Undoing | Stage::Returning => Resume::Undo,
        Stage::Rebooting if began_in == booted => Resume::Reboot,
        Stage::Rebooting => Resume::Verify,
    }
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

/// Returns the pack: the previous contents of everything that the update touches.
pub fn pack(root: &Root, ledger: &Ledger) -> Result<Vec<u8>, LedgerError> {
    Ok(root.read(&pack_path(&ledger.pack))?.unwrap_or_default())
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

/// Returns the unfinished update, if any.
pub fn open(root: &Root) -> Result<Option<(Ledger, Progress)>, LedgerError> {
    let Some(ledger) = read(root, LEDGER)? else {
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
    read(root, LAST_UPDATE)
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

fn pack_path(hash: &str) -> String {
    format!("{PACKS}/{hash}")
}

fn write<T: Serialize>(root: &Root, path: &'static str, value: &T) -> Result<(), LedgerError> {
    let bytes = serde_json::to_vec(value).map_err(|source| LedgerError::Parse { path, source })?;
    // The file holds whole configs, which hold secrets.
    Ok(root.write(path, &bytes, 0o600)?)
}

fn read<T: serde::de::DeserializeOwned>(
    root: &Root,
    path: &'static str,
) -> Result<Option<T>, LedgerError> {
    let Some(bytes) = root.read(path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| LedgerError::Parse { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C135
    #[test]
    fn an_update_is_not_complete_until_the_boot_id_changed() {
        let at = |stage, done| Progress { stage, done, ..Progress::default() };
        let back = Progress { back_in: Some("b2".to_owned()), ..at(Stage::Returning, 9) };
        let cases = [
            (at(Stage::Applying, 0), "b1", "b1", Resume::Continue(0)),
            (at(Stage::Applying, 3), "b1", "b1", Resume::Continue(3)),
            (at(Stage::Applying, 3), "b1", "b2", Resume::Continue(3)),
            (at(Stage::Rebooting, 9), "b1", "b1", Resume::Reboot),
            (at(Stage::Rebooting, 9), "b1", "b2", Resume::Verify),
            (at(Stage::Undoing, 2), "b1", "b2", Resume::Undo),
            (back.clone(), "b1", "b2", Resume::Reboot),
            (back, "b1", "b3", Resume::Undo),
        ];
        for (progress, began, booted, want) in cases {
            assert_eq!(resume(&progress, began, booted), want, "{progress:?} {began} {booted}");
        }
    }

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
