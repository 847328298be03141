//! Answers, and their comparison.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Fields whose values differ between two servers, because they are times, versions and identities.
const MASKED: [&str; 14] = [
    "uid",
    "username",
    "token",
    "expirationTimestamp",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "lastTransitionTime",
    "lastUpdateTime",
    "continue",
    "eventTime",
    "lastTimestamp",
    "firstTimestamp",
];

/// Field that the difference `callers` leaves out.
const UNSEEN: &str = "extra";

/// Headers that matter to clients.
pub(crate) const HEADERS: [&str; 4] = ["content-type", "warning", "retry-after", "allow"];

/// An answer, without what differs between two servers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: BTreeMap<String, Vec<String>>,
    /// The body, or the events of a watch.
    pub(crate) body: Value,
}

impl Answer {
    /// Returns the reason of a refusal. Text that is no `Status` has none.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.body.get("reason")?.as_str()
    }
}

/// Replaces times, versions and identities.
pub(crate) fn masked(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(masked_map(map)),
        Value::Array(list) => list.iter().map(masked).collect(),
        Value::String(text) => Value::String(masked_text(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn masked_map(map: &Map<String, Value>) -> Map<String, Value> {
    let generated = map.get("generateName").and_then(Value::as_str);
    // The difference `reviews`.
    let kind = map.get("spec").and(map.get("metadata")).and(map.get("kind"));
    let kind = kind.and_then(Value::as_str).unwrap_or_default();
    if kind.ends_with("Review") || kind == "TokenRequest" {
        let mut plain = map.clone();
        plain.insert("kind".to_owned(), json!(format!("<{kind}>")));
        if let Some(metadata) = plain.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return masked_map(&plain);
    }
    let entries = map.iter().filter(|(key, _)| *key != UNSEEN).map(|(key, value)| {
        let value = match (key.as_str(), value) {
            (key, Value::String(text)) if MASKED.contains(&key) && !text.is_empty() => {
                json!(format!("<{key}>"))
            }
            ("name", Value::String(name)) => match generated {
                Some(prefix) if is_generated(prefix, name) => json!(format!("{prefix}<random>")),
                _ => value.clone(),
            },
            // The difference `node-taint`.
            ("taints", Value::Array(taints)) => {
                let is_given = |taint: &&Value| taint["key"] != "node.kubernetes.io/not-ready";
                taints.iter().filter(is_given).map(masked).collect()
            }
            ("columnDefinitions", Value::Array(columns)) => {
                columns.iter().map(without_description).collect()
            }
            // Their order depends on their times.
            ("managedFields", Value::Array(entries)) => {
                let mut entries: Vec<Value> = entries.iter().map(masked).collect();
                let words = ["operation", "manager", "apiVersion", "subresource"];
                entries.sort_by_key(|entry| words.map(|word| entry[word].to_string()));
                Value::Array(entries)
            }
            // The difference `service-addresses`.
            ("clusterIPs", Value::Array(all)) => all.iter().map(masked_address).collect(),
            ("clusterIP", Value::String(_)) => masked_address(value),
            ("nodePort" | "healthCheckNodePort", Value::Number(_)) => json!("<node port>"),
            // The age of an object in a table.
            ("cells", Value::Array(cells)) => cells.iter().map(masked_cell).collect(),
            _ => masked(value),
        };
        // The fields of an owner are named by its UID.
        (if key.starts_with("k:") { masked_text(key) } else { key.clone() }, value)
    });
    let mut out: Map<String, Value> = entries.collect();
    if out.get("taints") == Some(&json!([])) {
        out.remove("taints");
    }
    out
}

/// Replaces the address of a Service.
fn masked_address(address: &Value) -> Value {
    match address.as_str().map(str::parse::<std::net::IpAddr>) {
        Some(Ok(_)) => json!("<address>"),
        _ => address.clone(),
    }
}

/// Returns a column without its description, which is the difference `column-descriptions`.
fn without_description(column: &Value) -> Value {
    let mut column = column.clone();
    if let Some(map) = column.as_object_mut() {
        map.remove("description");
    }
    column
}

fn is_generated(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.len() == 5)
}

/// Returns a cell without ages, addresses and node ports.
fn masked_cell(cell: &Value) -> Value {
    if let Some(text) = cell.as_str().filter(|text| text.starts_with("10.")) {
        return masked_address(&json!(text));
    }
    if let Some((port, rest)) = cell.as_str().and_then(|text| text.split_once(':'))
        && let Some((node, protocol)) = rest.split_once('/')
        && [port, node].iter().all(|part| part.parse::<u16>().is_ok())
    {
        return json!(format!("{port}:<node port>/{protocol}"));
    }
    if matches!(cell.as_str(), Some("admin" | "system:admin")) {
        return json!("<username>");
    }
    let seconds = cell.as_str().and_then(|text| text.strip_suffix('s'));
    match seconds {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            json!("<age>")
        }
        _ => masked(cell),
    }
}

/// Replaces UUIDs, times, and the numbers of resource versions in a text.
fn masked_text(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        out.push_str(if is_uuid(word) {
            "<uid>"
        } else if is_time(word) {
            "<time>"
        } else if is_version(word, out) {
            "<version>"
        } else {
            word
        });
        word.clear();
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | ':') {
            word.push(c);
        } else {
            flush(&mut word, &mut out);
            out.push(c);
        }
    }
    flush(&mut word, &mut out);
    out
}

fn is_uuid(word: &str) -> bool {
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12]
}

fn is_time(word: &str) -> bool {
    word.len() == 20 && word.ends_with('Z') && word.get(10..11) == Some("T")
}

fn is_version(word: &str, before: &str) -> bool {
    let is_number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let after = ["ResourceVersion in object meta: ", "resource version: ", "current: ", "("];
    is_number && after.iter().any(|words| before.ends_with(words))
}

/// Lists the differences between two answers.
pub(crate) fn compare(ours: &Answer, theirs: &Answer, out: &mut Vec<String>) {
    if ours.code != theirs.code {
        out.push(format!("code: {} instead of {}", ours.code, theirs.code));
    }
    for header in HEADERS {
        let (ours, theirs) = (ours.headers.get(header), theirs.headers.get(header));
        if ours != theirs {
            out.push(format!("header {header}: {ours:?} instead of {theirs:?}"));
        }
    }
    difference("", &ours.body, &theirs.body, out);
}

fn difference(path: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(missing) {
                let below = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => difference(&below, a, b, out),
                    (Some(a), None) => out.push(format!("{below}: {} is too much", short(a))),
                    (None, Some(b)) => out.push(format!("{below}: {} is missing", short(b))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                difference(&format!("{path}[{at}]"), a, b, out);
            }
        }
        (a, b) if a != b => {
            out.push(format!("{path}: {}\n        instead of {}", short(a), short(b)));
        }
        _ => {}
    }
}

/// Returns the start of a value, because some sequences send large ones.
fn short(value: &Value) -> String {
    value.to_string().chars().take(1000).collect()
}
