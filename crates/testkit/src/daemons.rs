//! Daemons as the API server sees them: they speak the reference's annotation protocol, step by step,
//! and touch no machine.
//!
//! The scripts are what the reference's daemon writes on its node, in its order. As there, a newer
//! config does not interrupt a script that has begun.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
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
use tokio::task::JoinHandle;

const PREFIX: &str = "machineconfiguration.openshift.io/";

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
        let most: Arc<Mutex<Vec<String>>> = Arc::default();
        let play = Play { nodes: Api::all(client), script, most: most.clone() };
        Self { task: tokio::spawn(play.run()), most }
    }

    /// The most nodes that were between two configs at a time.
    #[must_use]
    pub fn busiest(&self) -> Vec<String> {
        self.most.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts from now on.
    pub fn count_anew(&self) {
        self.most.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
}

impl<F: Fn(&str, &str) -> Script> Play<F> {
    async fn run(self) {
        let mut known: BTreeMap<String, Node> = BTreeMap::new();
        let mut progress: BTreeMap<String, Progress> = BTreeMap::new();
        let changes = watcher(self.nodes.clone(), watcher::Config::default()).default_backoff();
        let mut changes = std::pin::pin!(changes);
        while let Some(change) = changes.next().await {
            match change {
                // What a write gave back may be newer than what the watch tells now.
                Ok(Event::Apply(node) | Event::InitApply(node))
                    if known.get(&node.name_any()).is_some_and(|last| !is_newer(&node, last)) => {}
                Ok(Event::Apply(node) | Event::InitApply(node)) => {
                    known.insert(node.name_any(), node.clone());
                    self.count(&known);
                    let progress = progress.entry(node.name_any()).or_insert(Progress::IDLE);
                    if let Some(node) = self.go_on(node, progress).await {
                        known.insert(node.name_any(), node);
                        self.count(&known);
                    }
                }
                Ok(Event::Delete(node)) => {
                    known.remove(&node.name_any());
                    progress.remove(&node.name_any());
                }
                // The watch is taken up again by itself.
                Ok(Event::Init | Event::InitDone) | Err(_) => {}
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
    async fn write(&self, node: &str, pairs: &[(&str, &str)], config: &str) -> Option<Node> {
        let patch = Patch::Merge(annotations(pairs, config));
        self.nodes.patch(node, &PatchParams::default(), &patch).await.ok()
    }

    fn count(&self, known: &BTreeMap<String, Node>) {
        let is_under_way = |node: &&Node| {
            value(node, "desiredConfig") != value(node, "currentConfig")
                || value(node, "desiredDrain") != value(node, "lastAppliedDrain")
        };
        let now: Vec<String> =
            known.values().filter(is_under_way).map(kube::ResourceExt::name_any).collect();
        let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        if now.len() > most.len() {
            *most = now;
        }
    }
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

fn annotations(pairs: &[(&str, &str)], config: &str) -> Value {
    let pairs = pairs.iter().map(|(key, text)| {
        (format!("{PREFIX}{key}"), Value::from(text.replace("{config}", config)))
    });
    json!({"metadata": {"annotations": pairs.collect::<serde_json::Map<_, _>>()}})
}
