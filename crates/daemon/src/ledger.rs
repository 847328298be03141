//! What the daemon is in the middle of, on disk before it begins.
//!
//! Two files. The first has both configs and the whole plan and is written once; the second has how
//! far it got and is written after every step. Without the second nothing was done yet. Every step
//! may be repeated, so dying between a step and its record costs nothing.

use mco_api::MachineConfig;
use mco_core::plan::NodePlan;
use mco_host::{Root, RootError};
use serde::{Deserialize, Serialize};

const LEDGER: &str = "/etc/machine-config-daemon/mco-update.json";
const PROGRESS: &str = "/etc/machine-config-daemon/mco-update-progress.json";

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
}

/// How far an update got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Where it is.
    pub stage: Stage,
    /// How many steps of that stage are done.
    pub done: usize,
    /// Why it is being undone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
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
    /// A step failed, and what was done is being undone.
    Undoing,
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
    /// Go on undoing from this step on.
    Undo(usize),
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
}

/// What to do about an update that got so far, given the boot it began in and the present one.
#[must_use]
pub fn resume(progress: &Progress, began_in: &str, booted: &str) -> Resume {
    match progress.stage {
        Stage::Applying => Resume::Continue(progress.done),
        Stage::Undoing => Resume::Undo(progress.done),
        Stage::Rebooting if began_in == booted => Resume::Reboot,
        Stage::Rebooting => Resume::Verify,
    }
}

/// Puts an update on record before its first step.
pub fn begin(root: &Root, ledger: &Ledger) -> Result<(), LedgerError> {
    // Progress of an older update must never be taken for this one's.
    root.remove(PROGRESS)?;
    write(root, LEDGER, ledger)
}

/// Records how far the update got.
pub fn advance(root: &Root, progress: &Progress) -> Result<(), LedgerError> {
    write(root, PROGRESS, progress)
}

/// Takes the update off the record.
pub fn close(root: &Root) -> Result<(), LedgerError> {
    root.remove(LEDGER)?;
    root.remove(PROGRESS)?;
    Ok(())
}

/// The update that was begun and not finished, if any.
pub fn open(root: &Root) -> Result<Option<(Ledger, Progress)>, LedgerError> {
    let Some(ledger) = read(root, LEDGER)? else { return Ok(None) };
    let progress = read(root, PROGRESS)?.unwrap_or_default();
    Ok(Some((ledger, progress)))
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
        let at = |stage, done| Progress { stage, done, fault: None };
        let cases = [
            (at(Stage::Applying, 0), "b1", "b1", Resume::Continue(0)),
            (at(Stage::Applying, 3), "b1", "b1", Resume::Continue(3)),
            (at(Stage::Applying, 3), "b1", "b2", Resume::Continue(3)),
            (at(Stage::Rebooting, 9), "b1", "b1", Resume::Reboot),
            (at(Stage::Rebooting, 9), "b1", "b2", Resume::Verify),
            (at(Stage::Undoing, 2), "b1", "b2", Resume::Undo(2)),
        ];
        for (progress, began, booted, want) in cases {
            assert_eq!(resume(&progress, began, booted), want, "{progress:?} {began} {booted}");
        }
    }
}
