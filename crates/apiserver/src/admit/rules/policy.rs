//! Validation of `ValidatingAdmissionPolicy` objects and their bindings.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{items, selector};
use crate::{admit::name, failure::Fault, object, schema::cel};

/// Validates a policy.
pub(super) fn check(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let known = ["Fail", "Ignore"];
    let policy = object::text(spec, &["failurePolicy"]);
    if !known.contains(&policy) {
        faults.push(Fault::not_supported("spec.failurePolicy", policy, &known));
    }
    faults.extend(parameter_kind(spec));
    match spec.get("matchConstraints").filter(|it| !it.is_null()) {
        None => faults.push(Fault::required("spec.matchConstraints", "")),
        Some(found) => {
            faults.extend(matching(found, "spec.matchConstraints"));
            if items(found, "resourceRules").next().is_none() {
                faults.push(Fault::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    faults.extend(conditions(spec));
    for (at, variable) in items(spec, "variables") {
        let place = format!("spec.variables[{at}]");
        if object::text(variable, &["name"]).trim().is_empty() {
            faults.push(Fault::required(format!("{place}.name"), "name is not specified"));
        }
        faults.extend(expression(variable, &place));
    }
    let is_empty = |list| items(spec, list).next().is_none();
    if is_empty("validations") && is_empty("auditAnnotations") {
        let why = "validations or auditAnnotations must contain at least one item";
        for list in ["validations", "auditAnnotations"] {
            faults.push(Fault::required(format!("spec.{list}"), why));
        }
    }
    for (at, validation) in items(spec, "validations") {
        faults.extend(one_validation(validation, &format!("spec.validations[{at}]")));
    }
    faults
}

fn parameter_kind(spec: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Some(kind) = spec.get("paramKind").filter(|it| !it.is_null()) else { return faults };
    for field in ["apiVersion", "kind"] {
        if object::text(kind, &[field]).is_empty() {
            faults.push(Fault::required(format!("spec.paramKind.{field}"), ""));
        }
    }
    faults
}

fn conditions(spec: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, one) in items(spec, "matchConditions") {
        let place = format!("spec.matchConditions[{at}]");
        let text = object::text(one, &["expression"]).trim();
        if text.is_empty() {
            faults.push(Fault::required(format!("{place}.expression"), ""));
        } else {
            faults.extend(compiled(text, format!("{place}.expression")));
        }
        let name = object::text(one, &["name"]);
        if name.is_empty() {
            faults.push(Fault::required(format!("{place}.name"), ""));
            continue;
        }
        for rule in name::qualified_faults(name) {
            faults.push(Fault::invalid(format!("{place}.name"), &json!(name), &rule));
        }
        if !seen.insert(name) {
            faults.push(Fault::duplicate(format!("{place}.name"), name));
        }
    }
    faults
}

fn expression(one: &Value, place: &str) -> Option<Fault> {
    let (place, text) = (format!("{place}.expression"), object::text(one, &["expression"]));
    if text.trim().is_empty() {
        return Some(Fault::required(place, "expression is not specified"));
    }
    compiled(text, place)
}

fn compiled(text: &str, place: String) -> Option<Fault> {
    let error = cel::compile(text).err()?;
    Some(Fault::invalid(place, &json!(text), &format!("compilation failed: {error}")))
}

fn one_validation(validation: &Value, place: &str) -> Vec<Fault> {
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    let mut faults: Vec<Fault> = expression(validation, place).into_iter().collect();
    for field in ["messageExpression", "message"] {
        let (place, text) = (format!("{place}.{field}"), object::text(validation, &[field]));
        let trimmed = text.trim();
        if !text.is_empty() && trimmed.is_empty() {
            faults.push(Fault::invalid(place, &json!(text), "must be non-empty if specified"));
        } else if field == "message" && trimmed.contains(['\n', '\r']) {
            faults.push(Fault::invalid(place, &json!(text), "must not contain line breaks"));
        } else if field == "messageExpression" && !trimmed.is_empty() {
            faults.extend(compiled(text, place));
        }
    }
    if let Some(reason) = validation.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        faults.push(Fault::not_supported(format!("{place}.reason"), reason, &REASONS));
    }
    faults
}

/// Validates which requests a policy or a binding is about.
fn matching(found: &Value, place: &str) -> Vec<Fault> {
    const POLICIES: [&str; 2] = ["Equivalent", "Exact"];
    let mut faults = Vec::new();
    let policy = object::text(found, &["matchPolicy"]);
    if !POLICIES.contains(&policy) {
        faults.push(Fault::not_supported(format!("{place}.matchPolicy"), policy, &POLICIES));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let empty = json!({});
        let selector = found.get(field).unwrap_or(&empty);
        faults.extend(selector::check(selector, &format!("{place}.{field}")));
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (at, rule) in items(found, list) {
            faults.extend(one_rule(rule, &format!("{place}.{list}[{at}]")));
        }
    }
    faults
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    items(rule, field).filter_map(|(_, one)| one.as_str()).collect()
}

fn one_rule(rule: &Value, place: &str) -> Vec<Fault> {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
    let mut faults = Vec::new();
    for (field, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let (place, all) = (format!("{place}.{field}"), texts(rule, field));
        if all.is_empty() {
            faults.push(Fault::required(place.clone(), ""));
        }
        if all.len() > 1 && all.contains(&"*") {
            let rule = format!("if '*' is present, must not specify other {what}");
            faults.push(Fault::invalid(place.clone(), &json!(all), &rule));
        }
        for (at, one) in all.iter().enumerate() {
            if field == "operations" && !OPERATIONS.contains(one) {
                faults.push(Fault::not_supported(format!("{place}[{at}]"), one, &OPERATIONS));
            }
            if field == "apiVersions" && one.is_empty() {
                faults.push(Fault::required(format!("{place}[{at}]"), ""));
            }
        }
    }
    faults.extend(resources(&texts(rule, "resources"), &format!("{place}.resources")));
    let scope = object::text(rule, &["scope"]);
    if !SCOPES.contains(&scope) {
        faults.push(Fault::not_supported(format!("{place}.scope"), scope, &SCOPES));
    }
    faults
}

fn resources(all: &[&str], place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if all.is_empty() {
        faults.push(Fault::required(place, ""));
    }
    for (at, one) in all.iter().enumerate() {
        let place = format!("{place}[{at}]");
        let Some((resource, part)) = one.split_once('/') else {
            faults.extend(one.is_empty().then(|| Fault::required(place, "")));
            continue;
        };
        let before = all.get(..at).unwrap_or_default();
        for wide in [format!("{resource}/*"), format!("*/{part}")] {
            if before.contains(&wide.as_str()) {
                let rule = format!("if '{wide}' is present, must not specify {one}");
                faults.push(Fault::invalid(place.clone(), &json!(one), &rule));
            }
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        let rule = "if '*/*' is present, must not specify other resources";
        faults.push(Fault::invalid(place, &json!(all), rule));
    }
    let last = all.iter().rev().find(|one| !one.contains('/'));
    if all.contains(&"*") && last.is_some_and(|last| *last != "*") {
        let rule = "if '*' is present, must not specify other resources without subresources";
        faults.push(Fault::invalid(place, &json!(all), rule));
    }
    faults
}

/// Validates a binding.
pub(super) fn binding(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let policy = object::text(spec, &["policyName"]);
    if policy.is_empty() {
        faults.push(Fault::required("spec.policyName", ""));
    } else {
        for rule in name::subdomain_faults(policy) {
            faults.push(Fault::invalid("spec.policyName", &json!(policy), &rule));
        }
    }
    if let Some(reference) = spec.get("paramRef").filter(|it| !it.is_null()) {
        faults.extend(parameter(reference));
    }
    if let Some(found) = spec.get("matchResources").filter(|it| !it.is_null()) {
        faults.extend(matching(found, "spec.matchResources"));
    }
    faults.extend(actions(&texts(spec, "validationActions")));
    faults
}

fn parameter(reference: &Value) -> Vec<Fault> {
    const PLACE: &str = "spec.paramRef";
    const ACTIONS: [&str; 2] = ["Deny", "Allow"];
    let mut faults = Vec::new();
    let name = object::text(reference, &["name"]);
    let selector = reference.get("selector").filter(|it| !it.is_null());
    for rule in name::segment_faults(name) {
        faults.push(Fault::invalid(format!("{PLACE}.name"), &json!(name), &rule));
    }
    let rule = "name and selector are mutually exclusive";
    if let Some(selector) = selector {
        if !name.is_empty() {
            faults.push(Fault::forbidden(format!("{PLACE}.name"), rule));
        }
        faults.extend(selector::check(selector, &format!("{PLACE}.selector")));
        if !name.is_empty() {
            faults.push(Fault::forbidden(format!("{PLACE}.selector"), rule));
        }
    }
    if name.is_empty() && selector.is_none() {
        faults.push(Fault::required(PLACE, "one of name or selector must be specified"));
    }
    let place = format!("{PLACE}.parameterNotFoundAction");
    match object::text(reference, &["parameterNotFoundAction"]) {
        "" => faults.push(Fault::required(place, "")),
        action if !ACTIONS.contains(&action) => {
            faults.push(Fault::not_supported(place, action, &ACTIONS));
        }
        _ => {}
    }
    faults
}

fn actions(all: &[&str]) -> Vec<Fault> {
    const PLACE: &str = "spec.validationActions";
    const KNOWN: [&str; 3] = ["Audit", "Deny", "Warn"];
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, action) in all.iter().enumerate() {
        if !KNOWN.contains(action) {
            faults.push(Fault::not_supported(format!("{PLACE}[{at}]"), action, &KNOWN));
        }
        if !seen.insert(action) {
            faults.push(Fault::duplicate(format!("{PLACE}[{at}]"), action));
        }
    }
    if all.contains(&"Deny") && all.contains(&"Warn") {
        let rule = "must not contain both Deny and Warn (repeating the same validation failure \
            information in the API response and headers serves no purpose)";
        faults.push(Fault::invalid(PLACE, &json!(all), rule));
    }
    if all.is_empty() {
        faults.push(Fault::required(PLACE, "at least one validation action is required"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FaultKind;

    #[test]
    fn an_expression_that_does_not_compile_is_refused() {
        let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": {
            "matchPolicy": "Exact", "resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}]},
            "validations": [{"expression": "object.metadata.name == 'a'"}]});
        assert_eq!(check(&json!({"spec": spec})), []);
        spec["validations"][0]["expression"] = json!("object.metadata.name ==");
        let faults = check(&json!({"spec": spec}));
        assert_eq!(faults[0].field, "spec.validations[0].expression");
        assert_eq!(faults[0].kind, FaultKind::Invalid);
    }
}
