//! A node as the roll-out sees it.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use mco_api::annotation::{self, DaemonState, Key};

use super::taint;

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
    /// Whether it is closed to pods, and by whom.
    pub cordon: Cordon,
    /// Its failure zone.
    pub zone: Option<String>,
    /// When it joined.
    pub created: Option<Time>,
    /// The config it was first booted with, while that may still say which pool it is for.
    pub first_config: Option<String>,
    /// The labels of the custom pool it was booted for, if it is to get them; see `first_boot`.
    pub claim: Option<BTreeMap<String, String>>,
    /// Whether it is marked as one that will be updated.
    pub mark: taint::Mark,
}

/// Whether pods can be put on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They can.
    Ready,
    /// They cannot; says why.
    Not(String),
}

/// Whether a node is closed to new pods, and by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cordon {
    /// It is open.
    #[default]
    Open,
    /// We closed it, for a drain that its daemon asked for.
    Ours,
    /// Somebody else closed it, and only they open it.
    Theirs,
}

impl NodeView {
    /// Reads what matters off a node.
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
            claim: None,
            mark: taint::Mark::of(node),
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
        config && self.has_its_image() && self.state == Some(DaemonState::Done)
    }

    fn has_its_image(&self) -> bool {
        match (&self.current_image, &self.desired_image) {
            (None, None) => true,
            (Some(current), Some(desired)) => !current.is_empty() && current == desired,
            (Some(_), None) | (None, Some(_)) => false,
        }
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

    /// Whether it was told to run something and is not through with it.
    ///
    /// A failed attempt counts: it may clear by itself, and then the node goes on. So does our cordon,
    /// which stands until the daemon is through.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        let at_it = matches!(self.state, Some(DaemonState::Working | DaemonState::Rebooting))
            || self.cordon == Cordon::Ours;
        let told = self.current != self.desired || !self.has_its_image();
        !self.desired.is_empty() && (told || at_it)
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
    pub(super) fn update_order(&self) -> Order {
        let zone = self.zone.clone().unwrap_or_default();
        (Reverse(self.zone.is_some()), zone, self.created.clone())
    }
}

/// The place of a node among others that could start as well.
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
    if is_closed(node) {
        Readiness::Not(format!("node {name} is reporting Unschedulable"))
    } else {
        Readiness::Ready
    }
}

fn is_closed(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

/// A cordon is ours from the drain that its daemon asks for until the uncordon has been carried out.
fn cordon(node: &Node) -> Cordon {
    if !is_closed(node) {
        return Cordon::Open;
    }
    let value = |key: &str| node.metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let asked = value(annotation::DESIRED_DRAIN.name()).unwrap_or_default();
    let applied = value(annotation::LAST_APPLIED_DRAIN.name()).unwrap_or_default();
    let is = |text: &str, verb| text.split('-').next() == Some(verb);
    if is(asked, "drain") || (is(asked, "uncordon") && is(applied, "drain")) {
        Cordon::Ours
    } else {
        Cordon::Theirs
    }
}
