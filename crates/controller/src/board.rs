//! The nodes by pool, fed by the caches, and who is to be looked at because something changed.
//!
//! Each change goes into the roster, which says whom it concerns; only they are put into a queue. So
//! a node's event costs the same in a fleet of ten and of ten thousand, and one that changes nothing
//! that we look at costs no look at all.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild,
    annotation, annotation::Topology, condition::PoolCondition,
};
use mco_cluster::{Queue, cache::Change};
use mco_core::{
    membership::CustomIgnored,
    rollout::{self, NodeView, first_boot},
    roster::Roster,
    status::{self, NodeReport},
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Context,
    caches::owner,
    rollout::{CONTROL_PLANE, MASTER},
};

/// The nodes by pool, and the queues.
#[derive(Debug)]
pub(crate) struct Board {
    roster: Mutex<Roster>,
    /// Pools to choose nodes for and to count.
    pub(crate) pools: Queue<String>,
    /// Nodes of which something is to be said.
    pub(crate) nodes: Queue<String>,
    paces: Mutex<BTreeMap<String, Pace>>,
    notices: mpsc::UnboundedSender<String>,
    heard: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

/// When things last happened in a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Its nodes have other reasons to wait since then.
    judged: Option<Instant>,
    /// A node was told its config.
    started: Option<Instant>,
    /// Its status was written.
    told: Option<Instant>,
}

impl Default for Board {
    fn default() -> Self {
        let (notices, heard) = mpsc::unbounded_channel();
        Self {
            roster: Mutex::default(),
            pools: Queue::default(),
            nodes: Queue::default(),
            paces: Mutex::default(),
            notices,
            heard: Mutex::new(Some(heard)),
        }
    }
}

impl Board {
    /// The nodes by pool; not to be held while anything is waited for.
    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be said of the control plane, for whoever asks first.
    pub(crate) fn notices(&self) -> Option<mpsc::UnboundedReceiver<String>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn pace(&self, pool: &str, change: impl FnOnce(&mut Pace)) -> Pace {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = paces.entry(pool.to_owned()).or_default();
        change(pace);
        *pace
    }

    /// The nodes of the pool have other reasons to wait: all of them are looked at after `delay`.
    pub(crate) fn judged(&self, pool: &str, delay: Duration) {
        self.pace(pool, |pace| pace.judged = Some(Instant::now()));
        let names: Vec<String> = match self.roster().fleet(pool) {
            Some(fleet) => fleet.nodes().map(|node| node.name.clone()).collect(),
            None => Vec::new(),
        };
        for name in names {
            self.nodes.add_after(name, delay);
        }
    }

    /// Nodes of the pool were told their config.
    pub(crate) fn started(&self, pool: &str) {
        self.pace(pool, |pace| pace.started = Some(Instant::now()));
    }

    /// How long it is until nodes of the pool that wait are marked; see `Settle::mark`.
    pub(crate) fn until_marks(&self, pool: &str, quiet: Duration) -> Duration {
        let pace = self.pace(pool, |_| {});
        let Some(judged) = pace.judged else { return Duration::ZERO };
        let last = pace.started.map_or(judged, |started| started.max(judged));
        let due = (last + quiet).min(judged + quiet.saturating_mul(12));
        due.saturating_duration_since(Instant::now())
    }

    /// The pool's status was written.
    pub(crate) fn told(&self, pool: &str) {
        self.pace(pool, |pace| pace.told = Some(Instant::now()));
    }

    /// How long it is until the counters of the pool may be written again.
    pub(crate) fn until_counters(&self, pool: &str, pause: Duration) -> Duration {
        let told = self.pace(pool, |_| {}).told;
        told.map_or(Duration::ZERO, |told| (told + pause).saturating_duration_since(Instant::now()))
    }
}

/// Has every change of what decisions depend on taken in from now on.
pub(crate) fn listen(context: &Arc<Context>) {
    // The caches are part of the context, which must not be kept alive by its own listeners.
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.pools.on_change(move |change| {
        one.upgrade().iter().for_each(|context| pool(context, &change));
    });
    context.caches.nodes.on_change(move |change| {
        two.upgrade().iter().for_each(|context| node(context, &change));
    });
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.reports.on_change(move |change| {
        one.upgrade().iter().for_each(|context| report(context, &change));
    });
    context.caches.configs.on_change(move |change| {
        two.upgrade().iter().for_each(|context| config(context, &change));
    });
    let orders = Arc::downgrade(context);
    context.caches.orders.on_change(move |change| {
        let pool = change.object().map(|order| order.spec.machine_config_pool.name.clone());
        orders.upgrade().iter().for_each(|context| look_at_pools(context, pool.clone()));
    });
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.builds.on_change(move |change| {
        one.upgrade().iter().for_each(|context| build(context, &change));
    });
    context.caches.streams.on_change(move |_| {
        two.upgrade().iter().for_each(|context| look_at_all_pools(context));
    });
    let (one, two) = (Arc::downgrade(context), Arc::downgrade(context));
    context.caches.cluster.on_change(move |change| {
        one.upgrade().iter().for_each(|context| cluster(context, &change));
    });
    context.caches.schedulers.on_change(move |_| {
        two.upgrade().iter().for_each(|context| look_at_all(context));
    });
}

fn pool(context: &Context, change: &Change<'_, MachineConfigPool>) {
    let board = &context.board;
    let Some(name) = change.object().map(|pool| pool.name_any()) else { return };
    if change.after.is_none() {
        context.metrics.pool_gone(&name);
        board.paces.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    } else if pool_matters(change) {
        board.pools.add_after(name, context.settle.node);
    }
    let mut roster = board.roster();
    // Asked for only now, because another thread may have taken in a later change already.
    let pools = context.caches.pools.list();
    if roster.knows(pools.iter().map(|pool| &**pool)) {
        return;
    }
    let nodes = context.caches.nodes.list();
    let views = nodes.iter().map(|node| (view(context, node), node.labels()));
    roster.replace(pools.iter().map(|pool| &**pool), views);
    for node in &nodes {
        let name = node.name_any();
        context.metrics.member(&name, roster.pool_of(&name).ok().flatten());
    }
    drop(roster);
    look_at_all(context);
}

fn node(context: &Context, change: &Change<'_, Node>) {
    let Some(name) = change.object().map(|node| node.name_any()) else { return };
    let mut roster = context.board.roster();
    // Asked for only now, because another thread may have taken in a later change already.
    let (concerned, alert) = if let Some(node) = context.caches.nodes.get(&name) {
        let concerned = roster.set_node(view(context, &node), node.labels());
        (concerned, roster.custom_ignored(&name) == Some(CustomIgnored::Yes))
    } else {
        // Before anything is written because of it.
        context.metrics.node_gone(&name);
        (roster.forget_node(&name), false)
    };
    let pool = roster.pool_of(&name).ok().flatten();
    let is_master = pool == Some(MASTER);
    context.metrics.member(&name, pool);
    drop(roster);
    context.metrics.pool_alert(&name, alert);
    look_at_pools(context, concerned);
    let (before, after) = (change.before, change.after);
    if let (true, Some(before), Some(after)) = (is_master, before, after) {
        for text in rollout::notices(&name, before.annotations(), after.annotations()) {
            // Nobody listens only while the process stops.
            drop(context.board.notices.send(text));
        }
    }
    if node_matters(change) {
        context.board.nodes.settle(name, context.settle.report);
    }
}

fn report(context: &Context, change: &Change<'_, MachineConfigNode>) {
    let Some(name) = change.object().map(|report| report.name_any()) else { return };
    let mut roster = context.board.roster();
    let concerned = match context.caches.reports.get(&name) {
        Some(report) => roster.set_report(NodeReport::of(&report)),
        None => roster.forget_report(&name),
    };
    drop(roster);
    look_at_pools(context, concerned);
    context.board.nodes.settle(name, context.settle.report);
}

/// A rendered config that comes or goes may say which pool a new node is for, and which OS its own
/// pool has.
fn config(context: &Context, change: &Change<'_, MachineConfig>) {
    let Some(config) = change.object() else { return };
    let Some(pool) = owner(config) else { return };
    if change.before.is_some() == change.after.is_some() {
        return;
    }
    look_at_pools(context, [pool.to_owned()]);
    let (name, key) = (config.name_any(), annotation::FIRST_PIVOT_CONFIG.name());
    let nodes = context.caches.nodes.list();
    for node in nodes.iter().filter(|node| node.annotations().get(key) == Some(&name)) {
        let mut roster = context.board.roster();
        let concerned = roster.set_node(view(context, node), node.labels());
        drop(roster);
        look_at_pools(context, concerned);
    }
}

/// A build that changes is told of by the pool that it is for.
fn build(context: &Context, change: &Change<'_, MachineOSBuild>) {
    let Some(build) = change.object() else { return };
    let order = context.caches.orders.get(&build.spec.machine_os_config.name);
    look_at_pools(context, order.map(|order| order.spec.machine_config_pool.name.clone()));
}

fn cluster(context: &Context, change: &Change<'_, ControllerConfig>) {
    let told = |config: Option<&Arc<ControllerConfig>>| {
        let status = config.and_then(|config| config.status.clone());
        let certificates = status.map(|status| status.controller_certificates);
        (config.and_then(|config| topology(config)), certificates)
    };
    if told(change.before) != told(change.after) {
        look_at_all(context);
    }
}

fn look_at_all_pools(context: &Context) {
    look_at_pools(context, context.caches.pools.list().iter().map(|pool| pool.name_any()));
}

fn look_at_all(context: &Context) {
    look_at_all_pools(context);
    for node in context.caches.nodes.list() {
        context.board.nodes.add_after(node.name_any(), context.settle.report);
    }
}

fn look_at_pools(context: &Context, pools: impl IntoIterator<Item = String>) {
    let delay = context.settle.node;
    for pool in pools {
        // Each half of the control plane waits for the other.
        let is_half = CONTROL_PLANE.contains(&pool.as_str());
        let others = CONTROL_PLANE.into_iter().filter(|other| is_half && *other != pool);
        others.for_each(|other| context.board.pools.add_after(other.to_owned(), delay));
        context.board.pools.add_after(pool, delay);
    }
}

/// Whether a pool changed in a way that its nodes or its status depend on.
fn pool_matters(change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    // What others find goes into the pool's condition Degraded.
    let degraded = |pool: &MachineConfigPool| {
        let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
        let found = [
            PoolCondition::RenderDegraded,
            PoolCondition::ImageBuildDegraded,
            PoolCondition::PinnedImageSetsDegraded,
        ];
        found.map(|kind| status::holds(conditions.unwrap_or_default(), &kind))
    };
    before.spec != after.spec
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || degraded(before) != degraded(after)
}

/// Whether a node changed in more than its kubelet's reports.
fn node_matters(change: &Change<'_, Node>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    let (old, new) = (&before.metadata, &after.metadata);
    old.labels != new.labels
        || old.annotations != new.annotations
        || old.uid != new.uid
        || before.spec != after.spec
}

/// The node, with the labels of the custom pool that it was booted for, if it still lacks them.
fn view(context: &Context, node: &Node) -> NodeView {
    let mut node = NodeView::of(node);
    if let Some(config) = &node.first_config {
        let config = context.caches.configs.get(config);
        let owner = config.as_deref().and_then(owner);
        let pool = owner.and_then(|owner| context.caches.pools.get(owner));
        node.claim = first_boot::claim(&node, |_| config.as_deref(), |_| pool.as_deref());
    }
    node
}

/// How the control plane is laid out.
pub(crate) fn topology(config: &ControllerConfig) -> Option<Topology> {
    config.spec.infra.as_ref()?.status.as_ref()?.control_plane_topology.clone()
}
