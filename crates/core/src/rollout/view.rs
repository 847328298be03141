//! The parts of a node that the rollout needs.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use mco_api::annotation::{self, DaemonState, Key};

use super::taint;
use crate::drain::{Handshake, verb};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A node with its current and desired config and its availability.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// Config that the node runs; empty if not reported.
    pub current: String,
    /// Config that the node is to run; empty if not set.
    pub desired: String,
    /// OS image that the node runs, in image mode.
    pub current_image: Option<String>,
    /// OS image that the node is to run, in image mode.
    pub desired_image: Option<String>,
    /// State of the daemon, if reported.
    pub state: Option<DaemonState>,
    /// Reason why the daemon is degraded; empty if it is not.
    pub reason: String,
    /// Readiness for pods.
    pub readiness: Readiness,
    /// Cordon of the node, if any.
    pub cordon: Cordon,
    /// Failure zone.
    pub zone: Option<String>,
    /// Creation time.
    pub created: Option<Time>,
    /// Config of the first boot, until the node has the labels of its custom pool.
    pub first_config: Option<String>,
    /// Labels of the custom pool that the node was booted for, if they must be set; see
    /// `first_boot`.
    pub pool_labels: Option<BTreeMap<String, String>>,
    /// Presence of the taint `UpdateInProgress`.
    pub taint: taint::UpdateTaint,
}

/// The readiness of a node for pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Pods can be scheduled.
    Ready,
    /// Pods cannot be scheduled, for this reason.
    Not(String),
}

/// The cordon of a node, with its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cordon {
    /// The node is schedulable.
    #[default]
    Open,
    /// The controller cordoned the node, for a drain that the daemon requested.
    Controller,
    /// The user cordoned the node, and only the user uncordons it.
    User,
}

impl NodeView {
    /// Reads the relevant fields of a node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let metadata = &node.metadata;
        let value = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
        let text = |key: &Key<_>| value(key.name()).unwrap_or_default();
        let state = value(annotation::STATE.name()).filter(|text| !text.is_empty());
        let labelled = value(annotation::CUSTOM_POOL_LABELS_APPLIED.name()).is_some();
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            current: text(&annotation::CURRENT_CONFIG),
            desired: text(&annotation::DESIRED_CONFIG),
            current_image: value(annotation::CURRENT_IMAGE.name()),
            desired_image: value(annotation::DESIRED_IMAGE.name()),
            state: state.as_deref().map(DaemonState::from),
            reason: value(annotation::REASON.name()).unwrap_or_default(),
            readiness: readiness(node),
            cordon: cordon(node),
            zone: metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL)).cloned(),
            created: metadata.creation_timestamp.clone(),
            first_config: value(annotation::FIRST_PIVOT_CONFIG.name()).filter(|_| !labelled),
            pool_labels: None,
            taint: taint::UpdateTaint::of(node),
        }
    }

    /// Returns true if pods can be scheduled.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    /// Returns true if the node runs its desired config and image and the daemon reports `Done`.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let config = !self.current.is_empty() && self.current == self.desired;
        config && self.has_desired_image() && self.state == Some(DaemonState::Done)
    }

    fn has_desired_image(&self) -> bool {
        match (&self.current_image, &self.desired_image) {
            (None, None) => true,
            (Some(current), Some(desired)) => !current.is_empty() && current == desired,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Returns true if the node runs, or is to run, an OS image that was built in the cluster.
    #[must_use]
    pub(crate) fn has_built_image(&self) -> bool {
        let is_set = |image: &Option<String>| image.as_ref().is_some_and(|text| !text.is_empty());
        is_set(&self.current_image) || is_set(&self.desired_image)
    }

    /// Returns true if the last update to another config failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.current != self.desired && self.is_degraded()
    }

    /// Returns true if the daemon is degraded.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        matches!(self.state, Some(DaemonState::Degraded | DaemonState::Unreconcilable))
    }

    /// Returns true if the node counts as unavailable.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        !self.is_ready() || !(self.is_done() || self.is_failing())
    }

    /// Returns true if the node is updating.
    ///
    /// A failed update counts: it may recover by itself, and then the node continues. So does a
    /// cordon by the controller, which stays until the daemon is done.
    #[must_use]
    pub fn is_updating(&self) -> bool {
        let is_active = matches!(self.state, Some(DaemonState::Working | DaemonState::Rebooting))
            || self.cordon == Cordon::Controller;
        let differs = self.current != self.desired || !self.has_desired_image();
        !self.desired.is_empty() && (differs || is_active)
    }

    /// Returns true if `target` is the desired config, and no image is desired.
    #[must_use]
    pub fn is_targeted(&self, target: &str) -> bool {
        self.desired == target && self.desired_image.is_none()
    }

    /// Returns true if the node runs `target`.
    #[must_use]
    pub fn is_updated(&self, target: &str) -> bool {
        self.is_done() && self.is_targeted(target)
    }

    /// Returns the sort key of a node: zone by name, oldest first, nodes without a zone last.
    pub(super) fn update_order(&self) -> Order {
        let zone = self.zone.clone().unwrap_or_default();
        (Reverse(self.zone.is_some()), zone, self.created.clone())
    }
}

/// The sort key of a node among the candidates.
pub(super) type Order = (Reverse<bool>, String, Option<Time>);

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
    if is_cordoned(node) {
        Readiness::Not(format!("node {name} is reporting Unschedulable"))
    } else {
        Readiness::Ready
    }
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

/// Reads the cordon. It belongs to the controller from the drain that the daemon requests until the
/// uncordon is applied.
fn cordon(node: &Node) -> Cordon {
    if !is_cordoned(node) {
        return Cordon::Open;
    }
    let handshake = Handshake::of(node.metadata.annotations.as_ref());
    let is_asked = |wanted: &str| verb(handshake.desired) == wanted;
    if is_asked("drain") || (is_asked("uncordon") && handshake.owns_cordon()) {
        Cordon::Controller
    } else {
        Cordon::User
    }
}
