//! Decisions of a drain: what happens to each pod, and when a drain is slow or overdue.
//!
//! The daemon requests a drain by annotation and waits for the controller's answer; see
//! `mco_api::annotation::DrainRequest`.

pub mod feasibility;
mod limits;

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use mco_api::{
    annotation::{self, DrainRequest, DrainRequestError, DrainVerb},
    duration,
};

pub use self::limits::{BadTimeout, Limits};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Time limits of one drain attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionTiming {
    /// Duration after which one attempt counts as failed.
    pub attempt_timeout: Duration,
    /// Pause between two eviction requests for a pod that a `PodDisruptionBudget` protects, unless
    /// the API server's response names one.
    pub retry_interval: Duration,
}

impl EvictionTiming {
    /// Values of the reference.
    pub const REFERENCE: Self =
        Self { attempt_timeout: Duration::from_secs(90), retry_interval: Duration::from_secs(5) };
}

/// A drain request of a node's daemon that the controller has not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingRequest {
    /// No request is pending.
    None,
    /// A valid request.
    Request(DrainRequest),
    /// A request that cannot be parsed.
    Invalid {
        /// Text of the annotation.
        text: String,
        /// Parse error.
        fault: DrainRequestError,
    },
}

/// The annotations of a node by which its daemon and the controller agree on a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake<'a> {
    /// Request of the daemon; empty if there is none.
    pub desired: &'a str,
    /// Request that the controller acknowledged last; empty if there is none.
    pub applied: &'a str,
    /// True if the node has the record of a drain that was neither completed nor taken back.
    pub is_recorded: bool,
}

impl<'a> Handshake<'a> {
    /// Reads the annotations of a node.
    #[must_use]
    pub fn of(annotations: Option<&'a BTreeMap<String, String>>) -> Self {
        let value = |key: &str| annotations?.get(key).map(String::as_str);
        Self {
            desired: value(annotation::DESIRED_DRAIN.name()).unwrap_or_default(),
            applied: value(annotation::LAST_APPLIED_DRAIN.name()).unwrap_or_default(),
            is_recorded: value(annotation::DRAIN_RECORD.name()).is_some(),
        }
    }

    /// Returns true if the cordon of the node belongs to the controller, which then removes it
    /// together with its answer to an uncordon request.
    ///
    /// The controller writes the record with its cordon and removes it with its answer, so that one
    /// of the two annotations names the drain until the node is uncordoned.
    #[must_use]
    pub fn owns_cordon(&self) -> bool {
        self.is_recorded || verb(self.applied) == "drain"
    }
}

/// Returns the verb of a request.
///
/// Compat: the verb ends at the first dash or, without one, with the text
/// (`pkg/controller/drain/drain_controller.go`, `syncNode`).
pub(crate) fn verb(request: &str) -> &str {
    request.split('-').next().unwrap_or_default()
}

/// Returns the request of the daemon that the controller has to carry out.
///
/// An uncordon that was acknowledged before is pending again while the record of a drain is left:
/// the node was cordoned after the acknowledgement, and the daemon has withdrawn the drain.
#[must_use]
pub fn pending_request(handshake: &Handshake<'_>) -> PendingRequest {
    let desired = handshake.desired;
    let is_left_cordoned = handshake.is_recorded && verb(desired) == "uncordon";
    if desired == handshake.applied && !is_left_cordoned {
        return PendingRequest::None;
    }
    match desired.parse() {
        Ok(request) => PendingRequest::Request(request),
        Err(DrainRequestError::Shape) => match desired {
            "drain" => bare(DrainVerb::Drain),
            "uncordon" => bare(DrainVerb::Uncordon),
            text => {
                let fault = DrainRequestError::Verb(text.to_owned());
                PendingRequest::Invalid { text: text.to_owned(), fault }
            }
        },
        Err(fault) => PendingRequest::Invalid { text: desired.to_owned(), fault },
    }
}

fn bare(verb: DrainVerb) -> PendingRequest {
    PendingRequest::Request(DrainRequest { verb, config: String::new() })
}

/// Retry delay and warning after a failed drain attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryDecision {
    /// Delay before the next attempt.
    pub pause: Duration,
    /// Text of a warning event once the drain is slow; before that a log line is enough.
    pub warning: Option<String>,
}

/// Decides on the retry after an attempt failed because of `why`, in a drain that started `age`
/// ago.
#[must_use]
pub fn after_failure(limits: &Limits, age: Duration, why: &str) -> RetryDecision {
    let pause = retry_after(limits, age);
    // Compat: the reference names its limit, not the age (pkg/controller/drain/drain_controller.go,
    // drainNode).
    let failing = if limits.slow == Limits::REFERENCE.slow { limits.slow } else { age };
    let warning = (age > limits.slow).then(|| {
        format!(
            "Drain failed. Drain has been failing for more than {}. \
             Waiting {} then retrying. Error message from drain: {why}",
            in_words(failing),
            in_words(pause)
        )
    });
    RetryDecision { pause, warning }
}

/// Returns the text to report if a drain that started `age` ago is overdue.
#[must_use]
pub fn overdue(node: &str, limits: &Limits, age: Duration) -> Option<String> {
    (age > limits.overdue).then(|| {
        let timeout = duration::format_go(limits.overdue);
        format!("node {node}: drain exceeded timeout: {timeout}. Will continue to retry.")
    })
}

/// Returns the delay before the next attempt of a drain that started `age` ago.
///
/// It is never longer than the timeout, and ends when the drain becomes overdue, so that this is
/// reported in time.
#[must_use]
pub fn retry_after(limits: &Limits, age: Duration) -> Duration {
    let pause = if age > limits.slow { Duration::from_mins(5) } else { Duration::from_mins(1) };
    pause.min(limits.overdue).min(until_overdue(limits, age))
}

/// Returns the time limit of an attempt of a drain that started `age` ago: the attempt ends when
/// the drain becomes overdue.
#[must_use]
pub fn attempt_time(limits: &Limits, age: Duration) -> Duration {
    limits.attempt.min(until_overdue(limits, age))
}

/// Returns the time after which a drain that started `age` ago is overdue; no limit if it is.
fn until_overdue(limits: &Limits, age: Duration) -> Duration {
    if age > limits.overdue {
        return Duration::MAX;
    }
    limits.overdue.saturating_sub(age).saturating_add(Duration::from_secs(1))
}

/// Formats a duration in hours or minutes if it is a whole number of them, otherwise like Go.
#[must_use]
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let counted = |count: u64, unit: &str| match count {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    };
    match (seconds / 60, seconds % 60) {
        (minutes @ 60.., 0) if minutes % 60 == 0 => counted(minutes / 60, "hour"),
        (minutes @ 1.., 0) => counted(minutes, "minute"),
        (0, 0) => format!("{}ms", duration.as_millis()),
        (_, _) => duration::format_go(duration),
    }
}

/// The parts of a pod that a drain needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod: a recreated pod with the same name is another one.
    pub uid: String,
    /// Treatment of the pod by the drain.
    pub treatment: PodTreatment,
}

/// The treatment of a pod by a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodTreatment {
    /// The drain evicts the pod.
    Evict,
    /// The pod is terminating; the drain waits for it.
    Leaving,
    /// The pod stays: it is a mirror pod, which the kubelet runs from a file.
    Mirror,
    /// The pod stays: its `DaemonSet` would recreate it at once.
    DaemonSet,
}

impl PodView {
    /// Reads the relevant fields of a pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            treatment: fate(pod),
        }
    }

    /// Returns true if the drain cannot finish while the pod exists.
    #[must_use]
    pub fn blocks_drain(&self) -> bool {
        matches!(self.treatment, PodTreatment::Evict | PodTreatment::Leaving)
    }
}

impl fmt::Display for PodView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn fate(pod: &Pod) -> PodTreatment {
    let metadata = &pod.metadata;
    if metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR)) {
        return PodTreatment::Mirror;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let finished = matches!(phase, Some("Succeeded" | "Failed"));
    let owner = metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    // A finished pod of a DaemonSet is evicted like any other finished pod.
    if !finished && owner.is_some_and(|owner| owner.kind == "DaemonSet") {
        // Also while it terminates: a replacement follows at once (kubectl drain ignores it, too).
        return PodTreatment::DaemonSet;
    }
    if metadata.deletion_timestamp.is_some() {
        return PodTreatment::Leaving;
    }
    PodTreatment::Evict
}

#[cfg(test)]
mod tests;
