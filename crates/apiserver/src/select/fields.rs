//! Field selectors: their text, and the values of the fields that they name.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    failure::Failure,
    resource::{Form, Resource},
    store::Head,
};

/// A requirement on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The places of the value in a stored object. The first one that is not empty counts.
    paths: Vec<Vec<String>>,
    value: String,
    is_equal: bool,
    /// The value of an absent field.
    absent: &'static str,
}

impl Field {
    /// Builds the requirement that an object has this name.
    pub(super) fn named(name: &str) -> Self {
        let paths = vec![path("metadata.name")];
        Self { paths, value: name.to_owned(), is_equal: true, absent: "" }
    }

    /// Returns true if the head of an object has the field and the requirement holds, or nothing if
    /// the head lacks the field.
    pub(super) fn holds_for_head(&self, head: &Head) -> Option<bool> {
        let [path] = self.paths.as_slice() else { return None };
        let [group, name] = path.as_slice() else { return None };
        let found: &str = match (group.as_str(), name.as_str()) {
            ("metadata", "name") => &head.name,
            ("metadata", "namespace") => &head.namespace,
            ("spec", "nodeName") => &head.node,
            ("status", "phase") => &head.phase,
            _ => return None,
        };
        Some((found == self.value) == self.is_equal)
    }

    /// Returns true if the requirement holds for a stored object.
    pub(super) fn holds(&self, object: &Value) -> bool {
        let mut values = self.paths.iter().map(|path| shown(object, path));
        let found = values.find(|value| !value.is_empty());
        let found = found.as_deref().unwrap_or(self.absent);
        (found == self.value) == self.is_equal
    }
}

/// Returns the value at a path as text, empty if it is absent.
fn shown<'a>(object: &'a Value, path: &[String]) -> Cow<'a, str> {
    match path.iter().try_fold(object, |value, key| value.get(key)) {
        Some(Value::String(text)) => text.into(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string().into(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => "".into(),
    }
}

fn path(text: &str) -> Vec<String> {
    text.split('.').map(str::to_owned).collect()
}

/// Parses a selector. Fails with the message of kube-apiserver.
pub(super) fn parse(text: &str, resource: &Resource) -> Result<Vec<Field>, Failure> {
    let mut terms = split(text);
    terms.sort_unstable();
    let terms = terms.into_iter().filter(|term| !term.is_empty());
    let terms: Vec<Term<'_>> = terms.map(|term| read(text, term)).collect::<Result<_, _>>()?;
    // Compat: a requirement without a field selects everything.
    let terms = terms.into_iter().filter(|term| !term.field.is_empty() || !term.value.is_empty());
    terms.map(|term| resolved(term, resource)).collect()
}

/// A requirement as it is written.
struct Term<'a> {
    field: &'a str,
    is_equal: bool,
    value: String,
}

/// Reads a term of the selector `text`.
fn read<'a>(text: &str, term: &'a str) -> Result<Term<'a>, Failure> {
    let (field, is_equal, value) = operator(term).ok_or_else(|| {
        let why = format!("invalid selector: '{text}'; can't understand '{term}'");
        Failure::bad_request(why)
    })?;
    let value = unescaped(value).map_err(Failure::bad_request)?;
    Ok(Term { field, is_equal, value })
}

/// Finds the field of a term in the objects of a resource.
fn resolved(term: Term<'_>, resource: &Resource) -> Result<Field, Failure> {
    let Term { field, is_equal, value } = term;
    if !resource.has_selectable_field(field) {
        return Err(Failure::bad_request(unsupported(field, resource)));
    }
    let (paths, absent) = places(field, resource);
    Ok(Field { paths, value, is_equal, absent })
}

/// Splits a selector at its commas, except at those behind a backslash.
fn split(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.extend(text.get(start..));
    terms
}

/// Splits a term at its first operator. The flag is true if the values must be equal.
fn operator(term: &str) -> Option<(&str, bool, &str)> {
    let (field, value) = term.split_once('=')?;
    Some(match field.strip_suffix('!') {
        Some(field) => (field, false, value),
        None => (field, true, value.strip_prefix('=').unwrap_or(value)),
    })
}

/// Returns a value without its backslashes.
fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    let why = "invalid field selector: invalid escape sequence";
                    return Err(format!("{why}: \\{other}"));
                }
            },
            // Compat: the message has the number of the character.
            ',' | '=' => {
                let why = "invalid field selector: unescaped character in value";
                return Err(format!("{why}: {}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Returns the places of a selectable field in stored objects, and its value where it is absent.
fn places(field: &str, resource: &Resource) -> (Vec<Vec<String>>, &'static str) {
    let one = |text: &str| vec![path(text)];
    if resource.custom {
        return (one(field), "");
    }
    match (resource.kind.as_str(), field) {
        // Compat: the name of the field before v1.
        ("Pod", "spec.host") => (one("spec.nodeName"), ""),
        ("Pod", "spec.hostNetwork") | ("Node", "spec.unschedulable") => (one(field), "false"),
        // Compat: Jobs call the number of their succeeded pods differently in selectors.
        ("Job", "status.successful") => (one("status.succeeded"), "0"),
        ("Event", "source") => (vec![path("source.component"), path("reportingComponent")], ""),
        ("Event", "reportingController") => (one("reportingComponent"), ""),
        ("Event", _) if resource.form == Form::NewEvent => {
            (one(&field.replacen("regarding.", "involvedObject.", 1)), "")
        }
        _ => (one(field), ""),
    }
}

/// Returns the message about a field that cannot be selected by.
fn unsupported(field: &str, resource: &Resource) -> String {
    if resource.selectable.is_empty() && !resource.custom {
        let is_definition = resource.kind == "CustomResourceDefinition";
        let namespace = if is_definition { "" } else { ", \"metadata.namespace\"" };
        return format!(
            "\"{field}\" is not a known field selector: only \"metadata.name\"{namespace}"
        );
    }
    if resource.kind == "Job" && !resource.custom {
        return format!("field label {field:?} not supported for Job");
    }
    format!("field label not supported: {field}")
}
