//! A node as the roll-out sees it.

use std::{borrow::Cow, cmp::Reverse};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use mco_api::annotation::{self, DaemonState, Key};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A node: what it runs, what it is to run, and whether it can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// The config it runs; empty if it has not said.
    pub current: String,
    /// The config it is to run; empty if nobody has said.
    pub desired: String,
    /// The image it runs, in image mode.
    pub current_image: Option<String>,
    /// The image it is to run, in image mode.
    pub desired_image: Option<String>,
    /// What its daemon is doing, if it has said.
    pub state: Option<DaemonState>,
    /// Why its daemon is degraded; empty if it is not.
    pub reason: String,
    /// Whether pods can be put on it.
    pub readiness: Readiness,
    /// Its failure zone.
    pub zone: Option<String>,
    /// When it joined.
    pub created: Option<Time>,
}

/// Whether pods can be put on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They can.
    Ready,
    /// They cannot; says why.
    Not(String),
}

impl NodeView {
    /// Reads what matters off a node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let metadata = &node.metadata;
        let value = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        let text = |key: &Key<_>| value(key.name()).unwrap_or_default();
        let state = value(annotation::STATE.name()).filter(|text| !text.is_empty());
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            current: text(&annotation::CURRENT_CONFIG),
            desired: text(&annotation::DESIRED_CONFIG),
            current_image: value(annotation::CURRENT_IMAGE.name()),
            desired_image: value(annotation::DESIRED_IMAGE.name()),
            state: state.as_deref().map(DaemonState::from),
            reason: value(annotation::REASON.name()).unwrap_or_default(),
            readiness: readiness(node),
            zone: metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL)).cloned(),
            created: metadata.creation_timestamp.clone(),
        }
    }

    /// Whether pods can be put on it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    /// Whether it runs what it is to run and says so.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let config = !self.current.is_empty() && self.current == self.desired;
        let image = match (&self.current_image, &self.desired_image) {
            (None, None) => true,
            (Some(current), Some(desired)) => !current.is_empty() && current == desired,
            (Some(_), None) | (None, Some(_)) => false,
        };
        config && image && self.state == Some(DaemonState::Done)
    }

    /// Whether its last attempt to reach another config failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.current != self.desired && self.is_degraded()
    }

    /// Whether its daemon says that it failed.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        matches!(self.state, Some(DaemonState::Degraded | DaemonState::Unreconcilable))
    }

    /// Whether it counts as out of service.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        !self.is_ready() || !(self.is_done() || self.is_failing())
    }

    /// Whether it has been told to run `target`, and no image instead.
    #[must_use]
    pub fn is_at(&self, target: &str) -> bool {
        self.desired == target && self.desired_image.is_none()
    }

    /// Whether it runs `target`.
    #[must_use]
    pub fn is_updated(&self, target: &str) -> bool {
        self.is_done() && self.is_at(target)
    }

    /// What nodes are ordered by: zone by name, oldest first, those without a zone last.
    pub(super) fn update_order(&self) -> impl Ord {
        let zone: Cow<'_, str> = self.zone.as_deref().unwrap_or_default().into();
        (Reverse(self.zone.is_some()), zone.into_owned(), self.created.clone())
    }
}

fn readiness(node: &Node) -> Readiness {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions {
        let (word, good) = match condition.type_.as_str() {
            "Ready" => ("NotReady", "True"),
            "DiskPressure" => ("OutOfDisk", "False"),
            "NetworkUnavailable" => ("NetworkUnavailable", "False"),
            _ => continue,
        };
        if condition.status != good {
            let status = &condition.status;
            return Readiness::Not(format!("node {name} is reporting {word}={status}"));
        }
    }
    match node.spec.as_ref().and_then(|spec| spec.unschedulable) {
        Some(true) => Readiness::Not(format!("node {name} is reporting Unschedulable")),
        Some(false) | None => Readiness::Ready,
    }
}
