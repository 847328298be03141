//! Small objects for tests.

use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfigSpec, RawConfig, annotation::DaemonState, label,
};

use crate::rollout::{NodeView, Readiness};

/// A config that says nothing.
pub(crate) fn machine_config(name: &str, role: &str) -> MachineConfig {
    let mut config = MachineConfig::new(name, MachineConfigSpec::default());
    config.metadata.labels = Some([(label::ROLE.to_owned(), role.to_owned())].into());
    config
}

/// A config with this Ignition config.
pub(crate) fn ignition(name: &str, role: &str, json: &str) -> MachineConfig {
    let mut config = machine_config(name, role);
    config.spec.config = Some(RawConfig::from_json(json.to_owned()).expect("JSON"));
    config
}

/// A pool with this selector, in JSON.
pub(crate) fn pool(name: &str, selector: &str) -> MachineConfigPool {
    let mut pool = MachineConfigPool::new(name, mco_api::MachineConfigPoolSpec::default());
    pool.spec.machine_config_selector = serde_json::from_str(selector).expect("a selector");
    pool
}

/// Nodes in a small notation: `name=state[+cordoned|+down][@zone][/age]`.
///
/// States: `old` and `done` run the old and the new config, `working` is on its way to the new one,
/// `failed` failed it, `failed-other` failed some other, `silent` has said nothing yet.
pub(crate) fn nodes(text: &str) -> Vec<NodeView> {
    text.split_whitespace().map(node).collect()
}

fn node(word: &str) -> NodeView {
    let (word, age) = word.split_once('/').unwrap_or((word, "0"));
    let (word, zone) = match word.split_once('@') {
        Some((word, zone)) => (word, Some(zone.to_owned())),
        None => (word, None),
    };
    let (word, trouble) = word.split_once('+').unwrap_or((word, ""));
    let (name, state) = word.split_once('=').expect("name=state");
    let (current, desired, state) = match state {
        "old" => ("old", "old", Some(DaemonState::Done)),
        "done" => ("new", "new", Some(DaemonState::Done)),
        "working" => ("old", "new", Some(DaemonState::Working)),
        "failed" => ("old", "new", Some(DaemonState::Degraded)),
        "failed-other" => ("old", "bad", Some(DaemonState::Degraded)),
        "silent" => ("", "", None),
        other => panic!("no such state: {other}"),
    };
    let readiness = match trouble {
        "" => Readiness::Ready,
        "cordoned" => Readiness::Not(format!("node {name} is reporting Unschedulable")),
        "down" => Readiness::Not(format!("node {name} is reporting NotReady=False")),
        other => panic!("no such trouble: {other}"),
    };
    NodeView {
        name: name.to_owned(),
        current: current.to_owned(),
        desired: desired.to_owned(),
        current_image: None,
        desired_image: None,
        reason: if desired == current { String::new() } else { format!("{name} is broken") },
        state,
        readiness,
        zone,
        created: serde_json::from_str(&format!("\"2026-01-0{}T00:00:00Z\"", digit(age))).ok(),
    }
}

/// Days of a month start at one.
fn digit(age: &str) -> u32 {
    age.parse::<u32>().expect("a digit") + 1
}
