//! Validation of roles and their bindings.

use serde_json::{Value, json};

use super::{items, selector};
use crate::{admit::name, failure::Fault, object, resource::builtin::RBAC};

/// Validates a Role.
pub(super) fn role(new: &Value) -> Vec<Fault> {
    rules(new, true)
}

/// Validates a ClusterRole.
pub(super) fn cluster_role(new: &Value) -> Vec<Fault> {
    let mut faults = rules(new, false);
    let Some(rule) = new.get("aggregationRule").filter(|it| !it.is_null()) else { return faults };
    let place = "aggregationRule.clusterRoleSelectors";
    if items(rule, "clusterRoleSelectors").next().is_none() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        faults.push(Fault::required(place, why));
    }
    for (at, one) in items(rule, "clusterRoleSelectors") {
        let place = format!("{place}[{at}]");
        let wrong = selector::check(one, &place);
        let is_wrong = !wrong.is_empty();
        faults.extend(wrong);
        if is_wrong {
            faults.push(Fault::invalid(place, &Value::Null, "invalid label selector."));
        }
    }
    faults
}

fn rules(new: &Value, is_namespaced: bool) -> Vec<Fault> {
    let each = items(new, "rules");
    each.flat_map(|(at, rule)| one_rule(rule, is_namespaced, &format!("rules[{at}]"))).collect()
}

fn one_rule(rule: &Value, is_namespaced: bool, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let has = |field: &str| items(rule, field).next().is_some();
    if !has("verbs") {
        let why = "verbs must contain at least one value";
        faults.push(Fault::required(format!("{place}.verbs"), why));
    }
    if has("nonResourceURLs") {
        let (place, shown) = (format!("{place}.nonResourceURLs"), rule.get("nonResourceURLs"));
        let mut refuse = |why: &str| {
            faults.push(Fault::invalid(place.clone(), shown.unwrap_or(&Value::Null), why));
        };
        if is_namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return faults;
    }
    for (field, why) in [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ] {
        if !has(field) {
            faults.push(Fault::required(format!("{place}.{field}"), why));
        }
    }
    faults
}

/// Validates a `RoleBinding` or a `ClusterRoleBinding`, and its change from `old`.
pub(super) fn binding(new: &Value, old: Option<&Value>, is_namespaced: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let of = |field| object::text(new, &["roleRef", field]);
    if of("apiGroup") != RBAC {
        faults.push(Fault::not_supported("roleRef.apiGroup", of("apiGroup"), &[RBAC]));
    }
    let known: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !known.contains(&of("kind")) {
        faults.push(Fault::not_supported("roleRef.kind", of("kind"), known));
    }
    if of("name").is_empty() {
        faults.push(Fault::required("roleRef.name", ""));
    }
    for rule in name::segment_faults(of("name")) {
        faults.push(Fault::invalid("roleRef.name", &json!(of("name")), &rule));
    }
    for (at, subject) in items(new, "subjects") {
        faults.extend(one_subject(subject, is_namespaced, &format!("subjects[{at}]")));
    }
    if old.is_some_and(|old| old.get("roleRef") != new.get("roleRef")) {
        // Compat: the message shows the fields of the type in Go.
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            json!(of("apiGroup")),
            json!(of("kind")),
            json!(of("name"))
        );
        let mut fault = Fault::invalid("roleRef", &Value::Null, "cannot change roleRef");
        fault.message = format!("Invalid value: {shown}: cannot change roleRef");
        faults.push(fault);
    }
    faults
}

fn one_subject(subject: &Value, is_namespaced: bool, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let of = |field| object::text(subject, &[field]);
    if of("name").is_empty() {
        faults.push(Fault::required(format!("{place}.name"), ""));
    }
    match of("kind") {
        "ServiceAccount" => {
            if !of("name").is_empty() {
                for rule in name::subdomain_faults(of("name")) {
                    faults.push(Fault::invalid(format!("{place}.name"), &json!(of("name")), &rule));
                }
            }
            if !of("apiGroup").is_empty() {
                let place = format!("{place}.apiGroup");
                faults.push(Fault::not_supported(place, of("apiGroup"), &[""]));
            }
            if !is_namespaced && of("namespace").is_empty() {
                faults.push(Fault::required(format!("{place}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if of("apiGroup") != RBAC {
                let place = format!("{place}.apiGroup");
                faults.push(Fault::not_supported(place, of("apiGroup"), &[RBAC]));
            }
        }
        other => {
            let known = ["ServiceAccount", "User", "Group"];
            faults.push(Fault::not_supported(format!("{place}.kind"), other, &known));
        }
    }
    faults
}
