//! Builders of small objects for tests.

use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfigSpec, RawConfig, annotation::DaemonState, label,
};

use crate::rollout::{Cordon, NodeView, Readiness, taint::UpdateTaint};

/// Builds a MachineConfig with an empty spec.
pub(crate) fn machine_config(name: &str, role: &str) -> MachineConfig {
    let mut config = MachineConfig::new(name, MachineConfigSpec::default());
    config.metadata.labels = Some([(label::ROLE.to_owned(), role.to_owned())].into());
    config
}

/// Builds a MachineConfig with this Ignition config.
pub(crate) fn ignition(name: &str, role: &str, json: &str) -> MachineConfig {
    let mut config = machine_config(name, role);
    config.spec.config = Some(RawConfig::from_json(json.to_owned()).expect("valid JSON"));
    config
}

/// Builds a pool with this selector, given as JSON.
pub(crate) fn pool(name: &str, selector: &str) -> MachineConfigPool {
    let mut pool = MachineConfigPool::new(name, mco_api::MachineConfigPoolSpec::default());
    pool.spec.machine_config_selector = serde_json::from_str(selector).expect("valid selector");
    pool
}

/// Builds a config called `name` with the given parts, one per word.
///
/// `/path=text` is a file, `/path=text:600` one with a mode, `a.service=text` an enabled unit,
/// `a.service` one without contents, `a.service/b.conf=text` a drop-in, `karg:x` a kernel argument,
/// `os:x` the image, `kernel:x` the kernel, `ext:x` an extension, `key:x` an SSH key, `fips`.
pub(crate) fn machine(name: &str, parts: &str) -> crate::machine::Machine {
    use mco_ignition::config::{Dropin, File, Unit, User};

    let mut machine = crate::machine::Machine::blank();
    machine.name = name.to_owned();
    let config = &mut machine.config;
    for part in parts.split_whitespace() {
        let (left, right) = part.split_once('=').unwrap_or((part, ""));
        let unit = Unit { name: left.to_owned(), ..Unit::default() };
        if left.starts_with('/') {
            let (text, mode) = right.split_once(':').unwrap_or((right, "644"));
            let mut file = File { path: left.to_owned(), ..File::default() };
            file.contents.source = Some(format!("data:,{text}"));
            file.mode = Some(i64::from_str_radix(mode, 8).expect("octal"));
            config.storage.files.push(file);
        } else if let Some((unit, dropin)) = left.split_once('/') {
            let dropin = Dropin { name: dropin.to_owned(), contents: Some(right.to_owned()) };
            let unit = Unit { name: unit.to_owned(), dropins: vec![dropin], ..Unit::default() };
            config.systemd.units.push(unit);
        } else if let Some((what, value)) = part.split_once(':') {
            match what {
                "karg" => machine.spec.kernel_arguments.push(value.to_owned()),
                "os" => value.clone_into(&mut machine.spec.os_image_url),
                "kernel" => value.clone_into(&mut machine.spec.kernel_type),
                "ext" => machine.spec.extensions.push(value.to_owned()),
                "key" => config.passwd.users.push(User {
                    name: "core".to_owned(),
                    ssh_authorized_keys: vec![value.to_owned()],
                    ..User::default()
                }),
                other => panic!("no such part: {other}"),
            }
        } else if part == "fips" {
            machine.spec.fips = true;
        } else if right.is_empty() {
            config.systemd.units.push(unit);
        } else {
            let contents = Some(right.to_owned());
            config.systemd.units.push(Unit { contents, enabled: Some(true), ..unit });
        }
    }
    machine
}

/// Builds nodes from a small notation: `name=state[+cordoned|+drained|+down|+lost][@zone][/age]`.
/// `cordoned` is a cordon by the user, `drained` a cordon by the controller.
///
/// States: `old` and `done` run the old and the new config, `working` updates to the new one,
/// `failed` failed to apply it, `failed-other` failed to apply a third config, `working-other`
/// updates to that one, `drifted` and `faulty` run the old and the new config and are degraded,
/// `silent` has not reported.
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
        "working-other" => ("old", "bad", Some(DaemonState::Working)),
        "drifted" => ("old", "old", Some(DaemonState::Degraded)),
        "faulty" => ("new", "new", Some(DaemonState::Degraded)),
        "silent" => ("", "", None),
        other => panic!("no such state: {other}"),
    };
    let readiness = match trouble {
        "" => Readiness::Ready,
        "cordoned" | "drained" => Readiness::Not(format!("node {name} is reporting Unschedulable")),
        "lost" => Readiness::Not(format!("node {name} is reporting NotReady=Unknown")),
        "down" => Readiness::Not(format!("node {name} is reporting NotReady=False")),
        other => panic!("no such trouble: {other}"),
    };
    let cordon = match trouble {
        "cordoned" => Cordon::User,
        "drained" => Cordon::Controller,
        _ => Cordon::Open,
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
        cordon,
        zone,
        created: serde_json::from_str(&format!("\"2026-01-0{}T00:00:00Z\"", digit(age))).ok(),
        first_config: None,
        pool_labels: None,
        taint: UpdateTaint::Absent,
    }
}

/// Converts an age to a day of the month, which starts at one.
fn digit(age: &str) -> u32 {
    age.parse::<u32>().expect("a digit") + 1
}
