//! Validation of Services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{address, items, selector};
use crate::{
    admit::name,
    failure::{Fault, FaultKind},
    object,
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Validates a Service.
pub(super) fn check(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let empty = json!({});
    let spec = new.get("spec").unwrap_or(&empty);
    let unconfigured = unconfigured(spec);
    if !unconfigured.is_empty() {
        return unconfigured;
    }
    let before = old.and_then(|old| old.get("spec"));
    let mut faults = Vec::new();
    faults.extend(before.map(|before| changed_addresses(spec, before)).into_iter().flatten());
    faults.extend(before.and_then(|before| changed_class(spec, before)));
    faults.extend(by_type(spec));
    let mut names = BTreeSet::new();
    let is_many = items(spec, "ports").count() > 1;
    for (at, port) in items(spec, "ports") {
        faults.extend(one_port(port, &format!("spec.ports[{at}]"), is_many, &mut names));
    }
    faults.extend(selector::labels(spec.get("selector"), "spec.selector"));
    faults.extend(affinity(spec));
    faults.extend(addresses(spec));
    for (at, ip) in items(spec, "externalIPs") {
        let (place, ip) = (format!("spec.externalIPs[{at}]"), ip.as_str().unwrap_or(""));
        let wrong = address::ip(&place, ip);
        let is_wrong = !wrong.is_empty();
        faults.extend(if is_wrong { wrong } else { address::endpoint(&place, ip) });
    }
    let kind = text(spec, "type");
    if !TYPES.contains(&kind) {
        faults.push(Fault::not_supported("spec.type", kind, &TYPES));
    }
    faults.extend(repeated_ports(spec));
    faults.extend(load_balancer(spec));
    faults.extend(traffic(spec));
    faults
}

fn text<'a>(spec: &'a Value, field: &str) -> &'a str {
    object::text(spec, &[field])
}

fn addresses_of(spec: &Value) -> Vec<&str> {
    items(spec, "clusterIPs").filter_map(|(_, ip)| ip.as_str()).collect()
}

fn is_headless(spec: &Value) -> bool {
    addresses_of(spec) == ["None"]
}

/// Validates that the IP families are those of the cluster, which has IPv4 addresses only.
fn unconfigured(spec: &Value) -> Vec<Fault> {
    let is_free = is_headless(spec) && spec.get("selector").is_none();
    if text(spec, "type") == "ExternalName" || is_free {
        return Vec::new();
    }
    let mut faults = Vec::new();
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let rule = "this cluster is not configured for dual-stack services";
        faults.push(Fault::invalid("spec.ipFamilyPolicy", &json!("RequireDualStack"), rule));
    }
    for (at, family) in items(spec, "ipFamilies").filter(|(_, family)| *family == "IPv6") {
        let rule = "not configured on this cluster";
        faults.push(Fault::invalid(format!("spec.ipFamilies[{at}]"), family, rule));
    }
    faults
}

fn changed_addresses(spec: &Value, before: &Value) -> Vec<Fault> {
    let is_named = |spec| text(spec, "type") == "ExternalName";
    if is_named(spec) || is_named(before) || (is_headless(spec) && is_headless(before)) {
        return Vec::new();
    }
    let shown = json!(addresses_of(spec));
    let mut faults = Vec::new();
    for (at, old) in addresses_of(before).into_iter().enumerate() {
        let place = format!("spec.clusterIPs[{at}]");
        match addresses_of(spec).get(at) {
            Some(new) if *new != old => {
                faults.push(Fault::invalid(place, &shown, "may not change once set"));
            }
            None if at == 0 => {
                faults.push(Fault::invalid(place, &shown, "primary clusterIP can not be unset"));
            }
            Some(_) | None => {}
        }
    }
    faults
}

fn changed_class(spec: &Value, before: &Value) -> Option<Fault> {
    let is_balancer = |spec| text(spec, "type") == "LoadBalancer";
    let (now, old) = (spec.get("loadBalancerClass"), before.get("loadBalancerClass"));
    (is_balancer(spec) && is_balancer(before) && now != old).then(|| {
        let now = now.cloned().unwrap_or_default();
        Fault::invalid("spec.loadBalancerClass", &now, "may not change once set")
    })
}

fn by_type(spec: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let kind = text(spec, "type");
    let has_ports = items(spec, "ports").next().is_some();
    if !has_ports && !is_headless(spec) && kind != "ExternalName" {
        faults.push(Fault::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let rule = format!("may not be set to 'None' for {kind} services");
            faults.push(Fault::invalid("spec.clusterIPs[0]", &json!("None"), &rule));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if spec.get(field).is_some_and(|it| !it.is_null() && *it != json!([])) {
                    let rule = "may not be set for ExternalName services";
                    faults.push(Fault::forbidden(format!("spec.{field}"), rule));
                }
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                faults.push(Fault::required("spec.externalName", ""));
            } else {
                for rule in name::subdomain_faults(name) {
                    faults.push(Fault::invalid("spec.externalName", &json!(name), &rule));
                }
            }
        }
        _ => {}
    }
    faults
}

fn one_port<'a>(
    port: &'a Value,
    place: &str,
    is_named: bool,
    names: &mut BTreeSet<&'a str>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let name = text(port, "name");
    if name.is_empty() {
        faults.extend(is_named.then(|| Fault::required(format!("{place}.name"), "")));
    } else {
        for rule in name::label_faults(name) {
            faults.push(Fault::invalid(format!("{place}.name"), &json!(name), &rule));
        }
        if !names.insert(name) {
            faults.push(Fault::duplicate(format!("{place}.name"), name));
        }
    }
    let zero = json!(0);
    faults.extend(address::port(&format!("{place}.port"), port.get("port").unwrap_or(&zero)));
    let protocol = text(port, "protocol");
    if !PROTOCOLS.contains(&protocol) {
        faults.push(Fault::not_supported(format!("{place}.protocol"), protocol, &PROTOCOLS));
    }
    let target = format!("{place}.targetPort");
    match port.get("targetPort") {
        Some(Value::String(name)) => faults.extend(address::port_name(&target, name)),
        Some(number) => faults.extend(address::port(&target, number)),
        None => {}
    }
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        for rule in name::qualified_faults(protocol) {
            faults.push(Fault::invalid(format!("{place}.appProtocol"), &json!(protocol), &rule));
        }
    }
    faults
}

fn affinity(spec: &Value) -> Vec<Fault> {
    const KNOWN: [&str; 2] = ["ClientIP", "None"];
    let affinity = text(spec, "sessionAffinity");
    if !KNOWN.contains(&affinity) {
        return vec![Fault::not_supported("spec.sessionAffinity", affinity, &KNOWN)];
    }
    let seconds = object::at(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"]);
    let is_wrong = |it: &&Value| !it.as_i64().is_some_and(|it| (1..=86_400).contains(&it));
    let fault = |seconds: &Value| {
        let place = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let rule = "must be greater than 0 and less than 86400";
        Fault::invalid(place, seconds, rule)
    };
    seconds.filter(is_wrong).map(fault).into_iter().collect()
}

fn addresses(spec: &Value) -> Vec<Fault> {
    const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
    const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if text(spec, "type") == "ExternalName" {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let (ip, all) = (text(spec, "clusterIP"), addresses_of(spec));
    if !ip.is_empty() && all.first() != Some(&ip) {
        let rule = "first value must match `clusterIP`";
        faults.push(Fault::invalid("spec.clusterIPs", &json!(all), rule));
    }
    if ip.is_empty() && !all.is_empty() {
        let rule = "must be empty when `clusterIP` is not specified";
        faults.push(Fault::invalid("spec.clusterIPs", &json!(all), rule));
    }
    let mut seen = BTreeSet::new();
    for (at, family) in items(spec, "ipFamilies") {
        let (place, family) = (format!("spec.ipFamilies[{at}]"), family.as_str().unwrap_or(""));
        if !FAMILIES.contains(&family) {
            faults.push(Fault::not_supported(place.clone(), family, &FAMILIES));
        }
        if !seen.insert(family) {
            faults.push(Fault::duplicate(place, family));
        }
    }
    let policy = text(spec, "ipFamilyPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        faults.push(Fault::not_supported("spec.ipFamilyPolicy", policy, &POLICIES));
    }
    for (at, ip) in all.iter().enumerate().filter(|(at, ip)| *at != 0 || **ip != "None") {
        faults.extend(address::ip(&format!("spec.clusterIPs[{at}]"), ip));
    }
    if all.len() > 2 {
        let rule = "may only hold up to 2 values";
        faults.push(Fault::invalid("spec.clusterIPs", &json!(all), rule));
    }
    let (Some(first), Some((_, family))) = (all.first(), items(spec, "ipFamilies").next()) else {
        return faults;
    };
    if faults.is_empty() && family == "IPv4" && address::is_v6(first) {
        let rule = "expected an IPv4 value as indicated by `ipFamilies[0]`";
        faults.push(Fault::invalid("spec.clusterIPs[0]", &json!(first), rule));
    }
    faults
}

/// Validates that no two ports of a Service have the same number and protocol.
fn repeated_ports(spec: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let number = |port: &Value, field| port.get(field).and_then(Value::as_i64).unwrap_or(0);
    if text(spec, "type") == "ClusterIP" {
        for (at, _) in items(spec, "ports").filter(|(_, port)| number(port, "nodePort") != 0) {
            let rule = "may not be used when `type` is 'ClusterIP'";
            faults.push(Fault::forbidden(format!("spec.ports[{at}].nodePort"), rule));
        }
    }
    let mut seen = BTreeSet::new();
    for (at, port) in items(spec, "ports").filter(|(_, port)| number(port, "nodePort") != 0) {
        if !seen.insert((text(port, "protocol"), number(port, "nodePort"))) {
            let field = format!("spec.ports[{at}].nodePort");
            let message = format!("Duplicate value: {}", number(port, "nodePort"));
            faults.push(Fault { field, kind: FaultKind::Duplicate, message });
        }
    }
    let mut seen = BTreeSet::new();
    for (at, port) in items(spec, "ports") {
        if !seen.insert((text(port, "protocol"), number(port, "port"))) {
            // Compat: the message shows the fields of the type in Go.
            let message = format!(
                "Duplicate value: {{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\
                 \"TargetPort\":0,\"NodePort\":0}}",
                json!(text(port, "protocol")),
                number(port, "port")
            );
            let field = format!("spec.ports[{at}]");
            faults.push(Fault { field, kind: FaultKind::Duplicate, message });
        }
    }
    faults
}

fn load_balancer(spec: &Value) -> Vec<Fault> {
    const RULE: &str = "may only be used when `type` is 'LoadBalancer'";
    let mut faults = Vec::new();
    let is_balancer = text(spec, "type") == "LoadBalancer";
    let is_set = |field| spec.get(field).is_some_and(|it| !it.is_null());
    if items(spec, "loadBalancerSourceRanges").next().is_some() && !is_balancer {
        // Compat: kube-apiserver spells the field like this.
        faults.push(Fault::forbidden("spec.LoadBalancerSourceRanges", RULE));
    }
    if is_set("allocateLoadBalancerNodePorts") && !is_balancer {
        faults.push(Fault::forbidden("spec.allocateLoadBalancerNodePorts", RULE));
    }
    if is_set("loadBalancerClass") {
        if is_balancer {
            let class = text(spec, "loadBalancerClass");
            for rule in name::qualified_faults(class) {
                faults.push(Fault::invalid("spec.loadBalancerClass", &json!(class), &rule));
            }
        } else {
            faults.push(Fault::forbidden("spec.loadBalancerClass", RULE));
        }
    }
    faults
}

fn traffic(spec: &Value) -> Vec<Fault> {
    const POLICIES: [&str; 2] = ["Cluster", "Local"];
    const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let mut faults = Vec::new();
    let kind = text(spec, "type");
    let is_external = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && items(spec, "externalIPs").next().is_some());
    let policy = text(spec, "externalTrafficPolicy");
    if !is_external && !policy.is_empty() {
        let rule = "may only be set for externally-accessible services";
        faults.push(Fault::invalid("spec.externalTrafficPolicy", &json!(policy), rule));
    } else if is_external && !POLICIES.contains(&policy) {
        faults.push(Fault::not_supported("spec.externalTrafficPolicy", policy, &POLICIES));
    }
    let check = spec.get("healthCheckNodePort").filter(|it| it.as_i64() != Some(0));
    let needs_check = kind == "LoadBalancer" && policy == "Local";
    if let (Some(check), false) = (check, needs_check) {
        let rule =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        faults.push(Fault::invalid("spec.healthCheckNodePort", check, rule));
    }
    let policy = text(spec, "internalTrafficPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        faults.push(Fault::not_supported("spec.internalTrafficPolicy", policy, &POLICIES));
    }
    let distribution = text(spec, "trafficDistribution");
    if !distribution.is_empty() && !DISTRIBUTIONS.contains(&distribution) {
        faults.push(Fault::not_supported("spec.trafficDistribution", distribution, &DISTRIBUTIONS));
    }
    faults
}
