//! YAML writer for CRDs: deterministic output that is easy to review.
//!
//! Strings are unquoted only if no YAML parser could take them for another type. Otherwise they are
//! written as JSON strings, which are valid YAML too.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Number, Value};

/// Formats a CRD as one YAML document.
#[must_use]
pub fn crd_yaml(crd: &CustomResourceDefinition) -> String {
    object_yaml(&members(crd))
}

/// Formats any object as one YAML document, with its members sorted.
#[must_use]
pub fn object_yaml(object: &Map<String, Value>) -> String {
    let mut out = String::new();
    write_map(object, 0, &mut out);
    out
}

fn members(crd: &CustomResourceDefinition) -> Map<String, Value> {
    let value =
        serde_json::to_value(crd).expect("a CRD has only string keys, so it converts to JSON");
    if let Value::Object(map) = value { map } else { Map::new() }
}

/// Writes `key: value` lines. The caller has already indented the first line.
fn write_map(map: &Map<String, Value>, indent: usize, out: &mut String) {
    // Another crate may switch on serde_json's insertion order; the file must not change with it.
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (place, (key, value)) in entries.into_iter().enumerate() {
        if place > 0 {
            pad(indent, out);
        }
        out.push_str(&scalar(key));
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                pad(indent + 2, out);
                write_map(inner, indent + 2, out);
            }
            Value::Array(items) if !items.is_empty() => write_list(items, indent, out),
            Value::String(text) if text.contains('\n') && is_tidy(text) => {
                write_block(text, indent + 2, out);
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {
                out.push(' ');
                out.push_str(&leaf(value));
                out.push('\n');
            }
        }
    }
}

/// Writes `- item` lines below the key that they belong to.
fn write_list(items: &[Value], indent: usize, out: &mut String) {
    out.push('\n');
    for item in items {
        pad(indent, out);
        out.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => write_map(inner, indent + 2, out),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {
                out.push_str(&leaf(item));
                out.push('\n');
            }
        }
    }
}

/// Writes a multi-line text as a block scalar.
fn write_block(text: &str, indent: usize, out: &mut String) {
    out.push_str(" |-\n");
    for line in text.split('\n') {
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
        out.push('\n');
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Returns true if a block scalar preserves the text: no lines with surrounding white space, and no
/// control characters.
fn is_tidy(text: &str) -> bool {
    text.split('\n').all(|line| line.trim() == line && line.chars().all(|c| !c.is_control()))
        && text.trim() == text
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Number(number) => whole(number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Formats a number without a fraction of zero: the CRD type has floating-point limits, but
/// administrators write 1, not 1.0.
fn whole(number: &Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

/// Returns true if every YAML parser reads the unquoted text as a string.
fn is_plain(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let word = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic())
        || (text.starts_with('.') && ![".inf", ".nan"].contains(&lower.as_str()));
    starts_well
        && text.chars().nth(1).is_none_or(|c| !c.is_ascii_digit() || !text.starts_with('.'))
        && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        && !word.contains(&lower.as_str())
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([' ', ':'])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_unambiguous_text_is_unquoted() {
        let cases = [
            ("string", "string"),
            ("A sentence, with (marks) and 'quotes'.", "A sentence, with (marks) and 'quotes'."),
            (".spec.pool.name", ".spec.pool.name"),
            ("", "\"\""),
            ("yes", "\"yes\""),
            ("Off", "\"Off\""),
            ("null", "\"null\""),
            ("3", "\"3\""),
            (".5", "\".5\""),
            (".NaN", "\".NaN\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("a:", "\"a:\""),
            ("'a'", "\"'a'\""),
            ("^a$", "\"^a$\""),
            ("a\\b\"c\u{7}", "\"a\\\\b\\\"c\\u0007\""),
            ("- a", "\"- a\""),
        ];
        for (text, expected) in cases {
            assert_eq!(scalar(text), expected);
        }
    }

    #[test]
    fn nested_values_are_indented() {
        let value = json!({
            "b": [{"x": 1, "z": []}, "two"],
            "a": {"c": {}, "d": "first\n\nsecond", "e": 2.0, "f": 0.5}
        });
        let mut out = String::new();
        write_map(value.as_object().expect("a map"), 0, &mut out);
        let expected = "\
a:
  c: {}
  d: |-
    first

    second
  e: 2
  f: 0.5
b:
- x: 1
  z: []
- two
";
        assert_eq!(out, expected);
    }
}
