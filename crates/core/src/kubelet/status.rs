//! The status of a KubeletConfig, and the progress that the render controller waits for.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mco_api::{
    KubeletConfig, condition::SettingsCondition, kubelet_config::KubeletConfigStatus,
    meta::LooseCondition,
};

use crate::generated::Family;

/// Number of results that the status keeps.
const WINDOW: usize = 3;

/// Message of an accepted KubeletConfig.
const SUCCESS: &str = "Success";

/// Returns the conditions after a result; `failure` is the message of a refusal.
///
/// Compat: up to three entries `Accepted`, the newest last, and after them one entry `Success` or
/// `Failure` of the older form, whose status is `True` (pkg/controller/kubelet-config). A result
/// that repeats the last one only renews its time.
#[must_use]
pub fn conditions(
    before: &[LooseCondition],
    failure: Option<&str>,
    now: Timestamp,
) -> Vec<LooseCondition> {
    let message = message(failure);
    let entry = |kind: &SettingsCondition, status: &str| LooseCondition {
        kind: kind.as_str().to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(Time(now)),
        reason: String::new(),
        message: message.clone(),
    };
    let (accepted, kind) = match failure {
        None => ("True", SettingsCondition::Success),
        Some(_) => ("False", SettingsCondition::Failure),
    };
    let is_accepted = |one: &&LooseCondition| one.kind == SettingsCondition::Accepted.as_str();
    let mut after: Vec<LooseCondition> = before.iter().filter(is_accepted).cloned().collect();
    if after.last().is_some_and(|last| last.message == message) {
        after.pop();
    }
    after.push(entry(&SettingsCondition::Accepted, accepted));
    let surplus = after.len().saturating_sub(WINDOW);
    after.drain(..surplus);
    after.push(entry(&kind, "True"));
    after
}

fn message(failure: Option<&str>) -> String {
    failure.map_or_else(|| SUCCESS.to_owned(), |failure| format!("Error: {failure}"))
}

/// Returns true if the status already says this about the current generation.
#[must_use]
pub fn is_reported(config: &KubeletConfig, failure: Option<&str>) -> bool {
    let status = status(config);
    let message = message(failure);
    let mut newest = status.conditions.iter().rev();
    let said = |one: Option<&LooseCondition>| one.is_some_and(|one| one.message == message);
    is_observed(config, &status) && said(newest.next()) && said(newest.next())
}

fn status(config: &KubeletConfig) -> KubeletConfigStatus {
    config.status.clone().unwrap_or_default()
}

fn is_observed(config: &KubeletConfig, status: &KubeletConfigStatus) -> bool {
    status.observed_generation >= config.metadata.generation.unwrap_or_default()
}

/// Progress of a KubeletConfig towards the MachineConfig of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The MachineConfig exists and has the settings.
    Settled,
    /// The settings are refused, or the object is being deleted: the pool does not wait.
    NotApplied,
    /// The controller has not yet written the MachineConfig.
    Pending,
}

/// Returns the progress of a KubeletConfig that selects a pool; `exists` tells if a MachineConfig
/// exists.
#[must_use]
pub fn progress(config: &KubeletConfig, pool: &str, exists: impl Fn(&str) -> bool) -> Progress {
    if config.metadata.deletion_timestamp.is_some() {
        return Progress::NotApplied;
    }
    let status = status(config);
    let Some(last) = status.conditions.last().filter(|_| is_observed(config, &status)) else {
        return Progress::Pending;
    };
    if last.kind == SettingsCondition::Failure.as_str() {
        return Progress::NotApplied;
    }
    let finalizers = config.metadata.finalizers.iter().flatten();
    let mut made = finalizers.filter(|name| Family::Kubelet.number(pool, name).is_some());
    if made.any(|name| exists(name)) { Progress::Settled } else { Progress::Pending }
}
