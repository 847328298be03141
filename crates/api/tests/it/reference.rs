//! Comparison of our CRDs with the reference's CRDs.
//!
//! A fact is one line such as `spec.kernelArguments: nullable = true`. Only prose (descriptions,
//! messages of rules) and the reference's release annotations are left out. A difference is allowed
//! only if `docs/compat.md` lists it under "CRD differences", and a listed difference must exist.
//!
//! The reference's files are not in this repository; without them the comparison is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{read, workspace};

type Facts = BTreeMap<String, String>;

// covers: CRD C01, CRD C02
#[test]
fn our_crds_equal_the_reference_crds() {
    let theirs = reference_crds();
    if theirs.is_empty() {
        eprintln!("skipped: the reference's CRDs are not available");
        return;
    }
    let ours: BTreeMap<String, Value> = mco_api::crds()
        .iter()
        .map(|crd| serde_json::to_value(crd).expect("a CRD converts to JSON"))
        .map(|crd| (plural(&crd), crd))
        .collect();

    let mut found = BTreeSet::new();
    for (plural, theirs) in &theirs {
        let theirs = facts(theirs);
        let ours = ours.get(plural).map(facts).unwrap_or_default();
        for key in theirs.keys().chain(ours.keys()) {
            let (their, our) = (theirs.get(key), ours.get(key));
            if their != our {
                let show = |fact: Option<&String>| fact.cloned().unwrap_or("nothing".to_owned());
                let text = format!("reference {}, ours {}", show(their), show(our));
                found.insert((plural.clone(), key.clone(), text));
            }
        }
    }

    let allowed = allowed_differences();
    let unlisted: Vec<_> = found
        .iter()
        .filter(|(plural, key, _)| !allowed.contains(&(plural.clone(), key.clone())))
        .map(|(plural, key, text)| format!("{plural} {key}: {text}"))
        .collect();
    let gone: Vec<_> = allowed
        .iter()
        .filter(|(plural, key)| !found.iter().any(|(p, k, _)| (p, k) == (plural, key)))
        .collect();
    assert!(unlisted.is_empty(), "{} differences:\n{}", unlisted.len(), unlisted.join("\n"));
    assert!(gone.is_empty(), "docs/compat.md lists differences that do not exist: {gone:?}");
}

/// Reads the reference's CRDs, by plural name.
#[expect(clippy::disallowed_methods, reason = "tests read fixtures from disk")]
fn reference_crds() -> BTreeMap<String, Value> {
    let oracle = std::env::var_os("MCO_ORACLE_DIR")
        .map_or_else(|| workspace().join("../shared/oracle"), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(oracle.join("../crds")) else { return BTreeMap::new() };
    entries
        .map(|entry| entry.expect("the directory is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| parse(&path))
        .map(|crd| (plural(&crd), crd))
        .collect()
}

fn parse(path: &Path) -> Value {
    let text = read(path).unwrap_or_else(|| panic!("{} is not readable", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn plural(crd: &Value) -> String {
    crd["spec"]["names"]["plural"].as_str().expect("every CRD has a plural name").to_owned()
}

/// Reads the rows `| plural | fact | reason |` under the heading, as (plural, fact).
fn allowed_differences() -> BTreeSet<(String, String)> {
    let compat = read(&workspace().join("docs/compat.md")).unwrap_or_default();
    compat
        .lines()
        .skip_while(|line| line.trim() != "## CRD differences")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| {
            let cells: Vec<_> = line.trim().strip_prefix('|')?.split('|').map(str::trim).collect();
            let [plural, fact, reason, ..] = cells.as_slice() else { return None };
            let is_row = *plural != "plural" && !plural.starts_with('-') && !reason.is_empty();
            is_row.then(|| ((*plural).to_owned(), fact.trim_matches('`').to_owned()))
        })
        .collect()
}

/// Returns all facts of a CRD, by key.
fn facts(crd: &Value) -> Facts {
    let mut facts = Facts::new();
    facts.insert("name".to_owned(), crd["metadata"]["name"].to_string());
    if let Some(labels) = crd["metadata"].get("labels") {
        facts.insert("labels".to_owned(), labels.to_string());
    }
    for (key, value) in members(&crd["spec"]) {
        if key != "versions" {
            leaves(&format!("crd.{key}"), value, &mut facts);
        }
    }
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let name = version["name"].as_str().expect("a version has a name");
        for (key, value) in members(version) {
            match key.as_str() {
                "schema" => schema(&value["openAPIV3Schema"], "", &mut facts),
                "additionalPrinterColumns" => columns(value, &mut facts),
                _ => leaves(&format!("{name}.{key}"), value, &mut facts),
            }
        }
    }
    facts
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn columns(list: &Value, facts: &mut Facts) {
    for (place, column) in list.as_array().into_iter().flatten().enumerate() {
        for (key, value) in members(column) {
            if key != "description" {
                facts.insert(format!("column {place}: {key}"), value.to_string());
            }
        }
    }
}

/// Collects all leaves of a value that is not a schema.
fn leaves(path: &str, value: &Value, facts: &mut Facts) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                leaves(&format!("{path}.{key}"), value, facts);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            facts.insert(path.to_owned(), value.to_string());
        }
    }
}

fn schema(node: &Value, path: &str, facts: &mut Facts) {
    for (key, value) in members(node) {
        match key.as_str() {
            "description" => {}
            "properties" => {
                for (name, member) in members(value) {
                    let dot = if path.is_empty() { "" } else { "." };
                    schema(member, &format!("{path}{dot}{name}"), facts);
                }
            }
            "items" => schema(value, &format!("{path}[]"), facts),
            "additionalProperties" => schema(value, &format!("{path}{{}}"), facts),
            "required" | "enum" => {
                let mut words: Vec<_> =
                    value.as_array().into_iter().flatten().map(Value::to_string).collect();
                words.sort();
                facts.insert(format!("{path}: {key}"), words.join(", "));
            }
            "x-kubernetes-validations" => {
                for (place, rule) in value.as_array().into_iter().flatten().enumerate() {
                    for (key, value) in members(rule).filter(|(key, _)| *key != "message") {
                        facts.insert(format!("{path}: rule {place} {key}"), value.to_string());
                    }
                }
            }
            _ => {
                // Some libraries write limits as floating-point numbers and others as integers.
                let whole = value.as_f64().map(|number| number.to_string());
                let text = whole.unwrap_or_else(|| value.to_string());
                facts.insert(format!("{path}: {key}"), text);
            }
        }
    }
}
