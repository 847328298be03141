//! Observes the nodes of a cluster in tests: a summary of each node, and the history of all of
//! them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{PATIENCE, daemons::PREFIX};

/// A summary of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSummary {
    /// The node's current config.
    pub current: String,
    /// The node's desired config.
    pub desired: String,
    /// State that the node's daemon reports.
    pub state: String,
    /// Reason that the daemon reports with a failure.
    pub reason: String,
    /// Drain request of the daemon.
    pub desired_drain: String,
    /// The last request that the drain controller completed.
    pub last_drain: String,
    /// Boot id that the kubelet reports.
    pub boot_id: String,
    /// True if the node is cordoned.
    pub cordoned: bool,
    /// True if the node is Ready.
    pub ready: bool,
}

impl NodeSummary {
    /// Summarizes a node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let text = |key: &str| {
            node.annotations().get(&format!("{PREFIX}{key}")).cloned().unwrap_or_default()
        };
        let status = node.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        Self {
            current: text("currentConfig"),
            desired: text("desiredConfig"),
            state: text("state"),
            reason: text("reason"),
            desired_drain: text("desiredDrain"),
            last_drain: text("lastAppliedDrain"),
            boot_id: status.node_info.map(|info| info.boot_id).unwrap_or_default(),
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            ready: conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"),
        }
    }

    /// Returns true if the node runs its desired config and its daemon reports Done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == "Done" && self.current == self.desired && self.reason.is_empty()
    }

    /// Returns true if the node has completed an update away from the config `before`.
    #[must_use]
    pub fn has_updated_from(&self, before: &str) -> bool {
        let has_it = self.current == self.desired && self.current != before;
        has_it && self.state == "Done" && self.accepts_pods()
    }

    /// Returns true if the drain controller has completed the daemon's request.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.desired_drain == self.last_drain
    }

    /// Returns true if the node accepts pods.
    #[must_use]
    pub fn accepts_pods(&self) -> bool {
        self.ready && !self.cordoned
    }

    /// Returns true if the node is between two configs. Ready is ignored, because a busy host makes
    /// nodes unready for other reasons.
    #[must_use]
    pub fn is_updating(&self) -> bool {
        self.cordoned || self.current != self.desired
    }
}

impl fmt::Display for NodeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.ready { "Ready" } else { "NotReady" };
        let cordoned = if self.cordoned { ", cordoned" } else { "" };
        let Self { state, current, desired, reason, boot_id, .. } = self;
        write!(
            f,
            "{ready}{cordoned}, {state} {reason:?}, current {current}, desired {desired}, boot {boot_id}"
        )
    }
}

/// The summaries of all nodes at one moment, by name.
pub type NodeSummaries = BTreeMap<String, NodeSummary>;

/// The current and past state of all nodes, from one watch, so that each entry shows nodes at the
/// same moment.
#[derive(Debug)]
pub struct Nodes {
    now: watch::Receiver<NodeSummaries>,
    history: Arc<Mutex<Vec<NodeSummaries>>>,
    watcher: JoinHandle<()>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Nodes {
    /// Starts to watch. Must be called inside a tokio runtime.
    #[must_use]
    pub fn watch(client: Client) -> Self {
        let (sender, now) = watch::channel(NodeSummaries::new());
        let history = Arc::default();
        let watcher = tokio::spawn(follow(Api::all(client), sender, Arc::clone(&history)));
        Self { now, history, watcher }
    }

    /// Returns a receiver of the nodes' state.
    #[must_use]
    pub fn now(&self) -> watch::Receiver<NodeSummaries> {
        self.now.clone()
    }

    /// Waits until the nodes satisfy `is`.
    pub async fn wait(
        &self,
        what: &str,
        is: impl FnMut(&NodeSummaries) -> bool,
    ) -> anyhow::Result<NodeSummaries> {
        let mut now = self.now();
        let found = tokio::time::timeout(PATIENCE, now.wait_for(is)).await;
        let found = found.ok().and_then(|found| Some(found.ok()?.clone()));
        found.with_context(|| {
            format!("timed out after {PATIENCE:?} waiting for {what}: {:#?}", self.now.borrow())
        })
    }

    /// Returns all states since the last call.
    #[must_use]
    pub fn history(&self) -> Vec<NodeSummaries> {
        std::mem::take(&mut *self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the state in which the most nodes satisfied `is`, with the text of these nodes.
#[must_use]
pub fn max_matching(
    history: &[NodeSummaries],
    is: impl Fn(&NodeSummary) -> bool,
) -> BTreeMap<String, String> {
    let those = |views: &NodeSummaries| -> BTreeMap<String, String> {
        let those = views.iter().filter(|(_, view)| is(view));
        those.map(|(name, view)| (name.clone(), view.to_string())).collect()
    };
    history.iter().map(those).max_by_key(BTreeMap::len).unwrap_or_default()
}

async fn follow(
    nodes: Api<Node>,
    now: watch::Sender<NodeSummaries>,
    history: Arc<Mutex<Vec<NodeSummaries>>>,
) {
    let changes = watcher(nodes, watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        now.send_modify(|views| {
            match change {
                Ok(Event::Apply(node) | Event::InitApply(node)) => {
                    views.insert(node.name_any(), NodeSummary::of(&node));
                }
                Ok(Event::Delete(node)) => {
                    views.remove(&node.name_any());
                }
                // The watcher resumes by itself.
                Ok(Event::Init | Event::InitDone) | Err(_) => return,
            }
            history.lock().unwrap_or_else(PoisonError::into_inner).push(views.clone());
        });
    }
}
