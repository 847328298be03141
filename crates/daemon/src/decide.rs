//! Decides the daemon's next task from the node's annotations, the disk and the ledger.
//!
//! Pure. The disk has precedence on the node's current config: the annotations may be older,
//! restored from a backup, or gone.

use std::collections::BTreeMap;

use mco_api::{
    RenderedName,
    annotation::{
        self, AnnotationError, DaemonState, DrainRequest, DrainVerb, PostConfigAction, Topology,
    },
};

use crate::ledger::{Progress, Resume, resume};

/// The annotations of a node that the daemon reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAnnotations {
    /// Config of the node.
    pub current: Option<RenderedName>,
    /// Desired config of the node.
    pub desired: Option<RenderedName>,
    /// State of the daemon.
    pub state: Option<DaemonState>,
    /// Reason of the state.
    pub reason: String,
    /// Last request to the drain controller.
    pub requested_drain: Option<DrainRequest>,
    /// Last request that the drain controller completed.
    pub last_applied_drain: Option<DrainRequest>,
    /// True if the daemon announced a reboot.
    pub rebooting: bool,
    /// Topology of the control plane.
    pub topology: Option<Topology>,
}

/// The daemon's records on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// Recorded config.
    pub current: Option<RenderedName>,
    /// Annotations to set when the node first joins.
    pub initial_annotations: Option<BTreeMap<String, String>>,
    /// Unfinished update, and the id of the boot in which it began.
    pub update: Option<(Progress, String)>,
    /// Id of the current boot.
    pub boot_id: String,
    /// True if a force file asks to apply the config again.
    pub force: bool,
}

/// The next task of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Resume an unfinished update.
    Resume(Resume),
    /// Clear the Rebooting annotation.
    ClearRebooting,
    /// Set the initial annotations of the node.
    SetInitialAnnotations(BTreeMap<String, String>),
    /// Verify the disk against this config, have the node uncordoned and report Done.
    Complete(RenderedName),
    /// Update the node from one config to another.
    Update {
        /// Config of the node.
        from: RenderedName,
        /// Desired config.
        to: RenderedName,
    },
    /// Adopt a machine that was not managed so far.
    Adopt,
    /// Nothing can be done: an annotation is missing.
    Blocked(MissingAnnotation),
}

/// A required annotation that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingAnnotation {
    /// The controller has not set the desired config.
    #[error("{} annotation not found on the node", annotation::DESIRED_CONFIG)]
    DesiredConfig,
}

/// Decides the next task.
#[must_use]
pub fn next(node: &NodeAnnotations, disk: &DiskView) -> Task {
    if let Some((progress, began_in)) = &disk.update {
        return Task::Resume(resume(progress, began_in, &disk.boot_id));
    }
    if node.rebooting {
        return Task::ClearRebooting;
    }
    let Some(known) = &node.current else { return initial_annotations(disk) };
    let current = disk.current.as_ref().unwrap_or(known);
    let Some(desired) = &node.desired else {
        return Task::Blocked(MissingAnnotation::DesiredConfig);
    };
    let again = disk.force && !node.is_done();
    if current == desired && !again {
        return Task::Complete(current.clone());
    }
    Task::Update { from: current.clone(), to: desired.clone() }
}

fn initial_annotations(disk: &DiskView) -> Task {
    if let Some(initial_annotations) = &disk.initial_annotations {
        return Task::SetInitialAnnotations(initial_annotations.clone());
    }
    let Some(current) = &disk.current else { return Task::Adopt };
    let mut annotations = BTreeMap::new();
    annotation::CURRENT_CONFIG.set(&mut annotations, current);
    annotation::DESIRED_CONFIG.set(&mut annotations, current);
    annotation::STATE.set(&mut annotations, &DaemonState::Done);
    Task::SetInitialAnnotations(annotations)
}

impl NodeAnnotations {
    /// Parses the annotations of a node.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, AnnotationError> {
        Ok(Self {
            current: annotation::CURRENT_CONFIG.get(annotations)?,
            desired: annotation::DESIRED_CONFIG.get(annotations)?,
            state: annotation::STATE.get(annotations)?,
            reason: annotation::REASON.get(annotations)?.unwrap_or_default(),
            requested_drain: annotation::DESIRED_DRAIN.get(annotations)?,
            // Written by the drain controller; an unreadable value counts as no answer.
            last_applied_drain: annotation::LAST_APPLIED_DRAIN.get(annotations).ok().flatten(),
            rebooting: annotation::POST_CONFIG_ACTION.get(annotations)?
                == Some(PostConfigAction::Rebooting),
            topology: annotation::CONTROL_PLANE_TOPOLOGY.get(annotations)?,
        })
    }

    /// Returns true if the daemon reported Done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state.as_ref().is_none_or(|state| *state == DaemonState::Done)
    }

    /// Returns true if the daemon reported a failure.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        matches!(self.state, Some(DaemonState::Degraded | DaemonState::Unreconcilable))
    }

    /// Returns true if the drain controller completed this request.
    #[must_use]
    pub(crate) fn has_completed_drain(&self, request: &DrainRequest) -> bool {
        self.last_applied_drain.as_ref() == Some(request)
    }
}

/// Builds a request to the drain controller.
#[must_use]
pub fn drain_request(verb: DrainVerb, config: &RenderedName) -> DrainRequest {
    DrainRequest { verb, config: config.as_str().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Stage;

    fn name(text: &str) -> RenderedName {
        text.parse().unwrap()
    }

    fn node(text: &str) -> NodeAnnotations {
        let mut annotations = BTreeMap::new();
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap();
            let key = format!("machineconfiguration.openshift.io/{key}");
            annotations.insert(key, value.to_owned());
        }
        NodeAnnotations::read(&annotations).unwrap()
    }

    fn on_disk(current: Option<&str>) -> DiskView {
        DiskView { current: current.map(name), boot_id: "b1".to_owned(), ..DiskView::default() }
    }

    fn complete(config: &str) -> Task {
        Task::Complete(name(config))
    }

    fn update(from: &str, to: &str) -> Task {
        Task::Update { from: name(from), to: name(to) }
    }

    // covers: C27, C39
    #[test]
    fn the_recorded_config_overrides_the_annotation() {
        let cases = [
            ("currentConfig=a desiredConfig=a state=Done", Some("a"), complete("a")),
            ("currentConfig=a desiredConfig=a state=Degraded", Some("a"), complete("a")),
            ("currentConfig=a desiredConfig=b state=Done", Some("a"), update("a", "b")),
            ("currentConfig=a desiredConfig=b state=Degraded", Some("a"), update("a", "b")),
            ("currentConfig=a desiredConfig=b state=Working", Some("b"), complete("b")),
            ("currentConfig=old desiredConfig=b state=Done", Some("a"), update("a", "b")),
            ("currentConfig=a desiredConfig=b", None, update("a", "b")),
            ("currentConfig=a", Some("a"), Task::Blocked(MissingAnnotation::DesiredConfig)),
            ("", None, Task::Adopt),
            (
                "currentConfig=a desiredConfig=a post-config-action=Rebooting",
                Some("a"),
                Task::ClearRebooting,
            ),
        ];
        for (annotations, disk, want) in cases {
            assert_eq!(next(&node(annotations), &on_disk(disk)), want, "{annotations} {disk:?}");
        }
    }

    #[test]
    fn an_unfinished_update_is_resumed_first() {
        let progress = Progress { stage: Stage::Rebooting, done: 2, ..Progress::default() };
        let mut disk = on_disk(Some("b"));
        disk.update = Some((progress, "b1".to_owned()));
        let view = node("currentConfig=a desiredConfig=c post-config-action=Rebooting");
        assert_eq!(next(&view, &disk), Task::Resume(Resume::Reboot));
        disk.boot_id = "b2".to_owned();
        assert_eq!(next(&view, &disk), Task::Resume(Resume::Verify));
    }

    // covers: C16, C17
    #[test]
    fn a_node_without_annotations_gets_those_of_the_file_or_the_record() {
        let mut disk = on_disk(Some("a"));
        let Task::SetInitialAnnotations(annotations) = next(&node(""), &disk) else {
            panic!("introduced")
        };
        let view = NodeAnnotations::read(&annotations).unwrap();
        assert_eq!((view.current, view.desired), (Some(name("a")), Some(name("a"))));
        let file = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
        disk.initial_annotations = Some(file.clone());
        assert_eq!(next(&node(""), &disk), Task::SetInitialAnnotations(file));
    }

    #[test]
    fn force_applies_again_only_on_a_failing_node() {
        let mut disk = on_disk(Some("a"));
        disk.force = true;
        let done = node("currentConfig=a desiredConfig=a state=Done");
        assert_eq!(next(&done, &disk), complete("a"));
        let degraded = node("currentConfig=a desiredConfig=a state=Degraded");
        assert_eq!(next(&degraded, &disk), update("a", "a"));
    }
}
