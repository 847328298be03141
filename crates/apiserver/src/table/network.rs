//! The cells of Services and endpoints.

use serde_json::Value;

use super::builtin::{list, pairs};
use crate::object::{at, text};

/// Number of addresses or ports that a cell shows.
const MAX_SHOWN: usize = 3;

fn joined(values: &[Value]) -> String {
    values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// Returns the cells of a Service around its age: before and after.
pub(super) fn service(service: &Value) -> (Vec<Value>, Vec<Value>) {
    let kind = text(service, &["spec", "type"]);
    let address = list(service, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
    let ports: Vec<String> = list(service, &["spec", "ports"]).iter().map(port).collect();
    let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
    let before = vec![
        kind.into(),
        address.unwrap_or("<none>").into(),
        external(service, kind).into(),
        ports.into(),
    ];
    (before, vec![pairs(at(service, &["spec", "selector"])).into()])
}

fn port(port: &Value) -> String {
    let number = |field| port.get(field).and_then(Value::as_i64).unwrap_or(0);
    let protocol = text(port, &["protocol"]);
    match number("nodePort") {
        0 => format!("{}/{protocol}", number("port")),
        node => format!("{}:{node}/{protocol}", number("port")),
    }
}

fn external(service: &Value, kind: &str) -> String {
    let mut shown: Vec<String> = Vec::new();
    match kind {
        "ExternalName" => return text(service, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            for ingress in list(service, &["status", "loadBalancer", "ingress"]) {
                let ip = text(ingress, &["ip"]);
                let host = text(ingress, &["hostname"]);
                let address = if ip.is_empty() { host } else { ip };
                shown.extend((!address.is_empty()).then(|| address.to_owned()));
            }
            shown.sort();
            shown.dedup();
        }
        "ClusterIP" | "NodePort" => {}
        _ => return "<unknown>".to_owned(),
    }
    let given = joined(list(service, &["spec", "externalIPs"]));
    if !given.is_empty() {
        shown.push(given);
    }
    match (shown.is_empty(), kind) {
        (false, _) => shown.join(","),
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, _) => "<none>".to_owned(),
    }
}

/// Returns the cell with the addresses of Endpoints.
pub(super) fn endpoints(endpoints: &Value) -> String {
    let subsets = list(endpoints, &["subsets"]);
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ports = list(subset, &["ports"]);
        let addresses = list(subset, &["addresses"]);
        let ips = || addresses.iter().map(|one| text(one, &["ip"]));
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            let with_port = |ip: &str| {
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            };
            all.extend(ips().map(with_port));
        }
    }
    first_of(&all)
}

fn first_of(all: &[String]) -> String {
    let shown = all.get(..MAX_SHOWN).unwrap_or(all).join(",");
    match all.len().checked_sub(MAX_SHOWN) {
        Some(more) if more > 0 => format!("{shown} + {more} more..."),
        _ => shown,
    }
}

/// Returns the cells of an EndpointSlice before its age.
pub(super) fn slice(slice: &Value) -> Vec<Value> {
    let or_unset = |text: String| if text.is_empty() { "<unset>".to_owned() } else { text };
    let port = |port: &Value| match port.get("port").and_then(Value::as_i64) {
        Some(number) => number.to_string(),
        None => port.get("name").and_then(Value::as_str).unwrap_or("*").to_owned(),
    };
    let ports: Vec<String> = list(slice, &["ports"]).iter().map(port).collect();
    let endpoints = list(slice, &["endpoints"]).iter();
    let addresses = endpoints.flat_map(|one| list(one, &["addresses"]));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    vec![
        text(slice, &["addressType"]).into(),
        or_unset(first_of(&ports)).into(),
        or_unset(first_of(&addresses)).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_lists_are_cut() {
        let addresses: Vec<Value> =
            (1..6).map(|last| json!({"ip": format!("10.0.0.{last}")})).collect();
        let found = json!({"subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
        let expected = "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...";
        assert_eq!(endpoints(&found), expected);
        assert_eq!(endpoints(&json!({})), "<none>");
    }

    #[test]
    fn a_service_shows_its_ports() {
        let found = json!({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 80, "nodePort": 30001, "protocol": "TCP"}]}});
        let (cells, _) = service(&found);
        assert_eq!(cells, ["NodePort", "10.0.0.1", "<none>", "80:30001/TCP"]);
    }
}
