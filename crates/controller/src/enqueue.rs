//! Feeds cache changes into the node index and enqueues the pools and nodes that they affect.
//!
//! The index ([`NodeIndex`]) tells which pools a change affects, and only those are enqueued. The cost
//! of a node's event does not depend on the number of nodes, and an event that changes nothing that
//! the controllers read enqueues nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild,
    annotation,
};
use mco_cluster::{Queue, cache::Change};
use mco_core::{
    membership::CustomIgnored,
    node_index::NodeIndex,
    rollout::{self, NodeView, first_boot},
    status::MachineConfigNodeView,
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Context,
    caches::owner,
    control_plane::{CONTROL_PLANE, MASTER, topology},
};

/// The node index, and the queues of pools and nodes to reconcile.
#[derive(Debug)]
pub(crate) struct Enqueuer {
    node_index: Mutex<NodeIndex>,
    /// Pools whose nodes are to be chosen and whose status is to be computed.
    pub(crate) pools: Queue<String>,
    /// Nodes whose MachineConfigNode and taints are to be updated.
    pub(crate) nodes: Queue<String>,
    pool_times: Mutex<BTreeMap<String, PoolTimes>>,
    /// Event texts about control plane nodes.
    notices: mpsc::UnboundedSender<String>,
    notice_receiver: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

/// Times of the last events of a pool.
#[derive(Clone, Copy, Debug, Default)]
struct PoolTimes {
    /// Last change of the reasons for its nodes to wait.
    verdict_changed: Option<Instant>,
    /// Last time that a node of the pool got a new desired config.
    update_started: Option<Instant>,
    /// Last write of the pool's status.
    status_written: Option<Instant>,
}

impl Default for Enqueuer {
    fn default() -> Self {
        let (notices, receiver) = mpsc::unbounded_channel();
        Self {
            node_index: Mutex::default(),
            pools: Queue::default(),
            nodes: Queue::default(),
            pool_times: Mutex::default(),
            notices,
            notice_receiver: Mutex::new(Some(receiver)),
        }
    }
}

impl Enqueuer {
    /// Locks the node index. The guard must not be held across an await.
    pub(crate) fn node_index(&self) -> MutexGuard<'_, NodeIndex> {
        self.node_index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the receiver of event texts about control plane nodes; `None` after the first call.
    pub(crate) fn take_notices(&self) -> Option<mpsc::UnboundedReceiver<String>> {
        self.notice_receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn times(&self, pool: &str, change: impl FnOnce(&mut PoolTimes)) -> PoolTimes {
        let mut all = self.pool_times.lock().unwrap_or_else(PoisonError::into_inner);
        let times = all.entry(pool.to_owned()).or_default();
        change(times);
        *times
    }

    /// Records that the nodes of the pool have new reasons to wait, and enqueues all of them after
    /// `delay`.
    pub(crate) fn record_new_verdict(&self, pool: &str, delay: Duration) {
        self.times(pool, |times| times.verdict_changed = Some(Instant::now()));
        let names: Vec<String> = match self.node_index().pool_nodes(pool) {
            Some(fleet) => fleet.nodes().map(|node| node.name.clone()).collect(),
            None => Vec::new(),
        };
        for name in names {
            self.nodes.add_after(name, delay);
        }
    }

    /// Records that nodes of the pool got a new desired config.
    pub(crate) fn record_update_start(&self, pool: &str) {
        self.times(pool, |times| times.update_started = Some(Instant::now()));
    }

    /// Returns the time left before waiting nodes of the pool get their taint and condition; see
    /// the delay `waiting_status`.
    pub(crate) fn until_waiting_status(&self, pool: &str, quiet: Duration) -> Duration {
        let times = self.times(pool, |_| {});
        let Some(changed) = times.verdict_changed else { return Duration::ZERO };
        let last = times.update_started.map_or(changed, |started| started.max(changed));
        let due = (last + quiet).min(changed + quiet.saturating_mul(12));
        due.saturating_duration_since(Instant::now())
    }

    /// Records that the pool's status was written.
    pub(crate) fn record_status_write(&self, pool: &str) {
        self.times(pool, |times| times.status_written = Some(Instant::now()));
    }

    /// Returns the time left before a status of the pool may be written that differs only in
    /// counters.
    pub(crate) fn until_counter_write(&self, pool: &str, pause: Duration) -> Duration {
        let written = self.times(pool, |_| {}).status_written;
        written.map_or(Duration::ZERO, |written| {
            (written + pause).saturating_duration_since(Instant::now())
        })
    }
}

/// Registers callbacks for changes of all kinds that decisions depend on.
pub(crate) fn subscribe(context: &Arc<Context>) {
    // Weak references: the caches are part of the context, and their callbacks must not keep it
    // alive.
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.pools.on_change(move |change| {
        one.upgrade().iter().for_each(|context| on_pool(context, &change));
    });
    context.caches.nodes.on_change(move |change| {
        two.upgrade().iter().for_each(|context| on_node(context, &change));
    });
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.machine_config_nodes.on_change(move |change| {
        one.upgrade().iter().for_each(|context| on_machine_config_node(context, &change));
    });
    context.caches.configs.on_change(move |change| {
        two.upgrade().iter().for_each(|context| on_config(context, &change));
    });
    let os_configs = Arc::downgrade(context);
    context.caches.machine_os_configs.on_change(move |change| {
        let pool = change.object().map(|config| config.spec.machine_config_pool.name.clone());
        os_configs.upgrade().iter().for_each(|context| enqueue_pools(context, pool.clone()));
    });
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.machine_os_builds.on_change(move |change| {
        one.upgrade().iter().for_each(|context| on_build(context, &change));
    });
    context.caches.os_image_streams.on_change(move |_| {
        two.upgrade().iter().for_each(|context| enqueue_all_pools(context));
    });
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.controller_configs.on_change(move |change| {
        one.upgrade().iter().for_each(|context| on_controller_config(context, &change));
    });
    context.caches.schedulers.on_change(move |_| {
        two.upgrade().iter().for_each(|context| enqueue_all(context));
    });
}

fn on_pool(context: &Context, change: &Change<'_, MachineConfigPool>) {
    let enqueuer = &context.enqueuer;
    let Some(name) = change.object().map(|pool| pool.name_any()) else { return };
    if change.after.is_none() {
        context.metrics.remove_pool(&name);
        enqueuer.pool_times.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    } else if pool_matters(change) {
        enqueuer.pools.add_after(name, context.delays.node);
    }
    let mut node_index = enqueuer.node_index();
    // Read under the lock: another thread may have indexed a later change already.
    let pools = context.caches.pools.list();
    if node_index.has_pools(pools.iter().map(|pool| &**pool)) {
        return;
    }
    let nodes = context.caches.nodes.list();
    let views = nodes.iter().map(|node| (view(context, node), node.labels()));
    node_index.replace(pools.iter().map(|pool| &**pool), views);
    for node in &nodes {
        let name = node.name_any();
        context.metrics.set_node_pool(&name, node_index.pool_of(&name).ok().flatten());
    }
    drop(node_index);
    enqueue_all(context);
}

fn on_node(context: &Context, change: &Change<'_, Node>) {
    let Some(name) = change.object().map(|node| node.name_any()) else { return };
    let mut node_index = context.enqueuer.node_index();
    // Read under the lock: another thread may have indexed a later change already.
    let (affected, alert) = if let Some(node) = context.caches.nodes.get(&name) {
        let affected = node_index.set_node(view(context, &node), node.labels());
        (affected, node_index.custom_ignored(&name) == Some(CustomIgnored::Yes))
    } else {
        // Before any write that the change causes.
        context.metrics.remove_node(&name);
        (node_index.remove_node(&name), false)
    };
    let pool = node_index.pool_of(&name).ok().flatten();
    let is_master = pool == Some(MASTER);
    context.metrics.set_node_pool(&name, pool);
    drop(node_index);
    context.metrics.set_pool_alert(&name, alert);
    enqueue_pools(context, affected);
    let (before, after) = (change.before, change.after);
    if let (true, Some(before), Some(after)) = (is_master, before, after) {
        for text in rollout::notices(&name, before.annotations(), after.annotations()) {
            // The receiver is dropped only at shutdown.
            drop(context.enqueuer.notices.send(text));
        }
    }
    if node_matters(change) {
        context.enqueuer.nodes.add_debounced(name, context.delays.node_status);
    }
}

fn on_machine_config_node(context: &Context, change: &Change<'_, MachineConfigNode>) {
    let Some(name) = change.object().map(|node| node.name_any()) else { return };
    let mut node_index = context.enqueuer.node_index();
    let affected = match context.caches.machine_config_nodes.get(&name) {
        Some(node) => node_index.set_machine_config_node(MachineConfigNodeView::of(&node)),
        None => node_index.remove_machine_config_node(&name),
    };
    drop(node_index);
    enqueue_pools(context, affected);
    context.enqueuer.nodes.add_debounced(name, context.delays.node_status);
}

/// Enqueues the pool of a rendered config that was created or deleted: its OS image may differ.
/// Indexes again the nodes that booted with the config: the config tells which pool a new node is
/// for.
fn on_config(context: &Context, change: &Change<'_, MachineConfig>) {
    let Some(config) = change.object() else { return };
    let Some(pool) = owner(config) else { return };
    if change.before.is_some() == change.after.is_some() {
        return;
    }
    enqueue_pools(context, [pool.to_owned()]);
    let (name, key) = (config.name_any(), annotation::FIRST_PIVOT_CONFIG.name());
    let nodes = context.caches.nodes.list();
    for node in nodes.iter().filter(|node| node.annotations().get(key) == Some(&name)) {
        let mut node_index = context.enqueuer.node_index();
        let affected = node_index.set_node(view(context, node), node.labels());
        drop(node_index);
        enqueue_pools(context, affected);
    }
}

/// Enqueues the pool of a changed build, whose status reports the build.
fn on_build(context: &Context, change: &Change<'_, MachineOSBuild>) {
    let Some(build) = change.object() else { return };
    let os_config = context.caches.machine_os_configs.get(&build.spec.machine_os_config.name);
    enqueue_pools(context, os_config.map(|config| config.spec.machine_config_pool.name.clone()));
}

fn on_controller_config(context: &Context, change: &Change<'_, ControllerConfig>) {
    let relevant = |config: Option<&Arc<ControllerConfig>>| {
        let status = config.and_then(|config| config.status.clone());
        let certificates = status.map(|status| status.controller_certificates);
        (config.and_then(|config| topology(config)), certificates)
    };
    if relevant(change.before) != relevant(change.after) {
        enqueue_all(context);
    }
}

pub(crate) fn enqueue_all_pools(context: &Context) {
    enqueue_pools(context, context.caches.pools.list().iter().map(|pool| pool.name_any()));
}

fn enqueue_all(context: &Context) {
    enqueue_all_pools(context);
    for node in context.caches.nodes.list() {
        context.enqueuer.nodes.add_after(node.name_any(), context.delays.node_status);
    }
}

fn enqueue_pools(context: &Context, pools: impl IntoIterator<Item = String>) {
    let delay = context.delays.node;
    for pool in pools {
        // `master` and `arbiter` each wait for the other.
        let is_control_plane = CONTROL_PLANE.contains(&pool.as_str());
        let others = CONTROL_PLANE.into_iter().filter(|other| is_control_plane && *other != pool);
        others.for_each(|other| context.enqueuer.pools.add_after(other.to_owned(), delay));
        context.enqueuer.pools.add_after(pool, delay);
    }
}

/// Returns true if a pool changed in a way that its nodes or its status depend on.
fn pool_matters(change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    // The status as well: conditions of other controllers are part of Degraded, another client may have
    // changed it, and after a restore of etcd it is that of the backup.
    before.spec != after.spec
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || before.status != after.status
}

/// Returns true if a node changed in more than the status that its kubelet writes.
fn node_matters(change: &Change<'_, Node>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    let (old, new) = (&before.metadata, &after.metadata);
    old.labels != new.labels
        || old.annotations != new.annotations
        || old.uid != new.uid
        || before.spec != after.spec
}

/// Builds the view of a node, with the labels of the custom pool that it booted for if it lacks
/// them.
fn view(context: &Context, node: &Node) -> NodeView {
    let mut node = NodeView::of(node);
    if let Some(config) = &node.first_config {
        let config = context.caches.configs.get(config);
        let owner = config.as_deref().and_then(owner);
        let pool = owner.and_then(|owner| context.caches.pools.get(owner));
        node.pool_labels = first_boot::claim(&node, |_| config.as_deref(), |_| pool.as_deref());
    }
    node
}
