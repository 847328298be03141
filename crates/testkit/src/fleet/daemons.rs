//! Simulated daemons of a whole fleet, run by one task. They respond immediately and do nothing
//! else.
//!
//! The daemons of `crate::daemons` go step by step and read whole nodes, as tests need. These write
//! many nodes at a time and read only annotations, so that the CPU is left to the measured
//! processes.

use std::{collections::HashMap, fmt, pin::pin, sync::Arc};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::daemons::{PREFIX, annotations};

/// The response of a daemon to a new `desiredConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonMode {
    /// One write: the daemon reports the config and Done.
    Instant,
    /// The daemon requests a drain, waits for it, reports the config, requests the uncordon, waits
    /// for it, and reports Done.
    Drain,
}

impl DaemonMode {
    /// Returns the maximum number of requests that the controller may send per node and update.
    pub(super) const fn most_requests(self) -> f64 {
        match self {
            Self::Instant => 2.5,
            Self::Drain => 7.0,
        }
    }
}

impl fmt::Display for DaemonMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instant => "instant",
            Self::Drain => "drain",
        })
    }
}

/// Number of concurrent writes.
const DAEMON_CONCURRENCY: usize = 64;

/// The running daemons. They stop when dropped.
pub(super) struct Daemons {
    _tasks: JoinSet<()>,
}

impl Daemons {
    /// Starts the daemons.
    pub(super) fn start(client: &Client, mode: DaemonMode) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(answer(client.clone(), mode));
        Self { _tasks: tasks }
    }
}

async fn answer(client: Client, mode: DaemonMode) {
    let api = Api::<Node>::all(client.clone());
    let all = Api::<PartialObjectMeta<Node>>::all(client);
    let events = watcher(all, watcher::Config::default());
    let mut events = pin!(events.default_backoff().applied_objects());
    let places = Arc::new(Semaphore::new(DAEMON_CONCURRENCY));
    let mut written: HashMap<String, Vec<(&'static str, String)>> = HashMap::new();
    while let Some(event) = events.next().await {
        let Ok(node) = event else { continue };
        let value = |key: &str| {
            node.annotations()
                .get(&format!("{PREFIX}{key}"))
                .map(String::as_str)
                .unwrap_or_default()
        };
        let Some(next) = next(mode, value) else { continue };
        // The watch also delivers the daemons' own writes.
        if written.insert(node.name_any(), next.clone()).is_some_and(|last| last == next) {
            continue;
        }
        let (api, places, node) = (api.clone(), places.clone(), node.name_any());
        tokio::spawn(async move {
            let Ok(_place) = places.acquire().await else { return };
            let patch = Patch::Merge(annotations(next));
            while api.patch_metadata(&node, &PatchParams::default(), &patch).await.is_err() {
                tokio::task::yield_now().await;
            }
        });
    }
}

/// Returns the daemon's next write, given its annotations.
fn next<'n>(
    mode: DaemonMode,
    value: impl Fn(&str) -> &'n str,
) -> Option<Vec<(&'static str, String)>> {
    let (current, desired) = (value("currentConfig"), value("desiredConfig"));
    let (drain, uncordon) = (format!("drain-{desired}"), format!("uncordon-{desired}"));
    let (asked, applied) = (value("desiredDrain"), value("lastAppliedDrain"));
    let text = |text: &str| text.to_owned();
    let is_there = current == desired;
    match mode {
        DaemonMode::Instant if is_there => None,
        DaemonMode::Instant => {
            Some(vec![("currentConfig", text(desired)), ("state", text("Done"))])
        }
        DaemonMode::Drain if !is_there && asked != drain => {
            Some(vec![("state", text("Working")), ("desiredDrain", drain)])
        }
        DaemonMode::Drain if !is_there && applied == drain => {
            Some(vec![("currentConfig", text(desired)), ("desiredDrain", uncordon)])
        }
        DaemonMode::Drain if is_there && value("state") == "Working" && applied == uncordon => {
            Some(vec![("state", text("Done"))])
        }
        DaemonMode::Drain => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_follows_the_protocol() {
        let steps = [
            // current desired state requested applied, expected write
            ("a a Done uncordon-a uncordon-a", "Drain", ""),
            ("a b Done uncordon-a uncordon-a", "Drain", "state=Working desiredDrain=drain-b"),
            ("a b Working drain-b uncordon-a", "Drain", ""),
            ("a b Working drain-b drain-b", "Drain", "currentConfig=b desiredDrain=uncordon-b"),
            ("b b Working uncordon-b drain-b", "Drain", ""),
            ("b b Working uncordon-b uncordon-b", "Drain", "state=Done"),
            ("a b Done uncordon-a uncordon-a", "Instant", "currentConfig=b state=Done"),
            ("b b Done uncordon-a uncordon-a", "Instant", ""),
        ];
        for (now, mode, expected) in steps {
            let words: Vec<&str> = now.split(' ').collect();
            let keys =
                ["currentConfig", "desiredConfig", "state", "desiredDrain", "lastAppliedDrain"];
            let value = |key: &str| words[keys.iter().position(|known| *known == key).unwrap()];
            let mode = if mode == "Drain" { DaemonMode::Drain } else { DaemonMode::Instant };
            let written = next(mode, value).unwrap_or_default();
            let written: Vec<String> =
                written.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(written.join(" "), expected, "{now}");
        }
    }
}
