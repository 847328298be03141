//! Validation of Endpoints and EndpointSlices.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{address, items, unchanged};
use crate::{admit::name, failure::Fault, object};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

/// Maximum number of addresses of an endpoint.
const MAX_ADDRESSES: usize = 100;

/// Validates Endpoints.
pub(super) fn endpoints(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    if old.is_some_and(|old| old.get("subsets") == new.get("subsets")) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (at, subset) in items(new, "subsets") {
        let place = format!("subsets[{at}]");
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items(subset, list).next().is_none()) {
            let rule = "must specify `addresses` or `notReadyAddresses`";
            faults.push(Fault::required(place.clone(), rule));
        }
        for list in lists {
            for (at, one) in items(subset, list) {
                faults.extend(one_address(one, &format!("{place}.{list}[{at}]")));
            }
        }
        let is_many = items(subset, "ports").count() > 1;
        for (at, port) in items(subset, "ports") {
            faults.extend(one_port(port, &format!("{place}.ports[{at}]"), is_many));
        }
    }
    faults
}

fn one_address(one: &Value, place: &str) -> Vec<Fault> {
    let ip = object::text(one, &["ip"]);
    let mut faults = address::ip(&format!("{place}.ip"), ip);
    let hostname = object::text(one, &["hostname"]);
    if !hostname.is_empty() {
        for rule in name::label_faults(hostname) {
            faults.push(Fault::invalid(format!("{place}.hostname"), &json!(hostname), &rule));
        }
    }
    faults.extend(node(one, place));
    faults.extend(address::endpoint(&format!("{place}.ip"), ip));
    faults
}

fn node(one: &Value, place: &str) -> Vec<Fault> {
    let Some(node) = one.get("nodeName").and_then(Value::as_str) else { return Vec::new() };
    let fault = |rule: &String| Fault::invalid(format!("{place}.nodeName"), &json!(node), rule);
    name::subdomain_faults(node).iter().map(fault).collect()
}

fn one_port(port: &Value, place: &str, is_named: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let name = object::text(port, &["name"]);
    if name.is_empty() {
        faults.extend(is_named.then(|| Fault::required(format!("{place}.name"), "")));
    } else {
        faults.extend(label(name, &format!("{place}.name")));
    }
    let zero = json!(0);
    faults.extend(address::port(&format!("{place}.port"), port.get("port").unwrap_or(&zero)));
    faults.extend(protocol(port, place));
    faults
}

fn label(text: &str, place: &str) -> Vec<Fault> {
    let fault = |rule: &String| Fault::invalid(place, &json!(text), rule);
    name::label_faults(text).iter().map(fault).collect()
}

/// Validates the protocol and the application protocol of a port.
fn protocol(port: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let protocol = object::text(port, &["protocol"]);
    if !PROTOCOLS.contains(&protocol) {
        faults.push(Fault::not_supported(format!("{place}.protocol"), protocol, &PROTOCOLS));
    }
    if let Some(application) = port.get("appProtocol").and_then(Value::as_str) {
        for rule in name::qualified_faults(application) {
            let place = format!("{place}.appProtocol");
            faults.push(Fault::invalid(place, &json!(application), &rule));
        }
    }
    faults
}

/// Validates an EndpointSlice.
pub(super) fn slice(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let kind = object::text(new, &["addressType"]);
    if kind.is_empty() {
        faults.push(Fault::required("addressType", ""));
    } else if !ADDRESS_TYPES.contains(&kind) {
        faults.push(Fault::not_supported("addressType", kind, &ADDRESS_TYPES));
    }
    let mut names = BTreeSet::new();
    for (at, port) in items(new, "ports") {
        let place = format!("ports[{at}]");
        let name = object::text(port, &["name"]);
        if !name.is_empty() {
            faults.extend(label(name, &format!("{place}.name")));
        }
        if !names.insert(name) {
            faults.push(Fault::duplicate(format!("{place}.name"), name));
        }
        faults.extend(protocol(port, &place));
    }
    if old.is_none_or(|old| old.get("endpoints") != new.get("endpoints")) {
        for (at, endpoint) in items(new, "endpoints") {
            faults.extend(one_endpoint(endpoint, kind, &format!("endpoints[{at}]")));
        }
    }
    faults.extend(old.and_then(|old| unchanged(&["addressType"], new, old)));
    faults
}

fn one_endpoint(endpoint: &Value, kind: &str, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let list = format!("{place}.addresses");
    let count = items(endpoint, "addresses").count();
    if count == 0 {
        faults.push(Fault::required(list.clone(), "must contain at least 1 address"));
    } else if count > MAX_ADDRESSES {
        faults.push(Fault::too_many(list.clone(), count, MAX_ADDRESSES));
    }
    for (at, text) in items(endpoint, "addresses") {
        let (place, text) = (format!("{list}[{at}]"), text.as_str().unwrap_or(""));
        match kind {
            "FQDN" => faults.extend(domain(text, place)),
            "IPv4" | "IPv6" => {
                let wrong = address::ip(&place, text);
                if wrong.is_empty() {
                    if address::is_v6(text) != (kind == "IPv6") {
                        let rule = format!("must be an {kind} address");
                        faults.push(Fault::invalid(list.clone(), &json!(text), &rule));
                    }
                    faults.extend(address::endpoint(&place, text));
                }
                faults.extend(wrong);
            }
            _ => {}
        }
    }
    faults.extend(node(endpoint, place));
    if let Some(hostname) = endpoint.get("hostname").and_then(Value::as_str) {
        faults.extend(label(hostname, &format!("{place}.hostname")));
    }
    faults
}

fn domain(text: &str, place: String) -> Option<Fault> {
    if text.is_empty() {
        return Some(Fault::required(place, ""));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let rules = name::subdomain_faults(text);
    if !rules.is_empty() {
        return Some(Fault::invalid(place, &json!(text), &rules.join(",")));
    }
    let rule = "should be a domain with at least two segments separated by dots";
    (!text.contains('.')).then(|| Fault::invalid(place, &json!(text), rule))
}
