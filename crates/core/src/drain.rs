//! What a drain does to each pod of a node, and when it is late.
//!
//! The daemon asks by annotation and waits for the answer; see `mco_api::annotation::DrainRequest`.

pub mod feasibility;
mod limits;

use std::{fmt, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use mco_api::{
    annotation::{BadDrainRequest, DrainRequest, DrainVerb},
    duration,
};

pub use self::limits::{BadTimeout, Limits};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// How a drain goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long one attempt goes on before it counts as failed.
    pub attempt: Duration,
    /// Pause between two tries to evict a pod that a budget protects, unless the server names one.
    pub refused: Duration,
}

impl Pace {
    /// What the reference does.
    pub const REFERENCE: Self =
        Self { attempt: Duration::from_secs(90), refused: Duration::from_secs(5) };
}

/// What a node's daemon has asked for and not got yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// This.
    This(DrainRequest),
    /// Something that we do not understand.
    Unclear {
        /// The text.
        text: String,
        /// What is wrong with it.
        fault: BadDrainRequest,
    },
}

/// Compares what is asked for with what was last done, both as annotated.
#[must_use]
pub fn asked(desired: Option<&str>, applied: Option<&str>) -> Asked {
    let desired = desired.unwrap_or_default();
    if desired == applied.unwrap_or_default() {
        return Asked::Nothing;
    }
    match desired.parse() {
        Ok(request) => Asked::This(request),
        // Compat: the verb ends at the first dash or, without one, with the text
        // (pkg/controller/drain/drain_controller.go, syncNode).
        Err(BadDrainRequest::Shape) => match desired {
            "drain" => bare(DrainVerb::Drain),
            "uncordon" => bare(DrainVerb::Uncordon),
            text => {
                let fault = BadDrainRequest::Verb(text.to_owned());
                Asked::Unclear { text: text.to_owned(), fault }
            }
        },
        Err(fault) => Asked::Unclear { text: desired.to_owned(), fault },
    }
}

fn bare(verb: DrainVerb) -> Asked {
    Asked::This(DrainRequest { verb, config: String::new() })
}

/// What to say of a drain that does not get on, and how soon to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setback {
    /// Pause before the next attempt.
    pub pause: Duration,
    /// What to warn of, once it has gone on for long; a line of the log is enough before that.
    pub warning: Option<String>,
}

/// Weighs an attempt that failed because of `why`, in a drain that has gone on for `age`.
#[must_use]
pub fn setback(limits: &Limits, age: Duration, why: &str) -> Setback {
    let warning = (age > limits.slow).then(|| {
        format!(
            "Drain failed. Drain has been failing for more than {}. \
             Waiting 5 minutes then retrying. Error message from drain: {why}",
            minutes(limits.slow)
        )
    });
    Setback { pause: retry_after(limits, age), warning }
}

/// What to say of a drain that is not over after this long, if a person must look.
#[must_use]
pub fn overdue(node: &str, limits: &Limits, age: Duration) -> Option<String> {
    (age > limits.overdue).then(|| {
        let timeout = duration::go(limits.overdue);
        format!("node {node}: drain exceeded timeout: {timeout}. Will continue to retry.")
    })
}

/// Pause before the next attempt of a drain that has gone on for `age`.
#[must_use]
pub fn retry_after(limits: &Limits, age: Duration) -> Duration {
    if age > limits.slow { Duration::from_mins(5) } else { Duration::from_mins(1) }
}

/// In words, where it is a number of minutes.
fn minutes(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (1, 0) => "1 minute".to_owned(),
        (minutes @ 1.., 0) => format!("{minutes} minutes"),
        (_, _) => duration::go(duration),
    }
}

/// A pod, as a drain sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity: a pod made anew under the same name is another one.
    pub uid: String,
    /// What becomes of it.
    pub fate: Fate,
}

/// What a drain does with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is evicted.
    Evict,
    /// It is on its way out; the drain waits for it.
    Leaving,
    /// It stays: the kubelet runs it from a file.
    Mirror,
    /// It stays: its `DaemonSet` would put it back at once.
    DaemonSet,
}

impl PodView {
    /// Reads what matters off a pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            fate: fate(pod),
        }
    }

    /// Whether the drain is not over while the pod is there.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        matches!(self.fate, Fate::Evict | Fate::Leaving)
    }
}

impl fmt::Display for PodView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn fate(pod: &Pod) -> Fate {
    let metadata = &pod.metadata;
    if metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR)) {
        return Fate::Mirror;
    }
    if metadata.deletion_timestamp.is_some() {
        return Fate::Leaving;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let finished = matches!(phase, Some("Succeeded" | "Failed"));
    let owner = metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    // A finished pod of a DaemonSet is removed like any other finished one.
    if !finished && owner.is_some_and(|owner| owner.kind == "DaemonSet") {
        return Fate::DaemonSet;
    }
    Fate::Evict
}

#[cfg(test)]
mod tests;
