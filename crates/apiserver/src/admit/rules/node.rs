//! Validation of nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{address, items};
use crate::{
    admit::name,
    failure::{Fault, FaultKind},
    object,
};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates a node.
pub(super) fn check(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let mut seen = BTreeSet::new();
    for (at, taint) in items(spec, "taints") {
        // Compat: kube-apiserver names this place.
        let place = format!("metadata.taints[{at}]");
        let of = |field| object::text(taint, &[field]);
        for rule in name::qualified_faults(of("key")) {
            faults.push(Fault::invalid(format!("{place}.key"), &json!(of("key")), &rule));
        }
        let rules = name::label_value_faults(of("value"));
        if !rules.is_empty() {
            let value = json!(of("value"));
            faults.push(Fault::invalid(format!("{place}.value"), &value, &rules.join(";")));
        }
        match of("effect") {
            "" => faults.push(Fault::required(format!("{place}.effect"), "")),
            effect if !EFFECTS.contains(&effect) => {
                faults.push(Fault::not_supported(format!("{place}.effect"), effect, &EFFECTS));
            }
            _ => {}
        }
        if !seen.insert((of("key"), of("effect"))) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":null}}",
                json!(of("key")),
                json!(of("value")),
                json!(of("effect"))
            );
            let message =
                format!("Duplicate value: {shown}: taints must be unique by key and effect pair");
            faults.push(Fault { field: place, kind: FaultKind::Duplicate, message });
        }
    }
    faults.extend(blocks(spec));
    faults.extend(old.and_then(|old| provider(new, old)));
    faults.extend(old.and_then(|old| networks(new, old)));
    faults
}

/// Validates the addresses of the pods of a node: at most one block of each family.
fn blocks(spec: &Value) -> Vec<Fault> {
    const LIST: &str = "podCIDRs";
    let all: Vec<&str> = items(spec, LIST).filter_map(|(_, block)| block.as_str()).collect();
    let place = |at: usize| format!("spec.{LIST}[{at}]");
    let mut faults: Vec<Fault> = all
        .iter()
        .enumerate()
        .filter_map(|(at, block)| address::block(&place(at), block))
        .collect();
    let of_v6 = all.iter().filter(|block| block.contains(':')).count();
    if faults.is_empty() && (of_v6 > 1 || all.len() - of_v6 > 1) {
        let rule = "may specify no more than one CIDR for each IP family";
        faults.push(Fault::invalid(format!("spec.{LIST}"), &json!(all), rule));
    }
    faults
}

fn provider(new: &Value, old: &Value) -> Option<Fault> {
    let of = |node| object::text(node, &["spec", "providerID"]);
    let changed = !of(old).is_empty() && of(old) != of(new);
    changed.then(|| {
        let rule = "node updates may not change providerID except from \"\" to valid";
        Fault::forbidden("spec.providerID", rule)
    })
}

fn networks(new: &Value, old: &Value) -> Option<Fault> {
    let of = |node| object::at(node, &["spec", "podCIDRs"]);
    let before = of(old)?;
    (Some(before) != of(new)).then(|| {
        let rule = "node updates may not change podCIDR except from \"\" to valid";
        Fault::forbidden("spec.podCIDRs", rule)
    })
}
