//! The daemons of a whole fleet, played by one task: they answer at once and do nothing else.
//!
//! Those of `crate::daemons` go step by step and look at whole nodes, as tests need it; these write
//! many at a time and see annotations only, so that the machine is left to what is measured.

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

/// How a daemon answers a new `desiredConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// With one write: it has the config and is done.
    Instant,
    /// It asks for a drain, waits for it, has the config and asks for the uncordon, waits for it, and
    /// is done.
    Drain,
}

impl Manner {
    /// How many requests of the controller an update costs at most, for each node.
    pub(super) const fn most_requests(self) -> f64 {
        match self {
            Self::Instant => 2.5,
            Self::Drain => 7.0,
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instant => "instant",
            Self::Drain => "drain",
        })
    }
}

/// How many of them write at a time.
const WRITES: usize = 64;

/// They stop when this goes out of scope.
pub(super) struct Daemons {
    _tasks: JoinSet<()>,
}

impl Daemons {
    /// Starts to answer.
    pub(super) fn start(client: &Client, manner: Manner) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(answer(client.clone(), manner));
        Self { _tasks: tasks }
    }
}

async fn answer(client: Client, manner: Manner) {
    let api = Api::<Node>::all(client.clone());
    let all = Api::<PartialObjectMeta<Node>>::all(client);
    let events = watcher(all, watcher::Config::default());
    let mut events = pin!(events.default_backoff().applied_objects());
    let places = Arc::new(Semaphore::new(WRITES));
    let mut said: HashMap<String, Vec<(&'static str, String)>> = HashMap::new();
    while let Some(event) = events.next().await {
        let Ok(node) = event else { continue };
        let value = |key: &str| {
            node.annotations()
                .get(&format!("{PREFIX}{key}"))
                .map(String::as_str)
                .unwrap_or_default()
        };
        let Some(next) = next(manner, value) else { continue };
        // The watch tells of our own writes as well.
        if said.insert(node.name_any(), next.clone()).is_some_and(|last| last == next) {
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

/// What a daemon writes next, given its annotations.
fn next<'n>(
    manner: Manner,
    value: impl Fn(&str) -> &'n str,
) -> Option<Vec<(&'static str, String)>> {
    let (current, desired) = (value("currentConfig"), value("desiredConfig"));
    let (drain, uncordon) = (format!("drain-{desired}"), format!("uncordon-{desired}"));
    let (asked, applied) = (value("desiredDrain"), value("lastAppliedDrain"));
    let text = |text: &str| text.to_owned();
    let is_there = current == desired;
    match manner {
        Manner::Instant if is_there => None,
        Manner::Instant => Some(vec![("currentConfig", text(desired)), ("state", text("Done"))]),
        Manner::Drain if !is_there && asked != drain => {
            Some(vec![("state", text("Working")), ("desiredDrain", drain)])
        }
        Manner::Drain if !is_there && applied == drain => {
            Some(vec![("currentConfig", text(desired)), ("desiredDrain", uncordon)])
        }
        Manner::Drain if is_there && value("state") == "Working" && applied == uncordon => {
            Some(vec![("state", text("Done"))])
        }
        Manner::Drain => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_goes_hand_in_hand_with_the_controller() {
        let steps = [
            // current desired state asked applied, what is written
            ("a a Done uncordon-a uncordon-a", "Drain", ""),
            ("a b Done uncordon-a uncordon-a", "Drain", "state=Working desiredDrain=drain-b"),
            ("a b Working drain-b uncordon-a", "Drain", ""),
            ("a b Working drain-b drain-b", "Drain", "currentConfig=b desiredDrain=uncordon-b"),
            ("b b Working uncordon-b drain-b", "Drain", ""),
            ("b b Working uncordon-b uncordon-b", "Drain", "state=Done"),
            ("a b Done uncordon-a uncordon-a", "Instant", "currentConfig=b state=Done"),
            ("b b Done uncordon-a uncordon-a", "Instant", ""),
        ];
        for (now, manner, expected) in steps {
            let words: Vec<&str> = now.split(' ').collect();
            let keys =
                ["currentConfig", "desiredConfig", "state", "desiredDrain", "lastAppliedDrain"];
            let value = |key: &str| words[keys.iter().position(|known| *known == key).unwrap()];
            let manner = if manner == "Drain" { Manner::Drain } else { Manner::Instant };
            let written = next(manner, value).unwrap_or_default();
            let written: Vec<String> =
                written.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(written.join(" "), expected, "{now}");
        }
    }
}
