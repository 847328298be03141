//! The sections in which two configs differ, as the reference flags them, with the intended
//! differences.
//!
//! The reference compares whole sections as they are written, so a list in another order, or an
//! empty list instead of none, counts as a change. `mco` does not count it, because the node would
//! not change. These rules recognise the situation from the input alone.

use std::collections::BTreeMap;

use mco_core::diff::{ConfigDiff, ImageMode};
use serde_json::{Map, Value, json};

/// Returns the flags of a diff.
pub(super) fn flags(diff: &ConfigDiff) -> Value {
    json!({
        "osUpdate": diff.os_image.is_some(),
        "kargs": diff.kernel_arguments.is_some(),
        "fips": diff.fips.is_some(),
        "passwd": diff.users.is_some(),
        "files": !diff.files.is_empty(),
        "units": !diff.units.is_empty(),
        "kernelType": diff.kernel_type.is_some(),
        "extensions": diff.extensions.is_some(),
        "oclEnabled": diff.image_mode != ImageMode::Off,
        "revertFromOCL": diff.image_mode == ImageMode::Leaving,
    })
}

/// Flag, path of its section in an Ignition config, and the key of the section's entries.
const FLAGGED: [(&str, &str, &str); 3] = [
    ("files", "/storage/files", "path"),
    ("units", "/systemd/units", "name"),
    ("passwd", "/passwd", ""),
];

/// Accepts the reference's flag for a section in which only order or empty lists differ.
pub(super) fn accept_spelling(input: &Value, expected: &Value, mut found: Value) -> Value {
    for (flag, section, key) in FLAGGED {
        let theirs = expected.get(flag).and_then(Value::as_bool).unwrap_or_default();
        if theirs && is_only_spelling(input, section, key) {
            super::put(&mut found, flag, json!(true));
        }
    }
    found
}

/// Returns true if the reference rejects a change only because a list is empty on one side and
/// absent on the other.
pub(super) fn is_refused_for_empty_lists(input: &Value, refusal: &str) -> bool {
    const NAMED: [(&str, &str); 8] = [
        ("ignition Passwd Groups section", "/passwd/groups"),
        ("invalid passwd change(s)", "/passwd/users"),
        ("ignition kargs section", "/kernelArguments"),
        ("ignition disks section", "/storage/disks"),
        ("ignition filesystems section", "/storage/filesystems"),
        ("ignition raid section", "/storage/raid"),
        ("ignition directories section", "/storage/directories"),
        ("ignition links section", "/storage/links"),
    ];
    let named = NAMED.iter().find(|(text, _)| refusal.contains(text));
    named.is_some_and(|(text, section)| {
        let users = *text == "invalid passwd change(s)";
        is_only_spelling(input, section, "")
            // The keys changed too; the reference rejects the empty list beside them.
            || (users && part(input, "new", section).is_some_and(|users| has_empty_list(&users)))
    })
}

/// Returns true if a section differs only in order and empty lists.
pub(super) fn is_only_spelling(input: &Value, section: &str, key: &str) -> bool {
    let (old, new) = (part(input, "old", section), part(input, "new", section));
    old != new && tidy(old, key) == tidy(new, key)
}

fn part(input: &Value, side: &str, section: &str) -> Option<Value> {
    input.pointer(&format!("/{side}/spec/config{section}")).filter(|part| !part.is_null()).cloned()
}

fn tidy(part: Option<Value>, key: &str) -> Option<Value> {
    let mut part = without_empty_lists(part?)?;
    if let Some(entries) = part.as_array_mut().filter(|_| !key.is_empty()) {
        let by_key: BTreeMap<String, Value> = entries
            .drain(..)
            .map(|entry| (entry.get(key).unwrap_or(&Value::Null).to_string(), entry))
            .collect();
        entries.extend(by_key.into_values());
    }
    Some(part)
}

fn without_empty_lists(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => {
            let kept: Vec<Value> = items.into_iter().filter_map(without_empty_lists).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Object(members) => {
            let kept: Map<String, Value> = members
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_empty_lists(value)?)))
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        plain @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(plain),
    }
}

fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(members) => members.values().any(has_empty_list),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
