//! Removal of secrets from objects and logs that leave a cluster.
//!
//! Contents are replaced by their size and hash, so that two of them can be compared; secrets are
//! replaced by their size alone. Contents that an engineer needs and that hold no secrets are kept: a
//! short list of files and ConfigMaps, through the filter of [`text`].

mod ignition;
mod text;

use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

pub use self::text::text;

/// Annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// ConfigMaps of public contents.
const PUBLIC_CONFIG_MAPS: [&str; 4] =
    ["kube-root-ca.crt", "machine-config-server-ca", "cluster-settings", "ssh-authorized-keys"];

/// Environment variables whose values are no secrets.
const PUBLIC_VARIABLES: [&str; 6] = [
    "RELEASE_VERSION",
    "MALLOC_TRIM_THRESHOLD_",
    "NODE_NAME",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "RUST_LOG",
];

/// Members of a ControllerConfig that hold credentials.
const CREDENTIALS: [&str; 2] = ["internalRegistryPullSecret", "cloudProviderConfig"];

/// Removes the secrets of an object, by its kind.
pub fn object(kind: &str, object: &mut Value) {
    metadata(object);
    match kind {
        "Secret" => {
            hide_members(object, "data", sized);
            hide_members(object, "stringData", sized);
        }
        "ConfigMap" => config_map(object),
        "MachineConfig" => {
            if let Some(config) = object.pointer_mut("/spec/config") {
                ignition::config(config);
            }
        }
        "ControllerConfig" => {
            for name in CREDENTIALS {
                if let Some(member) = object.pointer_mut(&format!("/spec/{name}")) {
                    hide(member);
                }
            }
        }
        _ => {}
    }
    strings(object);
}

/// Removes members of the metadata that repeat the object.
fn metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && let Some(applied) = annotations.get_mut(LAST_APPLIED)
    {
        hide(applied);
    }
}

fn config_map(object: &mut Value) {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if !PUBLIC_CONFIG_MAPS.contains(&name) {
        hide_members(object, "data", hashed);
        hide_members(object, "binaryData", hashed);
    }
}

fn hide_members(object: &mut Value, name: &str, hidden: fn(&str) -> String) {
    let members = object.get_mut(name).and_then(Value::as_object_mut);
    for (_, value) in members.into_iter().flatten() {
        *value = json!(hidden(value.as_str().unwrap_or_default()));
    }
}

/// Replaces a value by its size.
fn hide(value: &mut Value) {
    *value = match &*value {
        Value::Null => Value::Null,
        Value::String(text) if text.is_empty() => json!(""),
        Value::String(text) => json!(sized(text)),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            json!(sized(&other.to_string()))
        }
    };
}

fn sized(text: &str) -> String {
    format!("(redacted: {} bytes)", text.len())
}

/// Returns size and hash of contents.
fn hashed(text: &str) -> String {
    hashed_bytes(text.as_bytes())
}

fn hashed_bytes(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let digit = |number: u8| char::from_digit(number.into(), 16).unwrap_or_default();
    let hash: String =
        hash.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect();
    format!("(redacted: {} bytes, sha256 {hash})", bytes.len())
}

/// Filters all remaining strings, and the values of environment variables.
fn strings(value: &mut Value) {
    match value {
        Value::String(found) => {
            let filtered = text(found);
            if filtered != *found {
                *found = filtered;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strings),
        Value::Object(members) => {
            variable(members);
            for (name, member) in members.iter_mut() {
                if text::is_secret_name(name) && !is_reference(name) {
                    secret(member);
                } else {
                    strings(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Hides the member of a secret name: one text, or several, such as the values of a header.
fn secret(value: &mut Value) {
    match value {
        Value::String(found) if found.starts_with("(redacted") => {}
        Value::String(_) => hide(value),
        Value::Array(items) => items.iter_mut().for_each(secret),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => strings(value),
    }
}

/// Returns true for a member that names a Secret and does not contain it.
fn is_reference(name: &str) -> bool {
    name == "secret" || name.ends_with("Name")
}

/// Hides the value of an environment variable in the spec of a container.
fn variable(members: &mut Map<String, Value>) {
    let is_variable = members.len() == 2;
    let name = members.get("name").and_then(Value::as_str).unwrap_or_default();
    let is_public = PUBLIC_VARIABLES.contains(&name);
    if let (true, false, Some(value)) = (is_variable, is_public, members.get_mut("value"))
        && value.is_string()
    {
        hide(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(kind: &str, mut value: Value) -> Value {
        object(kind, &mut value);
        value
    }

    #[test]
    fn secrets_keep_only_their_keys_and_sizes() {
        let found = redacted(
            "Secret",
            json!({"metadata": {"name": "a", "managedFields": [{"manager": "m"}], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":\"MARKER\"}"}},
                "data": {"tls.key": "TUFSS0VS"}, "stringData": {"password": "MARKER"}}),
        );
        let expected = json!({"metadata": {"name": "a", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "(redacted: 17 bytes)"}},
            "data": {"tls.key": "(redacted: 8 bytes)"},
            "stringData": {"password": "(redacted: 6 bytes)"}});
        assert_eq!(found, expected);
    }

    #[test]
    fn contents_of_other_objects_keep_what_an_engineer_needs() {
        let map = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "text MARKER"}});
        let found = redacted("ConfigMap", map("user"));
        let text = found["data"]["a"].as_str().unwrap();
        assert!(text.starts_with("(redacted: 11 bytes, sha256 "), "{text}");
        assert_eq!(redacted("ConfigMap", map("kube-root-ca.crt"))["data"]["a"], "text MARKER");

        let config = json!({"spec": {"internalRegistryPullSecret": "TUFSS0VS", "images": {"a": "b"},
            "cloudProviderConfig": "password=MARKER", "pullSecret": {"name": "pull-secret"},
            "proxy": {"httpProxy": "http://user:MARKER@proxy:3128"}, "osImageURL": ""}});
        let found = redacted("ControllerConfig", config);
        assert!(!found.to_string().contains("MARKER"), "{found}");
        assert!(!found.to_string().contains("TUFSS0VS"), "{found}");
        assert_eq!(found["spec"]["proxy"]["httpProxy"], "http://(redacted)@proxy:3128");
        assert_eq!(found["spec"]["images"]["a"], "b");
        assert_eq!(found["spec"]["pullSecret"]["name"], "pull-secret");

        let config = json!({"spec": {"kubeletConfig": {"maxPods": 250, "staticPodURLHeader": {
            "Authorization": ["Basic MARKER"], "Accept": ["text/plain"]}}}});
        let found = redacted("KubeletConfig", config);
        assert_eq!(
            found["spec"]["kubeletConfig"],
            json!({"maxPods": 250, "staticPodURLHeader": {
                "Authorization": ["(redacted: 12 bytes)"], "Accept": ["text/plain"]}})
        );

        let pod = json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "tls"}}],
            "containers": [{"name": "c", "env": [{"name": "A", "value": "MARKER"},
            {"name": "RELEASE_VERSION", "value": "4.20.0"}], "args": ["--token=MARKER", "start"]}]}});
        let found = redacted("Pod", pod);
        assert!(!found.to_string().contains("MARKER"), "{found}");
        assert_eq!(found.pointer("/spec/containers/0/env/1/value"), Some(&json!("4.20.0")));
        assert_eq!(found.pointer("/spec/containers/0/args/1"), Some(&json!("start")));
        assert_eq!(found.pointer("/spec/volumes/0/secret/secretName"), Some(&json!("tls")));
    }
}
