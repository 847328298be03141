//! The nodes of the lab as the API shows them, and everything that they went through.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use mco_testkit::lab::{Lab, Machine, Step};
use tokio::{sync::watch, task::JoinHandle};

/// What matters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) current: String,
    pub(crate) desired: String,
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) boot_id: String,
    pub(crate) cordoned: bool,
    pub(crate) drained: bool,
    pub(crate) ready: bool,
}

impl View {
    fn of(node: &Node) -> Self {
        let text = |key: &str| {
            let key = format!("machineconfiguration.openshift.io/{key}");
            node.annotations().get(&key).cloned().unwrap_or_default()
        };
        let status = node.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        Self {
            current: text("currentConfig"),
            desired: text("desiredConfig"),
            state: text("state"),
            reason: text("reason"),
            boot_id: status.node_info.map(|info| info.boot_id).unwrap_or_default(),
            drained: text("desiredDrain") == text("lastAppliedDrain"),
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            ready: conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"),
        }
    }

    /// Whether it has the config that follows `before`, and nothing is left to do about it.
    pub(crate) fn is_past(&self, before: &str) -> bool {
        let has_it = self.current == self.desired && self.current != before;
        has_it && self.state == "Done" && self.ready && !self.cordoned
    }

    /// Whether it is on its way from one config to another. That a node is not Ready may have other
    /// reasons on a busy host.
    fn is_under_way(&self) -> bool {
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

type Views = BTreeMap<String, View>;

/// All nodes, now and before.
pub(crate) struct Fleet<'l> {
    lab: &'l Lab,
    now: watch::Receiver<Views>,
    history: Arc<Mutex<Vec<Views>>>,
    watcher: JoinHandle<()>,
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl<'l> Fleet<'l> {
    /// Watches the nodes of a lab from now on.
    pub(crate) fn watch(lab: &'l Lab) -> Self {
        let (sender, now) = watch::channel(Views::new());
        let history = Arc::default();
        let watcher = tokio::spawn(follow(lab.client(), sender, Arc::clone(&history)));
        Self { lab, now, history, watcher }
    }

    /// A node as it is now.
    pub(crate) fn view(&self, machine: &Machine) -> View {
        self.now.borrow().get(machine.name()).cloned().unwrap_or_default()
    }

    /// Waits until a machine's node is as it should be.
    pub(crate) async fn wait(
        &self,
        machine: &Machine,
        what: &str,
        is: impl Fn(&View) -> bool,
    ) -> anyhow::Result<View> {
        let look = |views: &Views| match views.get(machine.name()) {
            Some(view) if is(view) => Ok(view.clone()),
            Some(view) => Err(view.to_string()),
            None => Err("no node".to_owned()),
        };
        self.lab.wait_for(Step::on(machine, what), &mut self.now.clone(), look).await
    }

    /// Waits until one of `among` is told to take another config than `before`.
    pub(crate) async fn wait_next(
        &self,
        among: &BTreeSet<&str>,
        before: &str,
    ) -> anyhow::Result<&'l Machine> {
        let what = format!("one of {among:?} to be told to change");
        let look = |views: &Views| {
            let told = views.iter().find(|(name, view)| {
                among.contains(name.as_str()) && !view.desired.is_empty() && view.desired != before
            });
            let shown = || views.iter().map(|(name, view)| format!("\n  {name}: {view}"));
            told.map(|(name, _)| name.clone()).ok_or_else(|| shown().collect())
        };
        let name = self.lab.wait_for(Step::of_all(&what), &mut self.now.clone(), look).await?;
        self.lab.machine(&name)
    }

    /// The moment with the most nodes under way to a config, since this was last asked.
    pub(crate) fn busiest(&self) -> BTreeMap<String, String> {
        let history = std::mem::take(&mut *self.history.lock().unwrap());
        let under_way = |views: &Views| -> BTreeMap<String, String> {
            let under_way = views.iter().filter(|(_, view)| view.is_under_way());
            under_way.map(|(name, view)| (name.clone(), view.to_string())).collect()
        };
        history.iter().map(under_way).max_by_key(BTreeMap::len).unwrap_or_default()
    }
}

async fn follow(client: Client, now: watch::Sender<Views>, history: Arc<Mutex<Vec<Views>>>) {
    let nodes: Api<Node> = Api::all(client);
    let changes = watcher(nodes, watcher::Config::default()).default_backoff().applied_objects();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        let Ok(node) = change else { continue };
        now.send_modify(|views| {
            views.insert(node.name_any(), View::of(&node));
            history.lock().unwrap().push(views.clone());
        });
    }
}
