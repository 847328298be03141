//! Simulated daemons, as the API server sees them. They follow the reference's annotation protocol
//! step by step, without a machine.
//!
//! The scripts contain what the reference's daemon writes on its node, in its order. As there, a
//! newer config does not interrupt a running script.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};

pub(crate) const PREFIX: &str = "machineconfiguration.openshift.io/";

/// One step of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reports the state Working. A daemon that failed before keeps its state until it is done.
    Working,
    /// Writes annotations, named without their prefix. `{config}` stands for the config's name.
    Write(&'static [(&'static str, &'static str)]),
    /// Waits until the controller has completed the request in `desiredDrain`.
    Drained,
}

/// The steps of a daemon for a new config, in order.
pub type Script = &'static [Step];

/// An update with drain and reboot.
pub const REBOOT: Script = &[
    Step::Working,
    Step::Write(&[("desiredDrain", "drain-{config}")]),
    Step::Drained,
    Step::Write(&[("post-config-action", "Rebooting")]),
    Step::Write(&[("post-config-action", "")]),
    Step::Write(&[("desiredDrain", "uncordon-{config}")]),
    Step::Drained,
    Step::Write(&[("state", "Done"), ("currentConfig", "{config}"), ("reason", "")]),
];

/// An update without drain. The daemon still requests the uncordon.
pub const IN_PLACE: Script = &[
    Step::Working,
    Step::Write(&[("desiredDrain", "uncordon-{config}")]),
    Step::Drained,
    Step::Write(&[("state", "Done"), ("currentConfig", "{config}"), ("reason", "")]),
];

/// An update that fails after the drain. The node stays cordoned.
pub const FAILS_AFTER_DRAIN: Script = &[
    Step::Working,
    Step::Write(&[("desiredDrain", "drain-{config}")]),
    Step::Drained,
    Step::Write(&[("state", "Degraded"), ("reason", "disk full")]),
];

/// An update to a config that cannot be reconciled.
pub const UNRECONCILABLE: Script = &[
    Step::Working,
    Step::Write(&[("state", "Unreconcilable"), ("reason", "can't reconcile config")]),
];

/// A daemon that does not respond.
pub const UNRESPONSIVE: Script = &[];

/// The daemons of all nodes of a cluster. They stop when dropped.
#[derive(Debug)]
pub struct Daemons {
    task: JoinHandle<()>,
    most: Arc<Mutex<Vec<String>>>,
    gate: Arc<Gate>,
}

impl Drop for Daemons {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Daemons {
    /// Starts daemons that follow the script that `script` returns for a node and its config.
    pub fn start(
        client: Client,
        script: impl Fn(&str, &str) -> Script + Send + Sync + 'static,
    ) -> Self {
        Self::at(Arc::default(), client, script)
    }

    /// Starts daemons of which only the first `count` follow the script; the others wait for
    /// [`Self::release`]. What a test does in between happens in the middle of a rollout.
    #[must_use]
    pub fn start_held(client: Client, count: usize, script: Script) -> Self {
        let gate: Arc<Gate> = Arc::default();
        let at_gate = gate.clone();
        let held = move |node: &str, config: &str| match config {
            "" => UNRESPONSIVE,
            _ if at_gate.admits(node, count) => script,
            _ => UNRESPONSIVE,
        };
        Self::at(gate, client, held)
    }

    /// Lets the waiting daemons continue.
    pub fn release(&self) {
        lock(&self.gate.passed).is_open = true;
        self.gate.opened.notify_one();
    }

    fn at(
        gate: Arc<Gate>,
        client: Client,
        script: impl Fn(&str, &str) -> Script + Send + Sync + 'static,
    ) -> Self {
        let most: Arc<Mutex<Vec<String>>> = Arc::default();
        let nodes = Api::all(client);
        let play = DaemonTask { nodes, script, most: most.clone(), gate: gate.clone() };
        Self { task: tokio::spawn(play.run()), most, gate }
    }

    /// Returns the largest set of nodes that were between two configs at the same time.
    #[must_use]
    pub fn max_updating(&self) -> Vec<String> {
        lock(&self.most).clone()
    }

    /// Resets [`Self::max_updating`].
    pub fn reset_max_updating(&self) {
        lock(&self.most).clear();
    }
}

/// Holds nodes back until the gate is opened.
#[derive(Debug, Default)]
struct Gate {
    passed: Mutex<GateState>,
    opened: Notify,
}

#[derive(Debug, Default)]
struct GateState {
    nodes: BTreeSet<String>,
    is_open: bool,
}

impl Gate {
    fn admits(&self, node: &str, count: usize) -> bool {
        let mut passed = lock(&self.passed);
        if passed.nodes.len() < count {
            passed.nodes.insert(node.to_owned());
        }
        passed.is_open || passed.nodes.contains(node)
    }
}

/// The position of a node in its script.
#[derive(Debug)]
struct ScriptPosition {
    config: String,
    next: usize,
}

impl ScriptPosition {
    /// The position after the end of an unknown script.
    const IDLE: Self = Self { config: String::new(), next: usize::MAX };
}

struct DaemonTask<F> {
    nodes: Api<Node>,
    script: F,
    most: Arc<Mutex<Vec<String>>>,
    gate: Arc<Gate>,
}

impl<F: Fn(&str, &str) -> Script> DaemonTask<F> {
    async fn run(self) {
        let mut known: BTreeMap<String, Node> = BTreeMap::new();
        let mut progress: BTreeMap<String, ScriptPosition> = BTreeMap::new();
        let changes = watcher(self.nodes.clone(), watcher::Config::default()).default_backoff();
        let mut changes = std::pin::pin!(changes);
        loop {
            let due: Vec<Node> = tokio::select! {
                () = self.gate.opened.notified() => known.values().cloned().collect(),
                change = changes.next() => match change {
                    // The result of a write may be newer than an event of the watch.
                    Some(Ok(Event::Apply(node) | Event::InitApply(node)))
                        if known.get(&node.name_any()).is_none_or(|last| is_newer(&node, last)) =>
                    {
                        vec![node]
                    }
                    Some(Ok(Event::Delete(node))) => {
                        known.remove(&node.name_any());
                        progress.remove(&node.name_any());
                        continue;
                    }
                    // The watcher resumes by itself.
                    Some(Ok(_) | Err(_)) => continue,
                    None => return,
                },
            };
            for node in due {
                known.insert(node.name_any(), node.clone());
                self.count(&known);
                let progress = progress.entry(node.name_any()).or_insert(ScriptPosition::IDLE);
                if let Some(node) = self.advance(node, progress).await {
                    known.insert(node.name_any(), node);
                    self.count(&known);
                }
            }
        }
    }

    /// Takes all steps that are possible now. Returns the updated node.
    async fn advance(&self, mut node: Node, progress: &mut ScriptPosition) -> Option<Node> {
        let name = node.name_any();
        loop {
            let script = (self.script)(&name, &progress.config);
            let Some(step) = script.get(progress.next) else {
                let desired = value(&node, "desiredConfig");
                let is_done = desired == value(&node, "currentConfig") && state(&node) == "Done";
                if desired == progress.config || is_done {
                    return Some(node);
                }
                *progress = ScriptPosition { config: desired.to_owned(), next: 0 };
                continue;
            };
            match step {
                Step::Working if ["Degraded", "Unreconcilable"].contains(&state(&node)) => {}
                Step::Working => {
                    node = self.write(&name, &[("state", "Working")], &progress.config).await?;
                }
                Step::Drained => {
                    if value(&node, "desiredDrain") != value(&node, "lastAppliedDrain") {
                        return Some(node);
                    }
                }
                Step::Write(pairs) => node = self.write(&name, pairs, &progress.config).await?,
            }
            progress.next = progress.next.saturating_add(1);
        }
    }

    /// Writes annotations on a node. Returns `None` if the node is gone.
    async fn write(
        &self,
        node: &str,
        pairs: &'static [(&'static str, &'static str)],
        config: &str,
    ) -> Option<Node> {
        let pairs = pairs.iter().map(|(key, text)| (*key, text.replace("{config}", config)));
        let patch = Patch::Merge(annotations(pairs));
        self.nodes.patch(node, &PatchParams::default(), &patch).await.ok()
    }

    fn count(&self, known: &BTreeMap<String, Node>) {
        let is_under_way = |node: &&Node| {
            value(node, "desiredConfig") != value(node, "currentConfig")
                || value(node, "desiredDrain") != value(node, "lastAppliedDrain")
        };
        let now: Vec<String> =
            known.values().filter(is_under_way).map(kube::ResourceExt::name_any).collect();
        let mut most = lock(&self.most);
        if now.len() > most.len() {
            *most = now;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn value<'n>(node: &'n Node, key: &str) -> &'n str {
    let found = node.annotations().get(&format!("{PREFIX}{key}"));
    found.map(String::as_str).unwrap_or_default()
}

fn state(node: &Node) -> &str {
    value(node, "state")
}

fn is_newer(node: &Node, last: &Node) -> bool {
    let version = |node: &Node| node.resource_version().and_then(|text| text.parse::<u64>().ok());
    node.uid() != last.uid() || version(node) > version(last)
}

/// Builds a patch of annotations, which are named without their prefix.
pub(crate) fn annotations(pairs: impl IntoIterator<Item = (&'static str, String)>) -> Value {
    let pairs = pairs.into_iter().map(|(key, text)| (format!("{PREFIX}{key}"), text.into()));
    json!({"metadata": {"annotations": pairs.collect::<serde_json::Map<_, _>>()}})
}
