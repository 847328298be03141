//! The row of a pod: how many of its containers are ready, what they do, and how often they restarted.
//!
//! Compat: kube-apiserver decides on the words that kubectl prints.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    age,
    builtin::{list, or_none},
};
use crate::object::{self, at, text};

/// The state of a pod in one word, with its counts.
#[derive(Debug, Default)]
struct Summary {
    ready: usize,
    state: String,
    restarts: Restarts,
}

/// The restarts of containers.
#[derive(Clone, Copy, Debug, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        let count = container.get("restartCount").and_then(Value::as_i64);
        self.count = self.count.saturating_add(count.unwrap_or(0));
        let ended = text(container, &["lastState", "terminated", "finishedAt"]);
        self.last = self.last.max(ended.parse().ok());
    }

    fn shown(self, now: Timestamp) -> String {
        match self.last.filter(|_| self.count != 0) {
            Some(last) => {
                format!("{} ({} ago)", self.count, age::human(now.as_second() - last.as_second()))
            }
            None => self.count.to_string(),
        }
    }
}

/// Returns the cells of a pod after its name.
pub(super) fn cells(pod: &Value, age: Value, now: Timestamp) -> Vec<Value> {
    let Summary { ready, state, restarts } = summary(pod);
    let all = list(pod, &["spec", "containers"]).len() + sidecars(pod).count();
    let ip = match text(pod, &["status", "podIP"]) {
        "" => list(pod, &["status", "podIPs"]).first().map_or("", |first| text(first, &["ip"])),
        ip => ip,
    };
    vec![
        format!("{ready}/{all}").into(),
        state.into(),
        restarts.shown(now).into(),
        age,
        or_none(ip, "<none>"),
        or_none(text(pod, &["spec", "nodeName"]), "<none>"),
        or_none(text(pod, &["status", "nominatedNodeName"]), "<none>"),
        gates(pod).into(),
    ]
}

/// Returns the conditions of the row of a pod that has ended.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let phase = text(pod, &["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

/// Returns the names of the init containers that run as long as the pod.
fn sidecars(pod: &Value) -> impl Iterator<Item = &str> {
    let all = list(pod, &["spec", "initContainers"]).iter();
    all.filter(|one| text(one, &["restartPolicy"]) == "Always").map(|one| text(one, &["name"]))
}

/// Returns the number of the readiness gates that are met, and of all.
fn gates(pod: &Value) -> String {
    let gates = list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_met = |gate: &&Value| condition(pod, text(gate, &["conditionType"])) == "True";
    format!("{}/{}", gates.iter().filter(is_met).count(), gates.len())
}

/// Returns the status of a condition, empty if there is none.
fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let mut all = list(pod, &["status", "conditions"]).iter();
    all.find(|one| text(one, &["type"]) == kind).map_or("", |one| text(one, &["status"]))
}

fn summary(pod: &Value) -> Summary {
    let mut out = Summary { state: first_state(pod), ..Summary::default() };
    let is_initializing = initialization(pod, &mut out);
    if !is_initializing || condition(pod, "Initialized") == "True" {
        containers(pod, &mut out);
    }
    let phase = text(pod, &["status", "phase"]);
    if object::is_deleting(pod) {
        if text(pod, &["status", "reason"]) == "NodeLost" {
            "Unknown".clone_into(&mut out.state);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut out.state);
        }
    }
    out
}

/// Returns the state of a pod whose containers say nothing.
fn first_state(pod: &Value) -> String {
    const GATED: &str = "SchedulingGated";
    let is_gated = list(pod, &["status", "conditions"])
        .iter()
        .any(|one| text(one, &["type"]) == "PodScheduled" && text(one, &["reason"]) == GATED);
    let reason = text(pod, &["status", "reason"]);
    match reason {
        _ if is_gated => GATED,
        "" => text(pod, &["status", "phase"]),
        reason => reason,
    }
    .to_owned()
}

/// Reads the init containers up to the first one that has not ended. Returns true if there is one. The
/// restarts are those of all of them in this case, else those of the sidecars.
fn initialization(pod: &Value, out: &mut Summary) -> bool {
    let names: HashSet<&str> = sidecars(pod).collect();
    let (mut all, mut of_sidecars) = (Restarts::default(), Restarts::default());
    let mut pending = None;
    for (at, container) in list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
        let is_sidecar = names.contains(text(container, &["name"]));
        all.add(container);
        if is_sidecar {
            of_sidecars.add(container);
        }
        let ended = state(container, "terminated");
        if ended.is_some_and(|ended| number(ended, "exitCode") == 0) {
            continue;
        }
        if is_sidecar && is_true(container, "started") {
            out.ready += usize::from(is_true(container, "ready"));
            continue;
        }
        let waiting = text(container, &["state", "waiting", "reason"]);
        pending = Some(match ended {
            Some(ended) => end_of(ended),
            None if !matches!(waiting, "" | "PodInitializing") => waiting.to_owned(),
            None => format!("{at}/{}", list(pod, &["spec", "initContainers"]).len()),
        });
        break;
    }
    let is_initializing = pending.is_some();
    if let Some(pending) = pending {
        out.state = format!("Init:{pending}");
    }
    let is_waiting = is_initializing && condition(pod, "Initialized") != "True";
    out.restarts = if is_waiting { all } else { of_sidecars };
    is_initializing
}

/// Reads the containers, of which the first one decides.
fn containers(pod: &Value, out: &mut Summary) {
    let mut is_running = false;
    let mut failure = None;
    for container in list(pod, &["status", "containerStatuses"]).iter().rev() {
        out.restarts.add(container);
        let waiting = text(container, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            waiting.clone_into(&mut out.state);
        } else if let Some(ended) = state(container, "terminated") {
            out.state = end_of(ended);
            if number(ended, "exitCode") != 0 {
                failure = Some(out.state.clone());
            }
        } else if is_true(container, "ready") && state(container, "running").is_some() {
            is_running = true;
            out.ready += 1;
        }
    }
    if out.state != "Completed" {
        return;
    }
    let is_ready = condition(pod, "Ready") == "True";
    out.state = match failure {
        _ if is_running && is_ready => "Running".to_owned(),
        Some(failure) => failure,
        None if is_running => "NotReady".to_owned(),
        None => return,
    };
}

/// Returns how a container ended.
fn end_of(ended: &Value) -> String {
    match (text(ended, &["reason"]), number(ended, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(ended, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn state<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    at(container, &["state", name]).filter(|state| state.is_object())
}

fn number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn is_true(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
mod tests;
