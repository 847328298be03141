//! The progress of an update, as the disk records it, and the way to resume the update.

use serde::{Deserialize, Serialize};

/// The progress of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Stage of the update.
    pub stage: Stage,
    /// Number of completed steps.
    pub done: usize,
    /// Reason of the rollback; while steps are executed, the error of the service action to retry.
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
    /// Id of the boot in which the update was applied again, because the machine had booted its
    /// previous system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub again_in: Option<String>,
    /// Id of the boot in which the steps were completed, if the machine rebooted in the middle of
    /// them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub completed_in: Option<String>,
    /// True if a deployment was staged when only the reboot was left.
    #[serde(skip_serializing_if = "is_false", default)]
    pub staged: bool,
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

/// Decides how to resume an update, given the ids of the boot in which it began and of the current
/// one.
#[must_use]
pub fn resume(progress: &Progress, began_in: &str, booted: &str) -> Resume {
    let later = progress.completed_in.as_deref().or(progress.again_in.as_deref());
    let began_in = later.unwrap_or(began_in);
    match progress.stage {
        Stage::Applying if began_in == booted => Resume::Continue(progress.done),
        // A power cut loses the staged deployment. Every step can be repeated.
        Stage::Applying => Resume::Continue(0),
        // The rollback is complete once the machine has booted the previous config.
        Stage::Returning if progress.back_in.as_deref() == Some(booted) => Resume::Reboot,
        Stage::Undoing | Stage::Returning => Resume::Undo,
        Stage::Rebooting if began_in == booted => Resume::Reboot,
        Stage::Rebooting => Resume::Verify,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C135
    #[test]
    fn an_update_is_not_complete_until_the_boot_id_changed() {
        let at = |stage, done| Progress { stage, done, ..Progress::default() };
        let back = Progress { back_in: Some("b2".to_owned()), ..at(Stage::Returning, 9) };
        let again = Progress { again_in: Some("b2".to_owned()), ..at(Stage::Rebooting, 9) };
        let cut = Progress { completed_in: Some("b2".to_owned()), ..at(Stage::Rebooting, 9) };
        let cases = [
            // The machine rebooted in the middle of the steps, and has to reboot after them.
            (cut.clone(), "b1", "b2", Resume::Reboot),
            (cut, "b1", "b3", Resume::Verify),
            (at(Stage::Applying, 0), "b1", "b1", Resume::Continue(0)),
            (at(Stage::Applying, 3), "b1", "b1", Resume::Continue(3)),
            (at(Stage::Applying, 3), "b1", "b2", Resume::Continue(0)),
            (at(Stage::Rebooting, 9), "b1", "b1", Resume::Reboot),
            (at(Stage::Rebooting, 9), "b1", "b2", Resume::Verify),
            (at(Stage::Undoing, 2), "b1", "b2", Resume::Undo),
            (back.clone(), "b1", "b2", Resume::Reboot),
            (back, "b1", "b3", Resume::Undo),
            (again.clone(), "b1", "b2", Resume::Reboot),
            (again, "b1", "b3", Resume::Verify),
        ];
        for (progress, began, booted, want) in cases {
            assert_eq!(resume(&progress, began, booted), want, "{progress:?} {began} {booted}");
        }
    }
}
