//! Defaults of Services and endpoints, and the addresses of Services.

use serde_json::{Map, Value, json};

use super::put;
use crate::object;

/// Seconds that a client keeps its endpoint by default: three hours.
const AFFINITY_SECONDS: i64 = 10_800;

/// First port of the range of node ports, and the number of ports in it.
const NODE_PORTS: (u64, u64) = (30_000, 2_768);

/// Fills in the defaults of a Service.
pub(super) fn fill(map: &mut Map<String, Value>) {
    let spec = object::map_mut(map, "spec");
    put(spec, "sessionAffinity", json!("None"));
    match word(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let config = object::map_mut(spec, "sessionAffinityConfig");
            put(object::map_mut(config, "clientIP"), "timeoutSeconds", json!(AFFINITY_SECONDS));
        }
        _ => {}
    }
    put(spec, "type", json!("ClusterIP"));
    for port in ports(spec) {
        put(port, "protocol", json!("TCP"));
        let number = port.get("port").cloned().unwrap_or_else(|| json!(0));
        if matches!(port.get("targetPort"), Some(Value::Number(target)) if target.as_i64() == Some(0))
        {
            port.remove("targetPort");
        }
        put(port, "targetPort", number);
    }
    if is_external(spec) {
        put(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(word(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer") {
        put(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if word(spec, "type") == "LoadBalancer" {
        put(spec, "allocateLoadBalancerNodePorts", json!(true));
        fill_status(map);
    }
}

/// Fills in how the addresses of a load balancer are used.
fn fill_status(map: &mut Map<String, Value>) {
    let status = map.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
    let list = status.and_then(|status| status.get_mut("ingress")).and_then(Value::as_array_mut);
    for one in list.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !is_empty(one, "ip") {
            put(one, "ipMode", json!("VIP"));
        }
    }
}

fn word<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or("")
}

fn ports(spec: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let list = spec.get_mut("ports").and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn is_empty(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_none_or(|value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    })
}

/// Returns true if clients outside the cluster reach the Service.
fn is_external(spec: &Map<String, Value>) -> bool {
    matches!(word(spec, "type"), "LoadBalancer" | "NodePort")
        || (word(spec, "type") == "ClusterIP" && !is_empty(spec, "externalIPs"))
}

/// Gives a Service its address, its IP families and its node ports. They follow from the UID, so
/// that the choice needs no other state.
pub(super) fn allocate(service: &mut Value) {
    let uid = object::meta(service, "uid").to_owned();
    let spec = object::map_mut(object::map_of(service), "spec");
    if !is_empty(spec, "clusterIP") && is_empty(spec, "clusterIPs") {
        let address = word(spec, "clusterIP").to_owned();
        spec.insert("clusterIPs".into(), json!([address]));
    }
    if word(spec, "type") == "ExternalName" {
        spec.remove("internalTrafficPolicy");
        return;
    }
    if is_empty(spec, "clusterIP") && is_empty(spec, "clusterIPs") {
        let address = address(&uid);
        spec.insert("clusterIPs".into(), json!([address]));
        spec.insert("clusterIP".into(), address.into());
    }
    let is_free = word(spec, "clusterIP") == "None" && is_empty(spec, "selector");
    put(spec, "ipFamilyPolicy", json!(if is_free { "RequireDualStack" } else { "SingleStack" }));
    if is_empty(spec, "ipFamilies") {
        let both = is_free && word(spec, "ipFamilyPolicy") != "SingleStack";
        let families = if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        spec.insert("ipFamilies".into(), families);
    }
    let has_ports = word(spec, "type") == "NodePort"
        || (word(spec, "type") == "LoadBalancer"
            && spec.get("allocateLoadBalancerNodePorts") != Some(&json!(false)));
    if has_ports {
        for port in ports(spec).filter(|port| is_zero(port.get("nodePort"))) {
            let number = port.get("port").map(Value::to_string).unwrap_or_default();
            port.insert("nodePort".into(), node_port(&format!("{uid}/{number}")).into());
        }
    }
    if needs_health_check(spec) && is_zero(spec.get("healthCheckNodePort")) {
        spec.insert("healthCheckNodePort".into(), node_port(&uid).into());
    }
}

fn is_zero(number: Option<&Value>) -> bool {
    number.is_none_or(|number| number.as_i64() == Some(0))
}

fn needs_health_check(spec: &Map<String, Value>) -> bool {
    word(spec, "type") == "LoadBalancer" && word(spec, "externalTrafficPolicy") == "Local"
}

/// Returns an address of 10.96.0.0/12.
fn address(uid: &str) -> String {
    let bits = hash(uid);
    let (high, middle, low) = (96 + (bits >> 16) % 16, (bits >> 8) % 256, 1 + bits % 254);
    format!("10.{high}.{middle}.{low}")
}

fn node_port(text: &str) -> u64 {
    NODE_PORTS.0 + hash(text) % NODE_PORTS.1
}

/// Hashes a text by the function FNV-1a.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step) >> 8
}

/// Keeps what was allocated for a changed Service, and drops what its new type does not have.
pub(super) fn keep_allocated(old: &Value, new: &mut Value) {
    let empty = Map::new();
    let before = old.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let spec = object::map_mut(object::map_of(new), "spec");
    let has_address = |spec: &Map<String, Value>| word(spec, "type") != "ExternalName";
    if has_address(before) && has_address(spec) {
        if is_empty(spec, "clusterIP") && !is_empty(before, "clusterIP") {
            spec.insert("clusterIP".into(), before.get("clusterIP").cloned().unwrap_or_default());
        }
        let is_same = spec.get("clusterIPs") == before.get("clusterIPs");
        if is_empty(spec, "clusterIPs") && !is_empty(before, "clusterIPs") {
            spec.insert("clusterIPs".into(), before.get("clusterIPs").cloned().unwrap_or_default());
        }
        if spec.get("clusterIP") != before.get("clusterIP") && is_same {
            let address = word(spec, "clusterIP").to_owned();
            spec.insert("clusterIPs".into(), json!([address]));
        }
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            if let (true, Some(value)) = (is_empty(spec, field), before.get(field)) {
                spec.insert(field.into(), value.clone());
            }
        }
    }
    keep_node_ports(before, spec);
    drop_by_type(before, spec);
    allocate(new);
}

fn has_node_ports(spec: &Map<String, Value>) -> bool {
    matches!(word(spec, "type"), "NodePort" | "LoadBalancer")
}

fn keep_node_ports(before: &Map<String, Value>, spec: &mut Map<String, Value>) {
    if !has_node_ports(before) || !has_node_ports(spec) {
        return;
    }
    let old = before.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    let used: Vec<Value> = ports(spec).filter_map(|port| port.get("nodePort").cloned()).collect();
    for port in ports(spec).filter(|port| is_zero(port.get("nodePort"))) {
        let same = old.iter().find(|one| one.get("name") == port.get("name"));
        let number = same.and_then(|one| one.get("nodePort")).cloned();
        if let Some(number) = number.filter(|number| !used.contains(number)) {
            port.insert("nodePort".into(), number);
        }
    }
    if needs_health_check(before)
        && needs_health_check(spec)
        && let Some(number) = before.get("healthCheckNodePort")
    {
        put(spec, "healthCheckNodePort", number.clone());
    }
}

/// Drops the fields that only the old type of a Service has, unless the client changed them.
fn drop_by_type(before: &Map<String, Value>, spec: &mut Map<String, Value>) {
    let unchanged = |spec: &Map<String, Value>, field: &str| spec.get(field) == before.get(field);
    let left = |kind: &str, spec: &Map<String, Value>| {
        word(before, "type") == kind && word(spec, "type") != kind
    };
    if word(before, "type") != "ExternalName" && word(spec, "type") == "ExternalName" {
        if unchanged(spec, "clusterIP") && unchanged(spec, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if unchanged(spec, field) {
                spec.remove(field);
            }
        }
    }
    if has_node_ports(before) && !has_node_ports(spec) {
        for port in ports(spec) {
            port.remove("nodePort");
        }
    }
    if needs_health_check(before)
        && !needs_health_check(spec)
        && unchanged(spec, "healthCheckNodePort")
    {
        spec.remove("healthCheckNodePort");
    }
    if left("LoadBalancer", spec) {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(spec, field) {
                spec.remove(field);
            }
        }
    }
    if is_external(before) && !is_external(spec) && unchanged(spec, "externalTrafficPolicy") {
        spec.remove("externalTrafficPolicy");
    }
}

/// Fills in the defaults of Endpoints.
pub(super) fn fill_endpoints(map: &mut Map<String, Value>) {
    let subsets = map.get_mut("subsets").and_then(Value::as_array_mut);
    for subset in subsets.into_iter().flatten().filter_map(Value::as_object_mut) {
        for port in ports(subset) {
            put(port, "protocol", json!("TCP"));
        }
    }
}

/// Fills in the defaults of an EndpointSlice, and drops the topology, which the version v1 lacks.
pub(super) fn fill_slice(map: &mut Map<String, Value>) {
    for port in ports(map) {
        put(port, "name", json!(""));
        put(port, "protocol", json!("TCP"));
    }
    let endpoints = map.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(kind: &str) -> Value {
        let mut service = json!({"metadata": {"uid": "u"}, "spec": {"type": kind,
            "ports": [{"port": 80}]}});
        fill(object::map_of(&mut service));
        allocate(&mut service);
        service
    }

    #[test]
    fn a_service_gets_an_address_of_the_range() {
        let made = service("ClusterIP");
        let address = made["spec"]["clusterIP"].as_str().unwrap();
        assert!(address.starts_with("10."), "{address}");
        assert_eq!(made["spec"]["clusterIPs"], json!([address]));
        assert_eq!(made["spec"]["ports"][0]["targetPort"], 80);
        assert_eq!(made["spec"]["ports"][0].get("nodePort"), None);
        assert_eq!(service("ExternalName")["spec"].get("clusterIP"), None);
    }

    #[test]
    fn an_update_keeps_the_address_and_a_change_of_type_drops_it() {
        let old = service("NodePort");
        let mut new = json!({"metadata": {"uid": "u"}, "spec": {"type": "NodePort",
            "ports": [{"port": 81}]}});
        keep_allocated(&old, &mut new);
        assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
        assert_eq!(new["spec"]["ports"][0]["nodePort"], old["spec"]["ports"][0]["nodePort"]);
        let mut named = old.clone();
        named["spec"]["type"] = json!("ExternalName");
        keep_allocated(&old, &mut named);
        assert_eq!(named["spec"].get("clusterIP"), None);
        assert_eq!(named["spec"]["ports"][0].get("nodePort"), None);
    }
}
