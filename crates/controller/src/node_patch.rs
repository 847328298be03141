//! Patches of a node: the taint of nodes that wait, the topology of the control plane, and the
//! taint and label that control if ordinary pods run on control plane nodes.
//!
//! If a node gets a new desired config, all of them are part of the same write; otherwise they are
//! a write of their own.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt as _;
use mco_api::{MachineConfigPool, annotation};
use mco_cluster::{
    Api, CallError,
    apply::{self, Changes, Precondition},
};
use mco_core::rollout::{
    Hold, NodeView,
    scheduling::{self, LabelChanges},
    taint::{self, UpdateTaint},
};
use serde_json::{Map, Value, json};

use crate::{Context, caches::LeanNode, control_plane};

/// Changes to be written to a node.
#[derive(Debug, Default)]
pub(crate) struct NodePatch {
    annotations: Changes,
    labels: LabelChanges,
    /// All taints of the node, if they change.
    taints: Option<Vec<Taint>>,
}

/// Tells if the taint and condition of waiting nodes are published now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitingStatus {
    /// The controller publishes them.
    Publish,
    /// Nodes without them stay as they are; the controller publishes later.
    Defer,
}

impl NodePatch {
    /// Builds the changes for a node of this pool.
    pub(crate) fn for_node(
        context: &Context,
        node: &Node,
        pool: &MachineConfigPool,
        waiting: WaitingStatus,
    ) -> Self {
        let view = NodeView::of(node);
        let pending = context.enqueuer.node_index().pending_update(&view.name);
        let hold = pending.map(|pending| pending.hold);
        let change = |taints: &mut Vec<Taint>| {
            set_waiting_taint(taints, &view, pool, (hold.as_ref(), waiting));
        };
        Self::build(context, node, change)
    }

    /// Builds the changes for a node that belongs to no pool.
    pub(crate) fn for_unmanaged_node(context: &Context, node: &Node) -> Self {
        Self::build(context, node, |_| {})
    }

    /// Builds the changes that start an update of a node to `target`.
    pub(crate) fn for_update(context: &Context, node: &Node, target: &str) -> Self {
        let drop_ours = |taints: &mut Vec<Taint>| taints.retain(|taint| !taint::is_ours(taint));
        let mut patch = Self::build(context, node, drop_ours);
        let key = |name: &str| name.to_owned();
        patch.annotations.insert(key(annotation::DESIRED_CONFIG.name()), Some(target.to_owned()));
        patch.annotations.insert(key(annotation::DESIRED_IMAGE.name()), None);
        patch
    }

    fn build(context: &Context, node: &Node, change_taints: impl FnOnce(&mut Vec<Taint>)) -> Self {
        let mut annotations = Changes::new();
        let config = context.caches.controller_config();
        if let Some(topology) = config.and_then(|config| control_plane::topology(&config)) {
            let key = annotation::CONTROL_PLANE_TOPOLOGY.name();
            if node.annotations().get(key).map(String::as_str) != Some(topology.as_str()) {
                annotations.insert(key.to_owned(), Some(topology.as_str().to_owned()));
            }
        }
        let schedulable = context.caches.masters_schedulable();
        let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let mut taints = before.clone();
        change_taints(&mut taints);
        scheduling::taint(node.labels(), schedulable, &mut taints);
        Self {
            annotations,
            labels: scheduling::labels(node.labels(), schedulable),
            taints: Some(taints).filter(|taints| *taints != before),
        }
    }

    /// Applies the changes, if there are any, and updates the cache.
    pub(crate) async fn apply(&self, context: &Context, node: &Node) -> Result<(), CallError> {
        let mut patch = self.metadata_patch();
        let version = node.resource_version().unwrap_or_default();
        let mut guard = Precondition::Any;
        if let Some(taints) = &self.taints {
            // The list is written as a whole, and other clients write to it.
            guard = Precondition::Unchanged(&version);
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

    /// Applies the changes that are right for any state of the node, all but the taints.
    pub(crate) async fn apply_without_taints(
        &self,
        context: &Context,
        node: &str,
    ) -> Result<(), CallError> {
        let api = Api::<LeanNode>::all(context.client.clone());
        let patch = Value::Object(self.metadata_patch());
        let patched = apply::merge(&api, node, patch, Precondition::Any).await?;
        context.caches.nodes.learn(patched.into());
        Ok(())
    }

    fn metadata_patch(&self) -> Map<String, Value> {
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

/// Adds or removes the taint of nodes that wait.
fn set_waiting_taint(
    taints: &mut Vec<Taint>,
    node: &NodeView,
    pool: &MachineConfigPool,
    (hold, waiting): (Option<&Hold>, WaitingStatus),
) {
    let target = &pool.spec.configuration.rendered.name;
    if pool.spec.paused || pool.metadata.deletion_timestamp.is_some() || target.is_empty() {
        return;
    }
    match taint::change(node, target, hold) {
        Some(UpdateTaint::Absent) => taints.retain(|taint| !taint::is_ours(taint)),
        Some(UpdateTaint::Present) if waiting == WaitingStatus::Publish => taints.push(Taint {
            key: taint::KEY.to_owned(),
            effect: taint::EFFECT.to_owned(),
            ..Taint::default()
        }),
        Some(UpdateTaint::Present) | None => {}
    }
}
