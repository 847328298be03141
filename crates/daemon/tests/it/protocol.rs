//! Our daemon under the reference's controller: the annotations that each writes, in order.
//!
//! The daemon's side is the table that `mco_testkit::daemons` plays against our controller, so both
//! halves are held to the same protocol.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use mco_testkit::{
    PATIENCE,
    daemons::{IN_PLACE, REBOOT, Script, Step},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::fleet::{Drains, Fleet};

const PREFIX: &str = "machineconfiguration.openshift.io/";

/// Every state of a node, by its annotations.
type States = Vec<BTreeMap<String, String>>;

/// Returns the patches of the reference's controller for a request.
fn answers(request: &str) -> [Value; 2] {
    let closed = request.starts_with("drain-");
    let answer = format!("{PREFIX}lastAppliedDrain");
    [
        json!({"spec": {"unschedulable": closed}}),
        json!({"metadata": {"annotations": {answer: request}}}),
    ]
}

/// Plays the reference's drain controller, and records every state of the node.
async fn control(nodes: Api<Node>, seen: watch::Sender<States>) {
    let changes = watcher(nodes.clone(), watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes.applied_objects());
    while let Some(change) = changes.next().await {
        let Ok(node) = change else { continue };
        let own = node.annotations().iter();
        let own = own.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
        let own: BTreeMap<String, String> =
            own.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let value = |key: &str| own.get(key).cloned().unwrap_or_default();
        let request = value("desiredDrain");
        let is_open = request != value("lastAppliedDrain");
        seen.send_modify(|states| states.push(own));
        if is_open {
            for write in answers(&request) {
                let patch = Patch::Merge(write);
                // A request that was answered twice is answered.
                drop(nodes.patch("worker-0", &PatchParams::default(), &patch).await);
            }
        }
    }
}

/// Returns the annotations of the table, pair by pair.
fn entries(script: Script, config: &str) -> Vec<(String, String)> {
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

/// Returns how far the states of a node follow the table, and annotations that the table lacks.
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
        // One write may bring several entries of the table; their order within it does not matter.
        while let Some(at) = table.get(next).and_then(|word| news.iter().position(|n| n == word)) {
            news.remove(at);
            next += 1;
            // An entry that changes nothing is not observed.
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

/// Returns all states up to the one in which the node is Done with a config.
async fn states_until_done(seen: &mut watch::Receiver<States>, config: &str) -> States {
    let is_done = |states: &States| {
        states.last().is_some_and(|last| {
            let is = |key: &str, value: &str| last.get(key).is_some_and(|found| found == value);
            is("currentConfig", config) && is("state", "Done")
        })
    };
    let states = tokio::time::timeout(PATIENCE, seen.wait_for(is_done)).await;
    states.expect("the watch delivers").expect("the watch runs").clone()
}

async fn update(files: &[(&str, &str)], rest: &Value, script: Script) {
    let mut fleet = Fleet::new(&[], Drains::Ignored).await;
    let (sender, mut seen) = watch::channel(States::new());
    let controller = tokio::spawn(control(fleet.nodes.clone(), sender));
    fleet.start();
    let before = states_until_done(&mut seen, "rendered-worker-1").await.len() - 1;
    fleet.render("rendered-worker-2", files, rest).await;
    fleet.desire("rendered-worker-2").await;
    let states = states_until_done(&mut seen, "rendered-worker-2").await.split_off(before);
    fleet.stop().await;
    controller.abort();
    let table = entries(script, "rendered-worker-2");
    let (reached, foreign) = follow(&states, &table);
    assert_eq!(foreign, [""; 0], "{states:#?}");
    assert_eq!(reached, table.len(), "{:?} is missing: {states:#?}", table.get(reached));
}

// covers: C35, C37, C38, C56
#[tokio::test(flavor = "multi_thread")]
async fn an_update_with_a_reboot_follows_the_references_protocol() {
    update(&[("/etc/foo", "2")], &json!({"kernelArguments": ["nosmt"]}), REBOOT).await;
}

// covers: C38, C92
#[tokio::test(flavor = "multi_thread")]
async fn an_update_in_place_follows_the_references_protocol() {
    update(&[("/etc/containers/policy.json", "1")], &json!({}), IN_PLACE).await;
}
