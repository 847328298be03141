//! The marks on a node: the taint of nodes that wait, the layout of the control plane, and whether
//! ordinary pods may run on its nodes.
//!
//! They go along with the node's config where it gets one, in the same write; otherwise they are
//! written by themselves.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, ResourceExt as _};
use mco_api::{MachineConfigPool, annotation};
use mco_cluster::{
    CallError,
    apply::{self, Changes, Guard},
};
use mco_core::rollout::{
    NodeView,
    scheduling::{self, LabelChanges},
    taint::{self, Mark},
};
use serde_json::{Map, Value, json};

use crate::{Context, board, caches::LeanNode};

/// What is to be written on a node.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    annotations: Changes,
    labels: LabelChanges,
    /// All taints, if they are to change.
    taints: Option<Vec<Taint>>,
}

/// Whether nodes that wait are marked as such now, or left for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiters {
    /// They are marked.
    Marked,
    /// Those that are not marked yet are left as they are.
    Left,
}

impl Marks {
    /// What is to change about a node of this pool as it is.
    pub(crate) fn of(
        context: &Context,
        node: &Node,
        pool: &MachineConfigPool,
        waiters: Waiters,
    ) -> Self {
        let view = NodeView::of(node);
        Self::with(context, node, |taints| mark(taints, &view, pool, waiters))
    }

    /// What is to change about a node that nobody manages.
    pub(crate) fn of_nobodys(context: &Context, node: &Node) -> Self {
        Self::with(context, node, |_| {})
    }

    /// What is to change about a node that is told to run `target`, which is part of it.
    pub(crate) fn of_start(context: &Context, node: &Node, target: &str) -> Self {
        let drop_ours = |taints: &mut Vec<Taint>| taints.retain(|taint| !taint::is_ours(taint));
        let mut marks = Self::with(context, node, drop_ours);
        let key = |name: &str| name.to_owned();
        marks.annotations.insert(key(annotation::DESIRED_CONFIG.name()), Some(target.to_owned()));
        marks.annotations.insert(key(annotation::DESIRED_IMAGE.name()), None);
        marks
    }

    fn with(context: &Context, node: &Node, mark: impl FnOnce(&mut Vec<Taint>)) -> Self {
        let mut annotations = Changes::new();
        let config = context.caches.controller_config();
        if let Some(topology) = config.and_then(|config| board::topology(&config)) {
            let key = annotation::CONTROL_PLANE_TOPOLOGY.name();
            if node.annotations().get(key).map(String::as_str) != Some(topology.as_str()) {
                annotations.insert(key.to_owned(), Some(topology.as_str().to_owned()));
            }
        }
        let schedulable = context.caches.masters_schedulable();
        let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let mut taints = before.clone();
        mark(&mut taints);
        scheduling::taint(node.labels(), schedulable, &mut taints);
        Self {
            annotations,
            labels: scheduling::labels(node.labels(), schedulable),
            taints: Some(taints).filter(|taints| *taints != before),
        }
    }

    /// Writes them, if there are any, and takes in what came of it.
    pub(crate) async fn write(&self, context: &Context, node: &Node) -> Result<(), CallError> {
        let mut patch = self.unguarded();
        let version = node.resource_version().unwrap_or_default();
        let mut guard = Guard::Any;
        if let Some(taints) = &self.taints {
            // The list is written as a whole, and others write to it.
            guard = Guard::Unchanged(&version);
            patch.insert("spec".to_owned(), json!({"taints": taints}));
        }
        if patch.is_empty() {
            return Ok(());
        }
        let api = Api::<LeanNode>::all(context.client.clone());
        let patched = apply::merge(&api, &node.name_any(), Value::Object(patch), guard).await?;
        context.caches.nodes.learn(patched.into());
        Ok(())
    }

    /// Writes what is right on any state of the node, and leaves its taints for later.
    pub(crate) async fn write_unguarded(
        &self,
        context: &Context,
        node: &str,
    ) -> Result<(), CallError> {
        let api = Api::<LeanNode>::all(context.client.clone());
        let patch = Value::Object(self.unguarded());
        let patched = apply::merge(&api, node, patch, Guard::Any).await?;
        context.caches.nodes.learn(patched.into());
        Ok(())
    }

    fn unguarded(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(self.annotations));
        }
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.labels));
        }
        let mut patch = Map::new();
        if !metadata.is_empty() {
            patch.insert("metadata".to_owned(), Value::Object(metadata));
        }
        patch
    }
}

/// Puts the taint of nodes that wait on or takes it off.
fn mark(taints: &mut Vec<Taint>, node: &NodeView, pool: &MachineConfigPool, waiters: Waiters) {
    let target = &pool.spec.configuration.rendered.name;
    if pool.spec.paused || pool.metadata.deletion_timestamp.is_some() || target.is_empty() {
        return;
    }
    match taint::change(node, target) {
        Some(Mark::Absent) => taints.retain(|taint| !taint::is_ours(taint)),
        Some(Mark::Present) if waiters == Waiters::Marked => taints.push(Taint {
            key: taint::KEY.to_owned(),
            effect: taint::EFFECT.to_owned(),
            ..Taint::default()
        }),
        Some(Mark::Present) | None => {}
    }
}
