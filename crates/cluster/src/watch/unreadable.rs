//! Objects that cannot be decoded.
//!
//! Messages of serde quote the value that does not fit. An object may have secrets, so only the path
//! and the position of the fault are reported.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, error::Category};

use crate::Object;

/// An object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// API version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object, if it has one.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Uid of the object.
    pub uid: Option<String>,
    /// Resource version of the object.
    pub resource_version: Option<String>,
    /// Labels of the object; `None` if they cannot be decoded either.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the object; `None` if they cannot be decoded either.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Path and position of the fault, without any value.
    pub fault: String,
}

impl Unreadable {
    /// Describes an object that failed to decode.
    pub(crate) fn of<K: Object>(json: &str, error: &serde_json::Error) -> Self {
        let found: Value = serde_json::from_str(json).unwrap_or_default();
        let metadata = found.get("metadata");
        let text = |key: &str| metadata?.get(key)?.as_str().map(str::to_owned);
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            labels: texts(metadata.and_then(|metadata| metadata.get("labels"))),
            annotations: texts(metadata.and_then(|metadata| metadata.get("annotations"))),
            fault: fault(json, error),
        }
    }

    /// Returns the name under which a cache would have the object.
    pub(crate) fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the resource version as a number.
    pub(crate) fn version(&self) -> Option<u64> {
        self.resource_version.as_ref()?.parse().ok()
    }

    /// Returns a reference to the object.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: Some(self.name.clone()),
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            field_path: None,
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} cannot be decoded: {}", self.kind, self.key(), self.fault)
    }
}

/// Returns a map of texts; none if a value is anything else.
fn texts(value: Option<&Value>) -> Option<BTreeMap<String, String>> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Some(BTreeMap::new()) };
    let entries = value.as_object()?.iter();
    entries.map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the path and the position of a fault.
fn fault(json: &str, error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        Category::Data => "unexpected type or missing member",
        Category::Syntax | Category::Eof | Category::Io => "invalid JSON",
    };
    // An object is one line of text.
    match (error.line(), error.column()) {
        (1, column) => {
            let path = path(json.get(..column.min(json.len())).unwrap_or_default());
            format!("{kind} at {path} (column {column})")
        }
        (0, _) => kind.to_owned(),
        (line, column) => format!("{kind} at line {line}, column {column}"),
    }
}

/// Returns the path of the value that a JSON text ends in.
fn path(text: &str) -> String {
    let mut steps: Vec<Step> = Vec::new();
    let mut last = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => last = string(&mut chars),
            '{' => steps.push(Step::Member(String::new())),
            '[' => steps.push(Step::Item(0)),
            // The end of a member is reported at the brace that follows it.
            '}' | ']' => drop(steps.pop()),
            ':' => {
                if let Some(Step::Member(name)) = steps.last_mut() {
                    name.clone_from(&last);
                }
            }
            ',' => {
                if let Some(Step::Item(at)) = steps.last_mut() {
                    *at = at.saturating_add(1);
                }
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Member(name) if path.is_empty() => path.push_str(&name),
            Step::Member(name) => path.extend([".", &name]),
            Step::Item(at) => path.extend(["[", &at.to_string(), "]"]),
        }
    }
    path
}

enum Step {
    Member(String),
    Item(usize),
}

/// Returns a string up to its closing quote.
fn string(chars: &mut std::str::Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(char) = chars.next() {
        match char {
            '"' => break,
            '\\' => drop(chars.next()),
            char => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use mco_api::MachineConfig;

    use super::*;

    fn of(json: &str) -> Unreadable {
        Unreadable::of::<MachineConfig>(json, &MachineConfig::decode(json).unwrap_err())
    }

    #[test]
    fn the_fault_is_named_by_path_and_never_by_value() {
        let rows = [
            (r#"{"metadata":{"name":"a","finalizers":"SECRET"},"spec":{}}"#, "metadata.finalizers"),
            (
                r#"{"metadata":{"name":"a","uid":"u"},"spec":{"kernelArguments":["SECRET",7]}}"#,
                "spec.kernelArguments[1]",
            ),
            (
                r#"{"metadata":{"name":"a","labels":{"\"x":{}}},"spec":{"osImageURL":"SECRET"}}"#,
                "metadata.labels",
            ),
        ];
        for (json, path) in rows {
            let found = of(json);
            assert!(found.fault.contains(path), "{}", found.fault);
            assert!(!found.to_string().contains("SECRET"), "{found}");
            assert_eq!(found.name, "a");
        }
    }

    #[test]
    fn labels_are_known_unless_they_are_the_fault() {
        let found = of(r#"{"metadata":{"name":"a","labels":{"r":"w"},"finalizers":7},"spec":{}}"#);
        assert_eq!(found.labels.unwrap()["r"], "w");
        let found = of(r#"{"metadata":{"name":"a","labels":{"r":7}},"spec":{}}"#);
        assert_eq!(found.labels, None);
    }
}
