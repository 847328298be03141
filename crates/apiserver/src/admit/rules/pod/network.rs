//! Validation of the network of a pod: names, DNS, and ports of the node.

use std::{collections::HashSet, net::IpAddr};

use serde_json::{Value, json};

use super::items;
use crate::{admit::name, failure::Fault, object};

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;

/// Validates the ports of containers in the network of the node.
pub(super) fn host_ports(pod: &Value, place: &str) -> Vec<Fault> {
    if pod.get("hostNetwork") != Some(&json!(true)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (at, container) in items(pod, "containers") {
        for (number, port) in items(container, "ports") {
            let of = |field| port.get(field).and_then(Value::as_i64).unwrap_or(0);
            if of("hostPort") != 0 && of("hostPort") != of("containerPort") {
                let rule = "must match `containerPort` when `hostNetwork` is true";
                let place = format!("{place}.containers[{at}].ports[{number}].hostPort");
                faults.push(Fault::invalid(place, &json!(of("hostPort")), rule));
            }
        }
    }
    faults
}

/// Validates the DNS settings of a pod.
pub(super) fn dns(pod: &Value, place: &str) -> Vec<Fault> {
    let place = format!("{place}.dnsConfig");
    let config = pod.get("dnsConfig");
    let servers = format!("{place}.nameservers");
    if object::text(pod, &["dnsPolicy"]) == "None" {
        let Some(config) = config else {
            let rule = "must provide `dnsConfig` when `dnsPolicy` is None";
            return vec![Fault::required(place, rule)];
        };
        if items(config, "nameservers").next().is_none() {
            let rule = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return vec![Fault::required(servers, rule)];
        }
    }
    let Some(config) = config else { return Vec::new() };
    let mut faults = Vec::new();
    let mut limit = |field: &str, most: usize, what: &str| {
        if let Some(list) = config.get(field).filter(|_| items(config, field).count() > most) {
            let rule = format!("must not have more than {most} {what}");
            faults.push(Fault::invalid(format!("{place}.{field}"), list, &rule));
        }
    };
    limit("nameservers", MAX_SERVERS, "nameservers");
    limit("searches", MAX_SEARCHES, "search paths");
    for (at, server) in items(config, "nameservers") {
        faults.extend(address(server, format!("{servers}[{at}]")));
    }
    for (at, option) in items(config, "options") {
        if object::text(option, &["name"]).is_empty() {
            faults.push(Fault::required(format!("{place}.options[{at}]"), "must not be empty"));
        }
    }
    faults
}

/// Validates the host name and the subdomain of a pod.
pub(super) fn names(pod: &Value, place: &str) -> Vec<Fault> {
    let fields = ["hostname", "subdomain"].into_iter();
    let given = fields.map(|field| (field, object::text(pod, &[field])));
    given
        .filter(|(_, name)| !name.is_empty())
        .flat_map(|(field, name)| {
            let rules = name::label_faults(name).into_iter();
            rules.map(move |rule| Fault::invalid(format!("{place}.{field}"), &json!(name), &rule))
        })
        .collect()
}

/// Validates the entries of a pod's file of hosts.
pub(super) fn aliases(pod: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, alias) in items(pod, "hostAliases") {
        let place = format!("{place}.hostAliases[{at}]");
        let ip = json!(object::text(alias, &["ip"]));
        faults.extend(address(&ip, format!("{place}.ip")));
        for (number, host) in items(alias, "hostnames") {
            for rule in name::subdomain_faults(host.as_str().unwrap_or("")) {
                let place = format!("{place}.hostnames[{number}]");
                faults.push(Fault::invalid(place, host, &rule));
            }
        }
    }
    faults
}

/// Validates the conditions and the gates that a pod waits for.
pub(super) fn gates(pod: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (list, field) in [("readinessGates", "conditionType"), ("schedulingGates", "name")] {
        let mut seen = HashSet::new();
        for (at, gate) in items(pod, list) {
            let name = object::text(gate, &[field]);
            let place = match list {
                "readinessGates" => format!("{place}.{list}[{at}].{field}"),
                _ => format!("{place}.{list}[{at}]"),
            };
            for rule in name::qualified_faults(name) {
                faults.push(Fault::invalid(place.clone(), &json!(name), &rule));
            }
            if !seen.insert(name) && list == "schedulingGates" {
                faults.push(Fault::duplicate(place, name));
            }
        }
    }
    faults
}

fn address(value: &Value, place: String) -> Option<Fault> {
    let is_address = value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok());
    let rule = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    (!is_address).then(|| Fault::invalid(place, value, rule))
}
