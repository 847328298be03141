//! What can be seen of a roll-out, and when.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::{StreamExt as _, future, stream};
use kube::{
    ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt as _, watcher},
};
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
    Config(String),
    Pool(Box<MachineConfigPool>),
    Node { name: String, current: String, desired: String },
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

/// Starts to watch.
pub(super) fn start(client: &Client, base: &str) -> Watch {
    let config = watcher::Config::default;
    let configs = Api::<PartialObjectMeta<MachineConfig>>::all(client.clone());
    let configs = watcher(configs, config()).default_backoff().applied_objects();
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let pools = watcher(pools, config()).default_backoff().applied_objects();
    let nodes = Api::<PartialObjectMeta<Node>>::all(client.clone());
    let nodes = watcher(nodes, config()).default_backoff().applied_objects();
    let configs = configs
        .filter_map(|config| future::ready(config.ok().map(|one| Sight::Config(one.name_any()))));
    let pools = pools.filter_map(|pool| {
        let pool = pool.ok().filter(|pool| pool.name_any() == "worker");
        future::ready(pool.map(|pool| Sight::Pool(Box::new(pool))))
    });
    let nodes = nodes.filter_map(|node| future::ready(node.ok().map(|node| sight(&node))));
    let (sender, seen) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let all = [configs.boxed(), pools.boxed(), nodes.boxed()];
        let mut all = pin!(stream::select_all(all));
        while let Some(sight) = all.next().await {
            if sender.send((Instant::now(), sight)).is_err() {
                return;
            }
        }
    });
    // What is there already says nothing of the change, so that it does no harm to see it late.
    Watch { seen, base: base.to_owned(), task }
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
