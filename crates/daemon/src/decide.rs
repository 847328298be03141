//! What the daemon does next, from what the node, the disk and the ledger say.
//!
//! Pure. The disk has the last word on which config the node has: the cluster's memory of it may be
//! older, restored from a backup, or gone.

use std::collections::BTreeMap;

use mco_api::{
    RenderedName,
    annotation::{
        self, BadAnnotation, DaemonState, DrainRequest, DrainVerb, PostConfigAction, Topology,
    },
};

use crate::ledger::{Progress, Resume, resume};

/// What the cluster says of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// The config that the node is said to have.
    pub current: Option<RenderedName>,
    /// The config that it is to have.
    pub desired: Option<RenderedName>,
    /// What the daemon said it is doing.
    pub state: Option<DaemonState>,
    /// Why it said so.
    pub reason: String,
    /// What the daemon asked the drain controller to do.
    pub asked: Option<DrainRequest>,
    /// What the drain controller did last.
    pub answered: Option<DrainRequest>,
    /// Whether the daemon said that the node reboots.
    pub reboots: bool,
    /// How the control plane is laid out.
    pub topology: Option<Topology>,
}

/// What the disk says of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// The config on record.
    pub current: Option<RenderedName>,
    /// What the node says of itself when it first joins.
    pub introduction: Option<BTreeMap<String, String>>,
    /// An update that was begun and not finished, and the boot it began in.
    pub update: Option<(Progress, String)>,
    /// The present boot.
    pub boot_id: String,
    /// Whether somebody asked to apply the config regardless.
    pub force: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Go on with an update that was begun.
    Resume(Resume),
    /// Say that the reboot is over.
    NoteReboot,
    /// Tell the cluster about the node.
    Introduce(BTreeMap<String, String>),
    /// See that the node is as this config says, and say so.
    Settle(RenderedName),
    /// Move the node from one config to another.
    Update {
        /// The config that the node has.
        from: RenderedName,
        /// The config that it is to have.
        to: RenderedName,
    },
    /// Take over a machine that nobody managed so far.
    Adopt,
    /// Nothing can be done: something is missing.
    Lost(Missing),
}

/// What a node must have and does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Nobody said which config the node is to have.
    #[error("{} annotation not found on the node", annotation::DESIRED_CONFIG)]
    DesiredConfig,
}

/// Decides what to do next.
#[must_use]
pub fn next(node: &NodeView, disk: &DiskView) -> Task {
    if let Some((progress, began_in)) = &disk.update {
        return Task::Resume(resume(progress, began_in, &disk.boot_id));
    }
    if node.reboots {
        return Task::NoteReboot;
    }
    let Some(known) = &node.current else { return introduce(disk) };
    let current = disk.current.as_ref().unwrap_or(known);
    let Some(desired) = &node.desired else { return Task::Lost(Missing::DesiredConfig) };
    let again = disk.force && !node.is_settled();
    if current == desired && !again {
        return Task::Settle(current.clone());
    }
    Task::Update { from: current.clone(), to: desired.clone() }
}

fn introduce(disk: &DiskView) -> Task {
    if let Some(introduction) = &disk.introduction {
        return Task::Introduce(introduction.clone());
    }
    let Some(current) = &disk.current else { return Task::Adopt };
    let mut annotations = BTreeMap::new();
    annotation::CURRENT_CONFIG.set(&mut annotations, current);
    annotation::DESIRED_CONFIG.set(&mut annotations, current);
    annotation::STATE.set(&mut annotations, &DaemonState::Done);
    Task::Introduce(annotations)
}

impl NodeView {
    /// Reads the annotations of a node.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, BadAnnotation> {
        Ok(Self {
            current: annotation::CURRENT_CONFIG.get(annotations)?,
            desired: annotation::DESIRED_CONFIG.get(annotations)?,
            state: annotation::STATE.get(annotations)?,
            reason: annotation::REASON.get(annotations)?.unwrap_or_default(),
            asked: annotation::DESIRED_DRAIN.get(annotations)?,
            // Somebody else's word; one that cannot be read is no answer.
            answered: annotation::LAST_APPLIED_DRAIN.get(annotations).ok().flatten(),
            reboots: annotation::POST_CONFIG_ACTION.get(annotations)?
                == Some(PostConfigAction::Rebooting),
            topology: annotation::CONTROL_PLANE_TOPOLOGY.get(annotations)?,
        })
    }

    /// Whether the daemon said that all is well.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state.as_ref().is_none_or(|state| *state == DaemonState::Done)
    }

    /// Whether the daemon said that something is wrong.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        matches!(self.state, Some(DaemonState::Degraded | DaemonState::Unreconcilable))
    }

    /// Whether the drain controller did what is asked of it here.
    #[must_use]
    pub fn has_answer(&self, request: &DrainRequest) -> bool {
        self.answered.as_ref() == Some(request)
    }
}

/// What to ask the drain controller for.
#[must_use]
pub fn request(verb: DrainVerb, config: &RenderedName) -> DrainRequest {
    DrainRequest { verb, config: config.as_str().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Stage;

    fn name(text: &str) -> RenderedName {
        text.parse().unwrap()
    }

    fn node(text: &str) -> NodeView {
        let mut annotations = BTreeMap::new();
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap();
            let key = format!("machineconfiguration.openshift.io/{key}");
            annotations.insert(key, value.to_owned());
        }
        NodeView::read(&annotations).unwrap()
    }

    fn on_disk(current: Option<&str>) -> DiskView {
        DiskView { current: current.map(name), boot_id: "b1".to_owned(), ..DiskView::default() }
    }

    fn settle(config: &str) -> Task {
        Task::Settle(name(config))
    }

    fn update(from: &str, to: &str) -> Task {
        Task::Update { from: name(from), to: name(to) }
    }

    // covers: C27, C39
    #[test]
    fn the_disk_has_the_last_word_on_what_the_node_has() {
        let cases = [
            ("currentConfig=a desiredConfig=a state=Done", Some("a"), settle("a")),
            ("currentConfig=a desiredConfig=a state=Degraded", Some("a"), settle("a")),
            ("currentConfig=a desiredConfig=b state=Done", Some("a"), update("a", "b")),
            ("currentConfig=a desiredConfig=b state=Degraded", Some("a"), update("a", "b")),
            ("currentConfig=a desiredConfig=b state=Working", Some("b"), settle("b")),
            ("currentConfig=old desiredConfig=b state=Done", Some("a"), update("a", "b")),
            ("currentConfig=a desiredConfig=b", None, update("a", "b")),
            ("currentConfig=a", Some("a"), Task::Lost(Missing::DesiredConfig)),
            ("", None, Task::Adopt),
            (
                "currentConfig=a desiredConfig=a post-config-action=Rebooting",
                Some("a"),
                Task::NoteReboot,
            ),
        ];
        for (annotations, disk, want) in cases {
            assert_eq!(next(&node(annotations), &on_disk(disk)), want, "{annotations} {disk:?}");
        }
    }

    #[test]
    fn what_was_begun_is_finished_first() {
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
    fn a_node_without_annotations_is_introduced_by_its_file_or_its_record() {
        let mut disk = on_disk(Some("a"));
        let Task::Introduce(annotations) = next(&node(""), &disk) else { panic!("introduced") };
        let view = NodeView::read(&annotations).unwrap();
        assert_eq!((view.current, view.desired), (Some(name("a")), Some(name("a"))));
        let file = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
        disk.introduction = Some(file.clone());
        assert_eq!(next(&node(""), &disk), Task::Introduce(file));
    }

    #[test]
    fn force_applies_again_only_where_something_is_wrong() {
        let mut disk = on_disk(Some("a"));
        disk.force = true;
        let well = node("currentConfig=a desiredConfig=a state=Done");
        assert_eq!(next(&well, &disk), settle("a"));
        let ill = node("currentConfig=a desiredConfig=a state=Degraded");
        assert_eq!(next(&ill, &disk), update("a", "a"));
    }
}
