//! `CustomResourceDefinition`s: their validation, and the resources they define.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Form, Resource, builtin};
use crate::{
    admit::name,
    clock,
    failure::Fault,
    object::{self, at, text},
    schema::Schema,
};

/// Validates a definition and sets its `Established` condition: the resource is served as soon as
/// the definition is stored.
pub(crate) fn establish(crd: &mut Value, old: Option<&Value>, now: Timestamp) -> Vec<Fault> {
    let mut faults = check(crd);
    faults.extend(old.into_iter().flat_map(|old| changed(crd, old)));
    faults.extend(unapproved(crd, old));
    if !faults.is_empty() {
        return faults;
    }
    let since = object::at(crd, &["status", "conditions"])
        .and_then(|list| list.get(0)?.get("lastTransitionTime")?.as_str())
        .map_or_else(|| clock::rfc3339(now), str::to_owned);
    let names = complete_names(crd);
    let stored: Vec<Value> = versions(crd)
        .filter(|version| version.get("storage").and_then(Value::as_bool).unwrap_or(false))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    let spec = object::map_mut(object::map_of(crd), "spec");
    spec.insert("names".into(), names.clone());
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "lastTransitionTime": since,
               "reason": reason, "message": message})
    };
    let ends = |one: &&Value| one.get("type").is_some_and(|kind| kind == "Terminating");
    let had = object::at(crd, &["status", "conditions"]).and_then(Value::as_array);
    let ending: Vec<Value> = had.into_iter().flatten().filter(ends).cloned().collect();
    let mut status = json!({
        "acceptedNames": names, "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted",
                "the initial names have been accepted"),
        ],
    });
    if let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        list.extend(ending);
    }
    object::map_of(crd).insert("status".into(), status);
    faults
}

/// Returns the faults of a change of what names and stores the objects of a definition.
fn changed(crd: &Value, old: &Value) -> Vec<Fault> {
    let paths: [&[&str]; 4] = [&["scope"], &["names", "kind"], &["group"], &["names", "plural"]];
    let changed = paths.into_iter().filter_map(|path| {
        let path = [&["spec"], path].concat();
        let (new, old) = (text(crd, &path), text(old, &path));
        (new != old).then(|| Fault::invalid(path.join("."), &new.into(), "field is immutable"))
    });
    changed.collect()
}

fn complete_names(crd: &Value) -> Value {
    let mut names = at(crd, &["spec", "names"]).cloned().unwrap_or_default();
    let kind = text(&names, &["kind"]).to_owned();
    let map = object::map_of(&mut names);
    map.entry("singular").or_insert_with(|| kind.to_lowercase().into());
    map.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    names
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    at(crd, &["spec", "versions"]).and_then(Value::as_array).into_iter().flatten()
}

fn check(crd: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    for path in
        [["spec", "group"].as_slice(), &["spec", "names", "kind"], &["spec", "names", "plural"]]
    {
        if text(crd, path).is_empty() {
            faults.push(Fault::required(path.join("."), ""));
        }
    }
    faults.extend(group_faults(text(crd, &["spec", "group"])));
    let plural = text(crd, &["spec", "names", "plural"]);
    faults
        .extend(label_fault("spec.names.plural".to_owned(), plural).filter(|_| !plural.is_empty()));
    if !matches!(text(crd, &["spec", "scope"]), "Cluster" | "Namespaced") {
        faults.push(Fault::required("spec.scope", "must be Cluster or Namespaced"));
    }
    let expected =
        format!("{}.{}", text(crd, &["spec", "names", "plural"]), text(crd, &["spec", "group"]));
    if faults.is_empty() && object::name(crd) != expected {
        let rule = "must be spec.names.plural+\".\"+spec.group";
        faults.push(Fault::invalid("metadata.name", &Value::from(object::name(crd)), rule));
    }
    for (number, version) in versions(crd).enumerate() {
        faults
            .extend(label_fault(format!("spec.versions[{number}].name"), text(version, &["name"])));
    }
    // Compat: the name of the first version is also the value of an old field.
    let first = versions(crd).next().map_or("v1", |version| text(version, &["name"]));
    faults.extend(label_fault("spec.version".to_owned(), first));
    let names: BTreeSet<&str> = versions(crd).map(|version| text(version, &["name"])).collect();
    if names.len() != versions(crd).count() {
        let rule = "must contain unique version names";
        faults.push(Fault::invalid("spec.versions", &json!([]), rule));
    }
    let is_stored =
        |version: &&Value| version.get("storage").and_then(Value::as_bool).unwrap_or(false);
    if versions(crd).filter(is_stored).count() != 1 {
        let rule = "must have exactly one version marked as storage version";
        faults.push(Fault::invalid("spec.versions", &json!([]), rule));
    }
    for (number, version) in versions(crd).enumerate() {
        let place = format!("spec.versions[{number}].schema.openAPIV3Schema");
        match at(version, &["schema", "openAPIV3Schema"]) {
            None => faults.push(Fault::required(place, "schemas are required")),
            Some(schema) => {
                if let Err(error) = Schema::root(schema) {
                    let why = error.to_string();
                    faults.push(Fault::invalid(place, &Value::Null, &why));
                }
            }
        }
    }
    faults
}

/// Returns the faults of the group of a definition. An empty group is one of another rule.
fn group_faults(group: &str) -> Vec<Fault> {
    let mut rules = name::subdomain_faults(group);
    if rules.is_empty() && !group.contains('.') {
        rules.push("should be a domain with at least one dot".to_owned());
    }
    if group.is_empty() || rules.is_empty() {
        return Vec::new();
    }
    vec![Fault::invalid("spec.group", &group.into(), &rules.join(","))]
}

fn label_fault(field: String, text: &str) -> Option<Fault> {
    let rules = name::rfc1035_label_faults(text);
    (!rules.is_empty()).then(|| Fault::invalid(field, &text.into(), &rules.join(",")))
}

/// Annotation of a definition whose group belongs to Kubernetes.
const APPROVED: &str = "api-approved.kubernetes.io";

/// Fails if the group belongs to Kubernetes and the definition does not say who approved it.
fn unapproved(crd: &Value, old: Option<&Value>) -> Option<Fault> {
    const PULL: &str = "https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(crd, &["spec", "group"]);
    let is_protected = ["k8s.io", "kubernetes.io"].into_iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    let approval = |crd| text(crd, &["metadata", "annotations", APPROVED]);
    let (state, before) = (Approval::of(approval(crd)), old.map(|old| Approval::of(approval(old))));
    if !is_protected || before == Some(state) {
        return None;
    }
    let place = format!("metadata.annotations[{APPROVED}]");
    let rule = format!("protected groups must have approval annotation \"{APPROVED}\"");
    match state {
        Approval::Given | Approval::Bypassed => None,
        Approval::Missing => Some(Fault::required(place, &format!("{rule}, see {PULL}"))),
        Approval::Invalid => {
            let rule = format!(
                "{rule} with either a URL or a reason starting with \"unapproved\", see {PULL}"
            );
            Some(Fault::invalid(place, &approval(crd).into(), &rule))
        }
    }
}

/// The state of the approval of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Invalid,
}

impl Approval {
    fn of(annotation: &str) -> Self {
        let is_url = annotation.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some());
        match annotation {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed,
            text if is_url && text.contains("://") => Self::Given,
            _ => Self::Invalid,
        }
    }
}

/// Returns the group and plural of a definition.
pub(crate) fn identity(crd: &Value) -> (&str, &str) {
    (text(crd, &["spec", "group"]), text(crd, &["spec", "names", "plural"]))
}

/// Returns the resources of a stored definition. One of a built-in group has none, as its objects
/// would be in the collections of the built-in kinds.
pub(crate) fn resources(crd: &Value) -> Vec<Resource> {
    if builtin::has_group(identity(crd).0) {
        return Vec::new();
    }
    versions(crd)
        .filter(|version| version.get("served").and_then(Value::as_bool).unwrap_or(false))
        .map(|version| resource(crd, version))
        .collect()
}

fn resource(crd: &Value, version: &Value) -> Resource {
    let names = at(crd, &["spec", "names"]).cloned().unwrap_or_default();
    let owned = |key: &str| -> Vec<String> {
        let list = names.get(key).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (group, plural) = identity(crd);
    // Definitions are validated before they are stored, so the schema parses.
    let written = at(version, &["schema", "openAPIV3Schema"]);
    let schema = written.and_then(|schema| Schema::root(schema).ok()).map(Arc::new);
    Resource {
        group: group.to_owned(),
        version: text(version, &["name"]).to_owned(),
        kind: text(&names, &["kind"]).to_owned(),
        list_kind: text(&names, &["listKind"]).to_owned(),
        plural: plural.to_owned(),
        singular: text(&names, &["singular"]).to_owned(),
        short_names: owned("shortNames"),
        categories: owned("categories"),
        namespaced: text(crd, &["spec", "scope"]) == "Namespaced",
        status: at(version, &["subresources", "status"]).is_some(),
        generation: true,
        collection: format!("{plural}.{group}").into(),
        form: Form::Same,
        schema,
        written_schema: written.cloned().map(Arc::new),
        columns: columns(version),
        selectable: selectable(version),
        custom: true,
    }
}

fn selectable(version: &Value) -> Vec<String> {
    let list = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    list.map(|one| text(one, &["jsonPath"]).trim_start_matches('.').to_owned()).collect()
}

fn columns(version: &Value) -> Vec<Column> {
    let list = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let read = |one: &Value| Column {
        name: text(one, &["name"]).to_owned(),
        kind: text(one, &["type"]).to_owned(),
        format: text(one, &["format"]).to_owned(),
        description: text(one, &["description"]).to_owned(),
        priority: one.get("priority").and_then(Value::as_i64).unwrap_or(0),
        path: text(one, &["jsonPath"]).to_owned(),
    };
    list.into_iter().flatten().map(read).collect()
}
