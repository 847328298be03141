//! Validation of ConfigMaps and Secrets.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::unchanged;
use crate::{failure::Fault, object};

/// Maximum size of the data.
const MAX_SIZE: usize = 1024 * 1024;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
    (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
    '[-._a-zA-Z0-9]+')";

const FROZEN: &str = "field is immutable when `immutable` is set";

/// Validates a ConfigMap.
pub(super) fn config_map(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = frozen(new, old, &["data", "binaryData"]);
    let (data, binary) = (map(new, "data"), map(new, "binaryData"));
    for key in data.keys() {
        faults.extend(key_faults("data", key));
        if binary.contains_key(key) {
            let rule = "duplicate of key present in binaryData";
            faults.push(Fault::invalid(format!("data[{key}]"), &json!(key), rule));
        }
    }
    for key in binary.keys() {
        faults.extend(key_faults("binaryData", key));
    }
    let texts = data.values().filter_map(Value::as_str).map(str::len).sum::<usize>();
    if texts + binary.values().map(size).sum::<usize>() > MAX_SIZE {
        faults.push(Fault::too_long("[]", MAX_SIZE));
    }
    faults
}

/// Validates a Secret.
pub(super) fn secret(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults: Vec<Fault> =
        old.and_then(|old| unchanged(&["type"], new, old)).into_iter().collect();
    faults.extend(frozen(new, old, &["data"]));
    let data = map(new, "data");
    for key in data.keys() {
        faults.extend(key_faults("data", key));
    }
    if data.values().map(size).sum::<usize>() > MAX_SIZE {
        faults.push(Fault::too_long("data", MAX_SIZE));
    }
    let missing = |key: &str| Fault::required(format!("data[{key}]"), "");
    let is_absent = |key: &str| !data.contains_key(key);
    match object::text(new, &["type"]) {
        "kubernetes.io/service-account-token" => {
            let annotation = "kubernetes.io/service-account.name";
            if object::text(new, &["metadata", "annotations", annotation]).is_empty() {
                faults.push(Fault::required(format!("metadata.annotations[{annotation}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => faults.extend(json_value(&data, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => faults.extend(json_value(&data, ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if is_absent("username") && is_absent("password") => {
            faults.extend([missing("username"), missing("password")]);
        }
        "kubernetes.io/ssh-auth"
            if data.get("ssh-privatekey").is_none_or(|it| *it == json!("")) =>
        {
            faults.push(missing("ssh-privatekey"));
        }
        "kubernetes.io/tls" => {
            faults.extend(
                ["tls.crt", "tls.key"].into_iter().filter(|key| is_absent(key)).map(missing),
            );
        }
        _ => {}
    }
    faults
}

fn json_value(data: &Map<String, Value>, key: &str) -> Option<Fault> {
    let place = format!("data[{key}]");
    let Some(text) = data.get(key) else { return Some(Fault::required(place, "")) };
    let bytes = STANDARD.decode(text.as_str().unwrap_or("")).unwrap_or_default();
    if serde_json::from_slice::<Map<String, Value>>(&bytes).is_ok() {
        return None;
    }
    let first = bytes.first().copied().map(char::from);
    let why = match first {
        Some(c) => format!("invalid character '{c}' looking for beginning of value"),
        None => "unexpected end of JSON input".to_owned(),
    };
    Some(Fault::invalid(place, &json!("<secret contents redacted>"), &why))
}

fn map(object: &Value, field: &str) -> Map<String, Value> {
    object.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn size(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.len() / 4 * 3)
}

/// Validates that an immutable object does not change.
fn frozen(new: &Value, old: Option<&Value>, fields: &[&str]) -> Vec<Fault> {
    let is_set = |object: &Value| object.get("immutable") == Some(&json!(true));
    let Some(old) = old.filter(|old| is_set(old)) else { return Vec::new() };
    let mut faults = Vec::new();
    if !is_set(new) {
        faults.push(Fault::forbidden("immutable", FROZEN));
    }
    for field in fields {
        if new.get(*field) != old.get(*field) {
            faults.push(Fault::forbidden(*field, FROZEN));
        }
    }
    faults
}

fn key_faults(field: &str, key: &str) -> Vec<Fault> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut rules = Vec::new();
    if key.len() > 253 {
        rules.push("must be no more than 253 bytes");
    }
    if key.is_empty() || !key.chars().all(fine) {
        rules.push(KEY);
    }
    match key {
        "." => rules.push("must not be '.'"),
        ".." => rules.push("must not be '..'"),
        _ if key.starts_with("..") => rules.push("must not start with '..'"),
        _ => {}
    }
    let fault = |rule: &str| Fault::invalid(format!("{field}[{key}]"), &json!(key), rule);
    rules.into_iter().map(fault).collect()
}
