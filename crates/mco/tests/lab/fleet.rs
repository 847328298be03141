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
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            ready: conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"),
        }
    }

    /// Whether it can run pods.
    fn serves(&self) -> bool {
        self.ready && !self.cordoned
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

    /// How many nodes were out of service at the same time, at most, since this was last asked.
    pub(crate) fn most_out_of_service(&self) -> usize {
        let history = std::mem::take(&mut *self.history.lock().unwrap());
        let out = |views: &Views| views.values().filter(|view| !view.serves()).count();
        history.iter().map(out).max().unwrap_or_default()
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
