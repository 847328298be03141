//! What can be seen of a roll-out, and when.

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

/// When something was seen first, counted from the change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sights {
    pub(super) rendered: Duration,
    pub(super) targeted: Duration,
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) updated: Duration,
    pub(super) at_once: usize,
}

/// One thing that was seen.
enum Sight {
    /// All that was there of a kind before the watch began.
    Listed,
    Config(String),
    Pool(Box<MachineConfigPool>),
    Node {
        name: String,
        current: String,
        desired: String,
    },
}

/// Watches that are under way.
pub(super) struct Watch {
    seen: mpsc::UnboundedReceiver<(Instant, Sight)>,
    base: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How many kinds are watched.
const KINDS: usize = 3;

/// Starts to watch; gives the watch once it has seen all that is there already.
pub(super) async fn start(client: &Client, base: &str) -> Option<Watch> {
    let configs = Api::<PartialObjectMeta<MachineConfig>>::all(client.clone());
    let configs = changes(configs, |config| Some(Sight::Config(config.name_any())));
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let pools = changes(pools, |pool| {
        Some(pool)
            .filter(|pool| pool.name_any() == "worker")
            .map(|pool| Sight::Pool(Box::new(pool)))
    });
    let nodes = Api::<PartialObjectMeta<Node>>::all(client.clone());
    let nodes = changes(nodes, |node| Some(sight(&node)));
    let (sender, mut seen) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let all: [_; KINDS] = [configs.boxed(), pools.boxed(), nodes.boxed()];
        let mut all = pin!(stream::select_all(all));
        while let Some(sight) = all.next().await {
            if sender.send((Instant::now(), sight)).is_err() {
                return;
            }
        }
    });
    // What is there already says nothing of the change.
    let mut listed = 0;
    while listed < KINDS {
        let (_, sight) = seen.recv().await?;
        listed += usize::from(matches!(sight, Sight::Listed));
    }
    Some(Watch { seen, base: base.to_owned(), task })
}

/// The changes of a kind, as far as `see` makes something of them.
fn changes<K>(
    api: Api<K>,
    see: impl Fn(K) -> Option<Sight> + Send,
) -> impl Stream<Item = Sight> + Send
where
    K: Resource<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    events.filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => see(object),
            Ok(Event::InitDone) => Some(Sight::Listed),
            // The watch is taken up again by itself.
            Ok(Event::Init | Event::Delete(_)) | Err(_) => None,
        })
    })
}

fn sight(node: &PartialObjectMeta<Node>) -> Sight {
    let value = |key: &str| {
        let key = format!("machineconfiguration.openshift.io/{key}");
        node.annotations().get(&key).cloned().unwrap_or_default()
    };
    let (current, desired) = (value("currentConfig"), value("desiredConfig"));
    Sight::Node { name: node.name_any(), current, desired }
}

impl Watch {
    /// Looks until the pool says that all nodes have the new config.
    pub(super) async fn see(mut self, nodes: usize, start: Instant) -> Option<Sights> {
        let mut sights = Sights::default();
        let (mut under_way, mut done) = (BTreeSet::new(), BTreeSet::new());
        let mut target = String::new();
        while let Some((at, sight)) = self.seen.recv().await {
            let after = at.saturating_duration_since(start);
            let first = |time: &mut Duration| {
                if time.is_zero() {
                    *time = after;
                }
            };
            match sight {
                // A watch was taken up again.
                Sight::Listed => {}
                Sight::Config(name) => {
                    if name.starts_with("rendered-worker-") && name != self.base {
                        first(&mut sights.rendered);
                    }
                }
                Sight::Pool(pool) => {
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
                Sight::Node { name, current, desired } => {
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
