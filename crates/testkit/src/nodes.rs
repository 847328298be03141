//! The nodes of a cluster as tests look at them: what matters of each, and everything that all of them
//! went through.

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

/// What matters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The config that it has.
    pub current: String,
    /// The config that it is to have.
    pub desired: String,
    /// What its daemon says that it is doing.
    pub state: String,
    /// Why, where something is wrong.
    pub reason: String,
    /// What its daemon asks the drain controller for.
    pub desired_drain: String,
    /// What the drain controller did last.
    pub last_drain: String,
    /// The boot that its kubelet was started in.
    pub boot_id: String,
    /// Whether it is closed to pods.
    pub cordoned: bool,
    /// Whether its kubelet says that it is well.
    pub ready: bool,
}

impl View {
    /// Looks at a node.
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

    /// Whether it has its config, and its daemon has nothing left to do or to complain of.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == "Done" && self.current == self.desired && self.reason.is_empty()
    }

    /// Whether it has the config that follows `before`, and nothing is left to do about it.
    #[must_use]
    pub fn is_past(&self, before: &str) -> bool {
        let has_it = self.current == self.desired && self.current != before;
        has_it && self.state == "Done" && self.is_in_service()
    }

    /// Whether the drain controller has done what it was asked for.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.desired_drain == self.last_drain
    }

    /// Whether it takes pods.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        self.ready && !self.cordoned
    }

    /// Whether it is on its way from one config to another. That a node is not Ready may have other
    /// reasons on a busy host.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.cordoned || self.current != self.desired
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.ready { "Ready" } else { "NotReady" };
        let cordoned = if self.cordoned { ", cordoned" } else { "" };
        let Self { state, current, desired, reason, boot_id, .. } = self;
        write!(
            f,
            "{ready}{cordoned}, {state} {reason:?}, has {current}, is to have {desired}, boot {boot_id}"
        )
    }
}

/// All nodes at one moment, by name.
pub type Views = BTreeMap<String, View>;

/// All nodes, now and before: one watch, so that what is seen together was so together.
#[derive(Debug)]
pub struct Nodes {
    now: watch::Receiver<Views>,
    history: Arc<Mutex<Vec<Views>>>,
    watcher: JoinHandle<()>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Nodes {
    /// Watches from now on. Must be called inside a tokio runtime.
    #[must_use]
    pub fn watch(client: Client) -> Self {
        let (sender, now) = watch::channel(Views::new());
        let history = Arc::default();
        let watcher = tokio::spawn(follow(Api::all(client), sender, Arc::clone(&history)));
        Self { now, history, watcher }
    }

    /// The nodes as they are now, and as they change.
    #[must_use]
    pub fn now(&self) -> watch::Receiver<Views> {
        self.now.clone()
    }

    /// Waits until the nodes are as they should be.
    pub async fn wait(&self, what: &str, is: impl FnMut(&Views) -> bool) -> anyhow::Result<Views> {
        let mut now = self.now();
        let found = tokio::time::timeout(PATIENCE, now.wait_for(is)).await;
        let found = found.ok().and_then(|found| Some(found.ok()?.clone()));
        found.with_context(|| format!("waited in vain for {what}: {:#?}", self.now.borrow()))
    }

    /// Every moment since this was last asked.
    #[must_use]
    pub fn history(&self) -> Vec<Views> {
        std::mem::take(&mut *self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The moment with the most nodes that are so, and what they were like then.
#[must_use]
pub fn most(history: &[Views], is: impl Fn(&View) -> bool) -> BTreeMap<String, String> {
    let those = |views: &Views| -> BTreeMap<String, String> {
        let those = views.iter().filter(|(_, view)| is(view));
        those.map(|(name, view)| (name.clone(), view.to_string())).collect()
    };
    history.iter().map(those).max_by_key(BTreeMap::len).unwrap_or_default()
}

async fn follow(nodes: Api<Node>, now: watch::Sender<Views>, history: Arc<Mutex<Vec<Views>>>) {
    let changes = watcher(nodes, watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        now.send_modify(|views| {
            match change {
                Ok(Event::Apply(node) | Event::InitApply(node)) => {
                    views.insert(node.name_any(), View::of(&node));
                }
                Ok(Event::Delete(node)) => {
                    views.remove(&node.name_any());
                }
                // The watch is taken up again by itself.
                Ok(Event::Init | Event::InitDone) | Err(_) => return,
            }
            history.lock().unwrap_or_else(PoisonError::into_inner).push(views.clone());
        });
    }
}
