//! Daemons as the API server sees them: they speak the reference's annotation protocol, step by step,
//! and touch no machine.
//!
//! The scripts are what the reference's daemon writes on its node, in its order. As there, a newer
//! config does not interrupt a script that has begun.

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

/// What a daemon does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Says that it works; one that has failed before goes on saying so until it is done.
    Working,
    /// Writes annotations, named without their prefix; `{config}` stands for the config's name.
    Write(&'static [(&'static str, &'static str)]),
    /// Waits until the controller has done what `desiredDrain` asks for.
    Drained,
}

/// What a daemon does with a new config, in order.
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

/// An update without drain: the uncordon is asked for all the same.
pub const IN_PLACE: Script = &[
    Step::Working,
    Step::Write(&[("desiredDrain", "uncordon-{config}")]),
    Step::Drained,
    Step::Write(&[("state", "Done"), ("currentConfig", "{config}"), ("reason", "")]),
];

/// An update that fails once the node is drained; the node stays cordoned.
pub const FAILS: Script = &[
    Step::Working,
    Step::Write(&[("desiredDrain", "drain-{config}")]),
    Step::Drained,
    Step::Write(&[("state", "Degraded"), ("reason", "disk full")]),
];

/// A config that cannot be taken at all.
pub const REFUSES: Script = &[
    Step::Working,
    Step::Write(&[("state", "Unreconcilable"), ("reason", "can't reconcile config")]),
];

/// A machine that is not heard of.
pub const SILENT: Script = &[];

/// Daemons of all nodes of a cluster; they end when this goes out of scope.
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
    /// Has every node follow the script that `script` gives for it and its config.
    pub fn start(
        client: Client,
        script: impl Fn(&str, &str) -> Script + Send + Sync + 'static,
    ) -> Self {
        Self::at(Arc::default(), client, script)
    }

    /// Has `count` nodes, whichever begin first, follow a script at once, and the others once they are
    /// released: what a test does in between is in the middle of a roll-out.
    #[must_use]
    pub fn held(client: Client, count: usize, script: Script) -> Self {
        let gate: Arc<Gate> = Arc::default();
        let at_gate = gate.clone();
        let held = move |node: &str, config: &str| match config {
            "" => SILENT,
            _ if at_gate.lets(node, count) => script,
            _ => SILENT,
        };
        Self::at(gate, client, held)
    }

    /// Lets the nodes go on that were held.
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
        let play = Play { nodes, script, most: most.clone(), gate: gate.clone() };
        Self { task: tokio::spawn(play.run()), most, gate }
    }

    /// The most nodes that were between two configs at a time.
    #[must_use]
    pub fn busiest(&self) -> Vec<String> {
        lock(&self.most).clone()
    }

    /// Counts from now on.
    pub fn count_anew(&self) {
        lock(&self.most).clear();
    }
}

/// Where nodes wait.
#[derive(Debug, Default)]
struct Gate {
    passed: Mutex<Passed>,
    opened: Notify,
}

#[derive(Debug, Default)]
struct Passed {
    nodes: BTreeSet<String>,
    is_open: bool,
}

impl Gate {
    fn lets(&self, node: &str, count: usize) -> bool {
        let mut passed = lock(&self.passed);
        if passed.nodes.len() < count {
            passed.nodes.insert(node.to_owned());
        }
        passed.is_open || passed.nodes.contains(node)
    }
}

/// How far a node is.
#[derive(Debug)]
struct Progress {
    config: String,
    next: usize,
}

impl Progress {
    /// At the end of a script that nobody knows.
    const IDLE: Self = Self { config: String::new(), next: usize::MAX };
}

struct Play<F> {
    nodes: Api<Node>,
    script: F,
    most: Arc<Mutex<Vec<String>>>,
    gate: Arc<Gate>,
}

impl<F: Fn(&str, &str) -> Script> Play<F> {
    async fn run(self) {
        let mut known: BTreeMap<String, Node> = BTreeMap::new();
        let mut progress: BTreeMap<String, Progress> = BTreeMap::new();
        let changes = watcher(self.nodes.clone(), watcher::Config::default()).default_backoff();
        let mut changes = std::pin::pin!(changes);
        loop {
            let due: Vec<Node> = tokio::select! {
                () = self.gate.opened.notified() => known.values().cloned().collect(),
                change = changes.next() => match change {
                    // What a write gave back may be newer than what the watch tells now.
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
                    // The watch is taken up again by itself.
                    Some(Ok(_) | Err(_)) => continue,
                    None => return,
                },
            };
            for node in due {
                known.insert(node.name_any(), node.clone());
                self.count(&known);
                let progress = progress.entry(node.name_any()).or_insert(Progress::IDLE);
                if let Some(node) = self.go_on(node, progress).await {
                    known.insert(node.name_any(), node);
                    self.count(&known);
                }
            }
        }
    }

    /// Takes every step that can be taken; gives the node as it is then.
    async fn go_on(&self, mut node: Node, progress: &mut Progress) -> Option<Node> {
        let name = node.name_any();
        loop {
            let script = (self.script)(&name, &progress.config);
            let Some(step) = script.get(progress.next) else {
                let desired = value(&node, "desiredConfig");
                let is_done = desired == value(&node, "currentConfig") && state(&node) == "Done";
                if desired == progress.config || is_done {
                    return Some(node);
                }
                *progress = Progress { config: desired.to_owned(), next: 0 };
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

    /// Writes annotations on a node; a node that is gone says nothing more.
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

/// Annotations, named without their prefix, as a patch.
pub(crate) fn annotations(pairs: impl IntoIterator<Item = (&'static str, String)>) -> Value {
    let pairs = pairs.into_iter().map(|(key, text)| (format!("{PREFIX}{key}"), text.into()));
    json!({"metadata": {"annotations": pairs.collect::<serde_json::Map<_, _>>()}})
}
