//! Our daemon under the reference's controller: what each writes on the node, in which order.
//!
//! The daemon's side is the table that `mco_testkit::daemons` plays against our controller, so both
//! halves are held to the same words.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use mco_testkit::daemons::{IN_PLACE, REBOOT, Script, Step};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::fleet::{Drains, Fleet};

const PREFIX: &str = "machineconfiguration.openshift.io/";

/// What the reference's controller does with a request, write by write.
fn answers(request: &str) -> [Value; 2] {
    let closed = request.starts_with("drain-");
    let answer = format!("{PREFIX}lastAppliedDrain");
    [
        json!({"spec": {"unschedulable": closed}}),
        json!({"metadata": {"annotations": {answer: request}}}),
    ]
}

/// Plays the reference's drain controller, and keeps every state of the node.
async fn control(nodes: Api<Node>, seen: Arc<Mutex<Vec<BTreeMap<String, String>>>>) {
    let changes = watcher(nodes.clone(), watcher::Config::default()).applied_objects();
    let mut changes = std::pin::pin!(changes);
    while let Ok(Some(node)) = changes.try_next().await {
        let own = node.annotations().iter();
        let own = own.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
        let own: BTreeMap<String, String> =
            own.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let value = |key: &str| own.get(key).cloned().unwrap_or_default();
        let request = value("desiredDrain");
        let is_open = request != value("lastAppliedDrain");
        seen.lock().await.push(own);
        if is_open {
            for write in answers(&request) {
                let patch = Patch::Merge(write);
                // A request that was answered twice is answered.
                drop(nodes.patch("worker-0", &PatchParams::default(), &patch).await);
            }
        }
    }
}

/// What the table has a daemon write, pair by pair.
fn words(script: Script, config: &str) -> Vec<(String, String)> {
    let mut words = Vec::new();
    for step in script {
        match step {
            Step::Working => words.push(("state".to_owned(), "Working".to_owned())),
            Step::Write(pairs) => words.extend(
                pairs.iter().map(|(key, text)| (key.to_string(), text.replace("{config}", config))),
            ),
            Step::Drained => {}
        }
    }
    words
}

/// Says how far the states of a node follow the table, and what they say that it does not.
fn follow(states: &[BTreeMap<String, String>], table: &[(String, String)]) -> (usize, Vec<String>) {
    let (mut next, mut foreign, mut before) = (0, Vec::new(), states[0].clone());
    for state in &states[1..] {
        let changed = |(key, value): &(&String, &String)| before.get(*key) != Some(*value);
        let keys: Vec<&str> = table.iter().map(|(key, _)| key.as_str()).collect();
        let mut news: Vec<(String, String)> = state
            .iter()
            .filter(|pair| keys.contains(&pair.0.as_str()) && changed(pair))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        // One write may bring several words of the table; their order within it is nobody's.
        while let Some(at) = table.get(next).and_then(|word| news.iter().position(|n| n == word)) {
            news.remove(at);
            next += 1;
            // A word that changes nothing is not seen.
            while table.get(next).is_some_and(|(key, value)| {
                state.get(key).unwrap_or(&String::new()) == value && news.is_empty()
            }) {
                next += 1;
            }
        }
        foreign.extend(news.into_iter().map(|(key, value)| format!("{key}={value}")));
        before.clone_from(state);
    }
    (next, foreign)
}

async fn update(files: &[(&str, &str)], rest: &Value, script: Script) {
    let mut fleet = Fleet::new(&[], Drains::Ignored).await;
    let seen: Arc<Mutex<Vec<BTreeMap<String, String>>>> = Arc::default();
    let controller = tokio::spawn(control(fleet.nodes.clone(), seen.clone()));
    fleet.start();
    fleet.wait("currentConfig=rendered-worker-1, state=Done").await;
    fleet.render("rendered-worker-2", files, rest).await;
    let before = {
        let mut seen = seen.lock().await;
        let last = seen.last().cloned().unwrap_or_default();
        seen.clear();
        last
    };
    fleet.desire("rendered-worker-2").await;
    fleet.wait("currentConfig=rendered-worker-2, state=Done").await;
    fleet.stop().await;
    // The controller's own watch may be a little behind.
    let complete = async {
        loop {
            let done = seen.lock().await.last().is_some_and(|last| {
                last.get("currentConfig").map(String::as_str) == Some("rendered-worker-2")
            });
            if done {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), complete).await.expect("the watch tells");
    controller.abort();
    let states: Vec<_> = [before].into_iter().chain(seen.lock().await.clone()).collect();
    let table = words(script, "rendered-worker-2");
    let (reached, foreign) = follow(&states, &table);
    assert_eq!(foreign, [""; 0], "{states:#?}");
    assert_eq!(reached, table.len(), "{:?} did not come: {states:#?}", table.get(reached));
}

// covers: C35, C37, C38, C56
#[tokio::test(flavor = "multi_thread")]
async fn an_update_with_a_reboot_goes_by_the_reference_s_words() {
    update(&[("/etc/foo", "2")], &json!({"kernelArguments": ["nosmt"]}), REBOOT).await;
}

// covers: C38, C92
#[tokio::test(flavor = "multi_thread")]
async fn an_update_in_place_goes_by_the_reference_s_words() {
    update(&[("/etc/containers/policy.json", "1")], &json!({}), IN_PLACE).await;
}
