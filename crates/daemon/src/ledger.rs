//! What the daemon is in the middle of, on disk before it begins.
//!
//! Three files. The pack has the contents of everything the update will touch, as they are before it.
//! The ledger has both configs, the whole plan and what was where; once it is there the update has
//! begun. The third has how far it got, a line a step. Every step may be repeated, so dying between a
//! step and its line costs nothing; and with the pack everything can be put back at any moment.
//!
//! A finished update stays on record until the next, so that it can be taken back on request.

mod touch;

use mco_api::MachineConfig;
use mco_core::{machine::Machine, plan::NodePlan};
use mco_host::{
    Durable, Host, Root, RootError, System, SystemError,
    snapshot::{self, Snapshot, SnapshotError},
};
use serde::{Deserialize, Serialize};

const LEDGER: &str = "/etc/machine-config-daemon/mco-update.json";
const PROGRESS: &str = "/etc/machine-config-daemon/mco-update-progress.json";
/// The last update that was finished.
const LAST: &str = "/etc/machine-config-daemon/mco-last-update.json";
const PACKS: &str = "/etc/machine-config-daemon/mco-before";

/// The user whose password configs may set.
pub(crate) const CORE: &str = "core";

/// An update that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The config that the node had.
    pub from: MachineConfig,
    /// The config that it gets.
    pub to: MachineConfig,
    /// The boot in which the update began.
    pub boot_id: String,
    /// Everything to do.
    pub plan: NodePlan,
    /// What was at every path that the plan touches.
    pub before: Snapshot,
    /// Which pack has the contents.
    pub pack: String,
    /// The encrypted password that there was, if the plan sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// What was to be booted next, if the plan changes that and the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
}

/// How far an update got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Where it is.
    pub stage: Stage,
    /// How many steps of the plan are done.
    pub done: usize,
    /// Why it is being undone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Seconds that the node was given to prove healthy so far, after the reboot.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub waited: u64,
    /// Whether the node proved healthy after the reboot.
    #[serde(skip_serializing_if = "is_no", default)]
    pub confirmed: bool,
    /// The boot in which the update is taken back, if it was booted before that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub back_in: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_no(said: &bool) -> bool {
    !*said
}

/// Where an update is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Steps are being taken.
    #[default]
    Applying,
    /// Everything is done but the reboot.
    Rebooting,
    /// A step failed or somebody asked for it, and what was done is being undone.
    Undoing,
    /// Everything is as it was before, but for the reboot.
    Returning,
}

/// What to do about an update that was begun before this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Take the steps from this one on.
    Continue(usize),
    /// Ask for the reboot again: it has not happened.
    Reboot,
    /// The reboot has happened: see whether the node is as it should be.
    Verify,
    /// Go on undoing.
    Undo,
}

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It does not hold what it should.
    #[error("cannot understand {path}")]
    Parse {
        /// The file.
        path: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// What is there before the update cannot be kept or put back.
    #[error("cannot keep what is there before the update")]
    Keep(#[source] SnapshotError),
    /// The system does not tell what it has.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// What to do about an update that got so far, given the boot it began in and the present one.
#[must_use]
pub fn resume(progress: &Progress, began_in: &str, booted: &str) -> Resume {
    match progress.stage {
        Stage::Applying => Resume::Continue(progress.done),
        // Not done until the machine has booted what it went back to.
        Stage::Returning if progress.back_in.as_deref() == Some(booted) => Resume::Reboot,
        Stage::Undoing | Stage::Returning => Resume::Undo,
        Stage::Rebooting if began_in == booted => Resume::Reboot,
        Stage::Rebooting => Resume::Verify,
    }
}

/// Puts an update on record before its first step, with all that it will touch.
pub fn begin<S: System>(
    host: &Host<S>,
    from: (&MachineConfig, &Machine),
    to: (&MachineConfig, &Machine),
    plan: NodePlan,
) -> Result<Ledger, LedgerError> {
    let root = &host.root;
    let touched = touch::of(root, &plan, from.1, to.1)?;
    let (before, pack) = Snapshot::take(root, &touched.wanted).map_err(LedgerError::Keep)?;
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
    // Progress of an older update must never be taken for this one's.
    root.remove(PROGRESS)?;
    root.write(&pack_path(&ledger.pack), &pack, 0o600)?;
    write(root, LEDGER, &ledger)?;
    Ok(ledger)
}

/// Records how far the update got.
pub fn advance(root: &Root, progress: &Progress) -> Result<(), LedgerError> {
    let text = serde_json::to_string(progress)
        .map_err(|source| LedgerError::Parse { path: PROGRESS, source })?;
    // Ends the line before, too: a crash may have left it unfinished.
    let line = format!("\n{text}\n");
    // A step that is taken again after a power cut costs time only; a change of direction must last.
    let durable = match progress.stage {
        Stage::Applying => Durable::Later,
        Stage::Rebooting | Stage::Undoing | Stage::Returning => Durable::Now,
    };
    Ok(root.append(PROGRESS, line.as_bytes(), durable)?)
}

/// The contents of what the update touches, as they were before it.
pub fn pack(root: &Root, ledger: &Ledger) -> Result<Vec<u8>, LedgerError> {
    Ok(root.read(&pack_path(&ledger.pack))?.unwrap_or_default())
}

/// Takes a finished update off the record of what is to be done; it can still be taken back.
pub fn close(root: &Root) -> Result<(), LedgerError> {
    root.sweep(LEDGER)?;
    if root.stat(LEDGER)?.is_some() {
        root.rename(LEDGER, LAST)?;
    }
    tidy(root)
}

/// Takes an update off the record that was undone, as if it had never been.
pub fn forget(root: &Root) -> Result<(), LedgerError> {
    root.remove(LEDGER)?;
    tidy(root)
}

/// The update that was begun and not finished, if any.
pub fn open(root: &Root) -> Result<Option<(Ledger, Progress)>, LedgerError> {
    let Some(ledger) = read(root, LEDGER)? else {
        // A crash at the very end may have left it.
        if root.stat(PROGRESS)?.is_some() {
            tidy(root)?;
        }
        return Ok(None);
    };
    Ok(Some((ledger, progress(root)?)))
}

/// The last update that was finished and can be taken back, if any.
pub fn last(root: &Root) -> Result<Option<Ledger>, LedgerError> {
    read(root, LAST)
}

/// Opens the last update again in order to take it back; says whether there was one.
pub fn reopen(root: &Root) -> Result<bool, LedgerError> {
    let Some(ledger) = last(root)? else { return Ok(false) };
    root.remove(PROGRESS)?;
    // The direction is settled before the ledger counts again.
    let done = ledger.plan.steps.len();
    advance(root, &Progress { stage: Stage::Undoing, done, ..Progress::default() })?;
    root.rename(LAST, LEDGER)?;
    Ok(true)
}

fn progress(root: &Root) -> Result<Progress, LedgerError> {
    let bytes = root.read(PROGRESS)?.unwrap_or_default();
    // What follows the last line end was never finished, and neither was a line that makes no sense.
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or_default();
    let mut lines = bytes.get(..whole).unwrap_or_default().rsplit(|&byte| byte == b'\n');
    Ok(lines.find_map(|line| serde_json::from_slice(line).ok()).unwrap_or_default())
}

/// Takes away what no ledger speaks of any longer.
fn tidy(root: &Root) -> Result<(), LedgerError> {
    root.remove(PROGRESS)?;
    let kept = last(root)?.map(|ledger| pack_path(&ledger.pack));
    for name in root.list(PACKS)? {
        let path = format!("{PACKS}/{name}");
        if kept.as_ref() != Some(&path) {
            root.remove(&path)?;
        }
    }
    root.sweep(LAST)?;
    root.sweep(LEDGER)?;
    root.remove_empty_directory(PACKS)?;
    Ok(())
}

fn pack_path(hash: &str) -> String {
    format!("{PACKS}/{hash}")
}

fn write<T: Serialize>(root: &Root, path: &'static str, value: &T) -> Result<(), LedgerError> {
    let bytes = serde_json::to_vec(value).map_err(|source| LedgerError::Parse { path, source })?;
    // It holds whole configs, and those hold secrets.
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
    fn an_update_is_not_done_until_the_boot_id_changed() {
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
    fn a_line_that_was_never_finished_does_not_count() {
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
