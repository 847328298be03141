//! Observes the milestones of a rollout with watches.

use std::{collections::BTreeSet, fmt::Debug, pin::pin, time::Duration};

use futures::{Stream, StreamExt as _, future, stream};
use kube::{
    Resource, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, time::Instant};

use super::{Api, Client, MachineConfig, MachineConfigPool, Node};

/// The time of each milestone, counted from the change, and the peak number of updating nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RolloutTimes {
    pub(super) rendered: Duration,
    pub(super) targeted: Duration,
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) updated: Duration,
    pub(super) at_once: usize,
}

/// One observed change.
enum Observation {
    /// The initial list of a kind is complete.
    Listed,
    Config(String),
    Pool(Box<MachineConfigPool>),
    Node {
        name: String,
        current: String,
        desired: String,
    },
}

/// The running watches.
pub(super) struct Watch {
    seen: mpsc::UnboundedReceiver<(Instant, Observation)>,
    base: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Number of watched kinds.
const KINDS: usize = 3;

/// Starts the watches. Returns when their initial lists are complete.
pub(super) async fn start(client: &Client, base: &str) -> Option<Watch> {
    let configs = Api::<PartialObjectMeta<MachineConfig>>::all(client.clone());
    let configs = changes(configs, |config| Some(Observation::Config(config.name_any())));
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let pools = changes(pools, |pool| {
        Some(pool)
            .filter(|pool| pool.name_any() == "worker")
            .map(|pool| Observation::Pool(Box::new(pool)))
    });
    let nodes = Api::<PartialObjectMeta<Node>>::all(client.clone());
    let nodes = changes(nodes, |node| Some(observe(&node)));
    let (sender, mut seen) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let all: [_; KINDS] = [configs.boxed(), pools.boxed(), nodes.boxed()];
        let mut all = pin!(stream::select_all(all));
        while let Some(observe) = all.next().await {
            if sender.send((Instant::now(), observe)).is_err() {
                return;
            }
        }
    });
    // The initial state is not part of the rollout.
    let mut listed = 0;
    while listed < KINDS {
        let (_, observe) = seen.recv().await?;
        listed += usize::from(matches!(observe, Observation::Listed));
    }
    Some(Watch { seen, base: base.to_owned(), task })
}

/// Returns the changes of a kind, as far as `see` converts them.
fn changes<K>(
    api: Api<K>,
    see: impl Fn(K) -> Option<Observation> + Send,
) -> impl Stream<Item = Observation> + Send
where
    K: Resource<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    events.filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => see(object),
            Ok(Event::InitDone) => Some(Observation::Listed),
            // The watcher resumes by itself.
            Ok(Event::Init | Event::Delete(_)) | Err(_) => None,
        })
    })
}

fn observe(node: &PartialObjectMeta<Node>) -> Observation {
    let value = |key: &str| {
        let key = format!("machineconfiguration.openshift.io/{key}");
        node.annotations().get(&key).cloned().unwrap_or_default()
    };
    let (current, desired) = (value("currentConfig"), value("desiredConfig"));
    Observation::Node { name: node.name_any(), current, desired }
}

impl Watch {
    /// Observes until the pool reports that all nodes are updated.
    pub(super) async fn see(mut self, nodes: usize, start: Instant) -> Option<RolloutTimes> {
        let mut sights = RolloutTimes::default();
        let (mut under_way, mut done) = (BTreeSet::new(), BTreeSet::new());
        let mut target = String::new();
        while let Some((at, observe)) = self.seen.recv().await {
            let after = at.saturating_duration_since(start);
            let first = |time: &mut Duration| {
                if time.is_zero() {
                    *time = after;
                }
            };
            match observe {
                // A watch was resumed.
                Observation::Listed => {}
                Observation::Config(name) => {
                    if name.starts_with("rendered-worker-") && name != self.base {
                        first(&mut sights.rendered);
                    }
                }
                Observation::Pool(pool) => {
                    let name = &pool.spec.configuration.rendered.name;
                    if *name != self.base && !name.is_empty() {
                        target.clone_from(name);
                        first(&mut sights.targeted);
                    }
                    let status = pool.status.as_ref();
                    let reached = status.map(|status| &status.configuration.rendered.name);
                    if !target.is_empty() && reached == Some(&target) && done.len() == nodes {
                        sights.updated = after;
                        return Some(sights);
                    }
                }
                Observation::Node { name, current, desired } => {
                    if desired != self.base {
                        first(&mut sights.first);
                    }
                    if current == desired {
                        under_way.remove(&name);
                        if desired != self.base && done.insert(name) && done.len() == nodes {
                            sights.last = after;
                        }
                    } else {
                        under_way.insert(name);
                        sights.at_once = sights.at_once.max(under_way.len());
                    }
                }
            }
        }
        None
    }
}
