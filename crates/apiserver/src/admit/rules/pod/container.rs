//! Validation of containers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{items, one_of, probe, resources, security, volume};
use crate::{admit::name, failure::Fault, object};

/// Validates all containers of a pod.
pub(super) fn all(pod: &Value, place: &str, volumes: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    if items(pod, "containers").next().is_none() {
        faults.push(Fault::required(format!("{place}.containers"), ""));
    }
    let grace = pod.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    for list in ["containers", "initContainers"] {
        for (at, container) in items(pod, list) {
            let place = format!("{place}.{list}[{at}]");
            faults.extend(check(container, &place, volumes));
            let is_init = list == "initContainers";
            faults.extend(probe::restart_policy(container, &place).filter(|_| is_init));
            let name = object::text(container, &["name"]);
            if !name.is_empty() && !names.insert(name) {
                faults.push(Fault::duplicate(format!("{place}.name"), name));
            }
            faults.extend(if is_init {
                probe::of_init(container, &place, grace)
            } else {
                probe::all(container, &place, grace)
            });
        }
    }
    faults
}

fn check(container: &Value, place: &str, volumes: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let of = |field| object::text(container, &[field]);
    if of("name").is_empty() {
        faults.push(Fault::required(format!("{place}.name"), ""));
    } else {
        for rule in name::label_faults(of("name")) {
            faults.push(Fault::invalid(format!("{place}.name"), &json!(of("name")), &rule));
        }
    }
    if of("image").is_empty() {
        faults.push(Fault::required(format!("{place}.image"), ""));
    }
    let known = ["File", "FallbackToLogsOnError"];
    let policy = of("terminationMessagePolicy");
    faults.extend(one_of(place, "terminationMessagePolicy", policy, &known));
    faults.extend(ports(container, place));
    faults.extend(environment(container, place));
    faults.extend(mounts(container, place, volumes));
    let known = ["Always", "IfNotPresent", "Never"];
    faults.extend(one_of(place, "imagePullPolicy", of("imagePullPolicy"), &known));
    faults.extend(resources::check(container, place));
    faults.extend(security::of_container(container, place));
    faults
}

fn ports(container: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for (at, port) in items(container, "ports") {
        let place = format!("{place}.ports[{at}]");
        let name = object::text(port, &["name"]);
        if !name.is_empty() {
            let rules = port_name_faults(name);
            for rule in &rules {
                faults.push(Fault::invalid(format!("{place}.name"), &json!(name), rule));
            }
            if rules.is_empty() && !names.insert(name) {
                faults.push(Fault::duplicate(format!("{place}.name"), name));
            }
        }
        for field in ["containerPort", "hostPort"] {
            let number = port.get(field).and_then(Value::as_i64).unwrap_or(0);
            let place = format!("{place}.{field}");
            match number {
                0 if field == "containerPort" => faults.push(Fault::required(place, "")),
                0..=65535 => {}
                _ => {
                    let rule = "must be between 1 and 65535, inclusive";
                    faults.push(Fault::invalid(place, &json!(number), rule));
                }
            }
        }
        let known = ["SCTP", "TCP", "UDP"];
        faults.extend(one_of(&place, "protocol", object::text(port, &["protocol"]), &known));
    }
    faults
}

pub(super) fn port_name_faults(name: &str) -> Vec<&'static str> {
    let mut rules = Vec::new();
    if name.len() > 15 {
        rules.push("must be no more than 15 bytes");
    }
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        rules.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        rules.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        rules.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        rules.push("must not begin or end with a hyphen");
    }
    rules
}

fn environment(container: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, variable) in items(container, "env") {
        let place = format!("{place}.env[{at}]");
        let name = object::text(variable, &["name"]);
        if name.is_empty() {
            faults.push(Fault::required(format!("{place}.name"), ""));
        } else if !name.chars().all(|c| c.is_ascii() && !c.is_ascii_control() && c != '=') {
            let rule = "a valid environment variable name must consist only of printable ASCII \
                characters other than '='";
            faults.push(Fault::invalid(format!("{place}.name"), &json!(name), rule));
        }
        let from = variable.get("valueFrom");
        if from.is_some() && !object::text(variable, &["value"]).is_empty() {
            let rule = "may not be specified when `value` is not empty";
            faults.push(Fault::invalid(format!("{place}.valueFrom"), &json!(""), rule));
        }
    }
    faults
}

fn mounts(container: &Value, place: &str, volumes: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut paths = BTreeSet::new();
    let list = format!("{place}.volumeMounts");
    for (at, mount) in items(container, "volumeMounts") {
        let place = format!("{list}[{at}]");
        let of = |field| object::text(mount, &[field]);
        if of("name").is_empty() {
            faults.push(Fault::required(format!("{place}.name"), ""));
        } else if !volumes.contains(of("name")) {
            faults.push(Fault::not_found(format!("{place}.name"), of("name")));
        }
        if of("mountPath").is_empty() {
            faults.push(Fault::required(format!("{place}.mountPath"), ""));
        } else if !paths.insert(of("mountPath")) {
            let (place, path) = (format!("{place}.mountPath"), json!(of("mountPath")));
            faults.push(Fault::invalid(place, &path, "must be unique"));
        }
        // Compat: these faults do not say which mount they are about.
        for field in ["subPath", "subPathExpr"] {
            faults.extend(volume::relative(of(field), &format!("{list}.{field}")));
        }
        faults.extend(propagation(container, of("mountPropagation"), &list));
    }
    faults
}

fn propagation(container: &Value, mode: &str, place: &str) -> Option<Fault> {
    let known = ["Bidirectional", "HostToContainer", "None"];
    let place = format!("{place}.mountPropagation");
    if !mode.is_empty() && !known.contains(&mode) {
        return Some(Fault::not_supported(place, mode, &known));
    }
    let is_privileged = object::at(container, &["securityContext", "privileged"]);
    let rule = "Bidirectional mount propagation is available only to privileged containers";
    (mode == "Bidirectional" && is_privileged != Some(&json!(true)))
        .then(|| Fault::forbidden(place, rule))
}
