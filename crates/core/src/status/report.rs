//! What a node's daemon says in its MachineConfigNode, as far as its pool is concerned.

use mco_api::{MachineConfigNode, condition::NodeCondition};

/// What a node's daemon says in its MachineConfigNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Whether it has said anything yet.
    pub voice: Voice,
    /// Why it is degraded, if it is.
    pub degraded: Option<String>,
    /// Whether it says that it runs what it is to run.
    pub updated: Updated,
    /// The config that it is to run, as it knows it.
    pub desired: String,
    /// The image that it is to run, as it knows it; empty where there is none.
    pub desired_image: String,
    /// Whether all pinned images are there.
    pub images: Images,
}

/// Whether a MachineConfigNode has conditions of the daemon yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// It has.
    Heard,
    /// It was made, and the daemon has never written to it.
    Silent,
}

/// Whether a condition comes from the daemon; the others are the controller's own words.
fn is_the_daemons(kind: &str) -> bool {
    let ours = [
        NodeCondition::Waiting,
        NodeCondition::Cordoned,
        NodeCondition::Drained,
        NodeCondition::Uncordoned,
        NodeCondition::UpdateExecuted,
        NodeCondition::UpdateComplete,
    ];
    ours.iter().all(|ours| ours.as_str() != kind)
}

/// Whether a node says that it is updated, and where.
///
/// Compat: of a node that says both, the condition that comes first counts
/// (`pkg/controller/node/status.go`, calculateStatus).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// It does not.
    No,
    /// It does, before anything about being degraded.
    First,
    /// It does, after it said that it is degraded.
    AfterDegraded,
}

/// How far a node is with its pinned images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// All are there.
    Pulled,
    /// Some are missing.
    Missing,
}

impl NodeReport {
    /// A node that has said nothing yet.
    #[must_use]
    pub fn silent(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            voice: Voice::Silent,
            degraded: None,
            updated: Updated::No,
            desired: String::new(),
            desired_image: String::new(),
            images: Images::Missing,
        }
    }

    /// Reads what matters off a MachineConfigNode.
    #[must_use]
    pub fn of(node: &MachineConfigNode) -> Self {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(status) = &node.status else {
            return Self { images: Images::Pulled, ..Self::silent(name) };
        };
        let place = |kind: NodeCondition| {
            let mut conditions = status.conditions.iter();
            conditions.position(|found| found.type_ == kind.as_str() && found.status == "True")
        };
        let (degraded, updated) =
            (place(NodeCondition::NodeDegraded), place(NodeCondition::Updated));
        let pulled = status.pinned_image_sets.iter().all(|set| {
            set.current_generation == set.desired_generation && set.desired_generation > 0
        });
        let version = status.config_version.as_ref();
        Self {
            node: name.to_owned(),
            voice: if status.conditions.iter().any(|found| is_the_daemons(&found.type_)) {
                Voice::Heard
            } else {
                Voice::Silent
            },
            degraded: degraded
                .and_then(|place| status.conditions.get(place))
                .map(|condition| condition.message.clone()),
            updated: match (updated, degraded) {
                (None, _) => Updated::No,
                (Some(updated), Some(degraded)) if updated > degraded => Updated::AfterDegraded,
                (Some(_), _) => Updated::First,
            },
            desired: version.map(|version| version.desired.clone()).unwrap_or_default(),
            desired_image: String::new(),
            images: if pulled { Images::Pulled } else { Images::Missing },
        }
    }
}
