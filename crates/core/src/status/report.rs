//! The parts of a MachineConfigNode that the status of its pool needs.

use mco_api::{MachineConfigNode, condition::NodeCondition};

/// The state that a daemon reports in its MachineConfigNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineConfigNodeView {
    /// Name of the node.
    pub node: String,
    /// Presence of conditions written by the daemon.
    pub daemon_report: DaemonReport,
    /// Message of the condition `NodeDegraded`, if it is True.
    pub degraded: Option<String>,
    /// State of the condition Updated.
    pub updated: Updated,
    /// Desired config in the status.
    pub desired: String,
    /// Desired image in the status; empty if there is none.
    pub desired_image: String,
    /// State of the pinned images.
    pub images: Images,
}

/// The presence of conditions written by the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonReport {
    /// The daemon has written conditions.
    Present,
    /// The MachineConfigNode exists, and the daemon has not written to it yet.
    Absent,
}

/// Returns true if the daemon writes this condition; the others are the controller's.
fn is_from_daemon(kind: &str) -> bool {
    let controllers = [
        NodeCondition::Waiting,
        NodeCondition::Cordoned,
        NodeCondition::Drained,
        NodeCondition::Uncordoned,
        NodeCondition::UpdateExecuted,
        NodeCondition::UpdateComplete,
    ];
    controllers.iter().all(|other| other.as_str() != kind)
}

/// The state of the condition Updated, with its position.
///
/// Compat: if both Updated and `NodeDegraded` are True, the condition that comes first counts
/// (`pkg/controller/node/status.go`, calculateStatus).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// Updated is not True.
    No,
    /// Updated is True, and `NodeDegraded` is not True before it.
    First,
    /// Updated is True, after `NodeDegraded`.
    AfterDegraded,
}

/// The state of a node's pinned images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// All images are pulled.
    Pulled,
    /// Some images are missing.
    Missing,
}

impl MachineConfigNodeView {
    /// Returns the state of a node whose daemon has not reported yet.
    #[must_use]
    pub fn without_report(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            daemon_report: DaemonReport::Absent,
            degraded: None,
            updated: Updated::No,
            desired: String::new(),
            desired_image: String::new(),
            images: Images::Missing,
        }
    }

    /// Reads the relevant fields of a MachineConfigNode.
    #[must_use]
    pub fn of(node: &MachineConfigNode) -> Self {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(status) = &node.status else {
            return Self { images: Images::Pulled, ..Self::without_report(name) };
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
            daemon_report: if status.conditions.iter().any(|found| is_from_daemon(&found.type_)) {
                DaemonReport::Present
            } else {
                DaemonReport::Absent
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
