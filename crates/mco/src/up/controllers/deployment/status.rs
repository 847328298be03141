//! The status of a Deployment.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{counts, desired, limits};

/// Seconds without progress after which a rollout has failed, if the Deployment sets none.
const PROGRESS_DEADLINE: i32 = 600;

/// Returns the status; members that are null are removed.
pub(super) fn status(
    deployment: &Deployment,
    current: Option<&ReplicaSet>,
    sets: &[&ReplicaSet],
    now: Timestamp,
) -> Value {
    let spec = deployment.spec.clone().unwrap_or_default();
    let all: Vec<_> = sets.iter().copied().map(counts).collect();
    let sum = |of: fn(&super::Counts) -> i32| all.iter().map(of).sum::<i32>();
    let (replicas, available) = (sum(|set| set.present), sum(|set| set.available));
    let ready = |set: &&ReplicaSet| set.status.as_ref().and_then(|it| it.ready_replicas);
    let ready: i32 = sets.iter().filter_map(ready).sum();
    let updated = current.map(counts);
    let updated_count = updated.as_ref().map_or(0, |set| set.present);
    let desired = desired(&spec);
    let wanted_total = sum(|set| set.wanted).max(desired);
    let is_complete = updated.as_ref().is_some_and(|set| {
        set.present == desired && set.available == desired && replicas == desired
    });
    let limits = limits(&spec);
    let is_available = available >= desired.saturating_sub(limits.unavailable);
    let before = deployment.status.as_ref();
    let is_same = before.is_some_and(|status| {
        status.updated_replicas.unwrap_or(0) == updated_count
            && status.available_replicas.unwrap_or(0) == available
            && status.replicas.unwrap_or(0) == replicas
            && status.observed_generation == deployment.metadata.generation
    });
    let progress = Progress {
        set: current.map(ReplicaSet::name_any),
        is_complete,
        is_changed: !is_same,
        is_paused: spec.paused.unwrap_or(false),
        deadline: spec.progress_deadline_seconds.unwrap_or(PROGRESS_DEADLINE),
    };
    let conditions =
        [availability(deployment, is_available, now), progressing(deployment, &progress, now)];
    let positive = |number: i32| if number > 0 { json!(number) } else { Value::Null };
    json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": positive(replicas),
        "updatedReplicas": positive(updated_count),
        "readyReplicas": positive(ready),
        "availableReplicas": positive(available),
        "unavailableReplicas": positive(wanted_total.saturating_sub(available)),
        "conditions": conditions,
    })
}

fn previous<'d>(deployment: &'d Deployment, kind: &str) -> Option<&'d DeploymentCondition> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == kind)
}

fn availability(
    deployment: &Deployment,
    is_available: bool,
    now: Timestamp,
) -> DeploymentCondition {
    let (status, reason, message) = if is_available {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let new = condition("Available", status, reason, message.to_owned(), now);
    kept(previous(deployment, "Available"), new, false)
}

/// The state of a rollout.
struct Progress {
    /// Name of the current ReplicaSet.
    set: Option<String>,
    is_complete: bool,
    /// True if the numbers of pods differ from those of the status.
    is_changed: bool,
    is_paused: bool,
    /// Seconds without a change after which the rollout has failed.
    deadline: i32,
}

fn progressing(
    deployment: &Deployment,
    progress: &Progress,
    now: Timestamp,
) -> DeploymentCondition {
    let before = previous(deployment, "Progressing");
    let set = progress.set.as_deref().unwrap_or_default();
    let since = before.and_then(|it| it.last_update_time.as_ref()).map_or(now, |time| time.0);
    let limit = SignedDuration::from_secs(i64::from(progress.deadline));
    let was_paused = before.and_then(|it| it.reason.as_deref()) == Some("DeploymentPaused");
    let has_timed_out = !progress.is_changed && !was_paused && now.duration_since(since) > limit;
    let (status, reason, message) = if progress.is_paused {
        ("Unknown", "DeploymentPaused", "Deployment is paused".to_owned())
    } else if progress.is_complete {
        let message = format!("ReplicaSet {set:?} has successfully progressed.");
        ("True", "NewReplicaSetAvailable", message)
    } else if has_timed_out {
        let message = format!("ReplicaSet {set:?} has timed out progressing.");
        ("False", "ProgressDeadlineExceeded", message)
    } else {
        ("True", "ReplicaSetUpdated", format!("ReplicaSet {set:?} is progressing."))
    };
    let new = condition("Progressing", status, reason, message, now);
    kept(before, new, progress.is_changed && !progress.is_complete)
}

fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    // Times of the API have whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Returns the condition with the times of the one before, as far as nothing changed since.
fn kept(
    before: Option<&DeploymentCondition>,
    new: DeploymentCondition,
    is_changed: bool,
) -> DeploymentCondition {
    let Some(before) = before.filter(|it| it.status == new.status) else { return new };
    let last_transition_time = before.last_transition_time.clone();
    let is_same = before.reason == new.reason && before.message == new.message && !is_changed;
    let last_update_time =
        if is_same { before.last_update_time.clone() } else { new.last_update_time };
    DeploymentCondition { last_update_time, last_transition_time, ..new }
}
