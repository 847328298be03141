//! Removal of the contents of an Ignition config.

use mco_ignition::data_url;
use serde_json::{Map, Value, json};

use super::{hashed, hashed_bytes, hide, text};

/// Files whose contents are kept: settings that an engineer reads first, without credentials.
const PUBLIC_FILES: [&str; 9] = [
    "/etc/chrony.conf",
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/kubelet.conf.d/",
    "/etc/containers/storage.conf",
    "/etc/crio/crio.conf.d/",
    "/etc/modules-load.d/",
    "/etc/sysctl.d/",
    "/etc/systemd/system.conf.d/",
    "/etc/mco/",
];

/// Removes contents, password hashes and headers. Unknown members of these names are removed, too.
pub(super) fn config(config: &mut Value) {
    match config {
        Value::Array(items) => items.iter_mut().for_each(self::config),
        Value::Object(members) => {
            let path = members.get("path").and_then(Value::as_str).map(str::to_owned);
            if let Some(contents) = members.get_mut("contents") {
                file_contents(path.as_deref().unwrap_or_default(), contents);
            }
            members_of(members);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn members_of(members: &mut Map<String, Value>) {
    for (name, member) in members.iter_mut() {
        match (name.as_str(), &*member) {
            ("passwordHash", _) => hide(member),
            ("source" | "inline" | "config", Value::String(found)) if !found.is_empty() => {
                *member = json!(source(found));
            }
            // Units and drop-ins are text, and may have passwords in `Environment=` and arguments.
            ("contents", Value::String(found)) if !found.starts_with('(') => {
                *member = json!(hashed(found));
            }
            ("httpHeaders", Value::Array(_)) => headers(member),
            _ => config(member),
        }
    }
}

/// Replaces the contents of a file. Contents of public files are decoded, and filtered by line.
fn file_contents(path: &str, contents: &mut Value) {
    let is_public = PUBLIC_FILES
        .iter()
        .any(|public| path == *public || (public.ends_with('/') && path.starts_with(public)));
    let Some(source) = contents.get("source").and_then(Value::as_str) else { return };
    let is_compressed =
        contents.get("compression").and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    if !is_public || is_compressed {
        return;
    }
    let decoded = data_url::decode(source).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let (Some(decoded), Some(members)) = (decoded, contents.as_object_mut()) {
        let size = hashed(&decoded);
        members.insert("source".to_owned(), json!(size));
        members.insert("text".to_owned(), json!(text(&decoded)));
    }
}

/// Returns the size and hash of the contents in a URL, or the URL without its query and credentials.
fn source(url: &str) -> String {
    if url.starts_with("(redacted") {
        return url.to_owned();
    }
    if url.starts_with("data:") {
        return match data_url::decode(url) {
            Ok(bytes) => hashed_bytes(&bytes),
            Err(_) => hashed(url),
        };
    }
    if !url.contains("://") {
        return hashed(url);
    }
    match url.split_once('?') {
        Some((place, query)) => text(&format!("{place}?(redacted: {} bytes)", query.len())),
        None => text(url),
    }
}

fn headers(headers: &mut Value) {
    for header in headers.as_array_mut().into_iter().flatten() {
        if let Some(value) = header.get_mut("value") {
            hide(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_replaced_by_size_and_hash() {
        let data = |text: &str| data_url::encode(text.as_bytes());
        let mut found = json!({
            "ignition": {"version": "3.4.0", "config": {
                "merge": [{"source": data("MARKER")}],
                "replace": {"source": "https://host/config?token=MARKER",
                    "httpHeaders": [{"name": "Authorization", "value": "Bearer MARKER"}]}}},
            "passwd": {"users": [{"name": "core", "passwordHash": "$6$MARKER",
                "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]},
            "storage": {
                "files": [
                    {"path": "/etc/secret", "mode": 384, "contents": {"source": data("MARKER")}},
                    {"path": "/etc/chrony.conf", "contents": {"source": data("pool a\npassword: MARKER\n")}},
                    {"path": "/etc/a", "append": [{"source": "https://user:MARKER@host/a"}]},
                ],
                "luks": [{"name": "root", "keyFile": {"source": data("MARKER")},
                    "clevis": {"custom": {"pin": "tang", "config": "{\"key\": \"MARKER\"}"}}}],
            },
            "systemd": {"units": [{"name": "a.service", "enabled": true,
                "contents": "[Service]\nEnvironment=A=MARKER\n",
                "dropins": [{"name": "b.conf", "contents": "MARKER"}]}]},
        });
        config(&mut found);
        let text = found.to_string();
        assert!(!text.contains("MARKER") && !text.contains("TUFSS0VS"), "{text}");
        assert!(text.contains("ssh-ed25519 AAAA core") && text.contains("\"mode\":384"), "{text}");
        let chrony = found.pointer("/storage/files/1/contents/text");
        assert_eq!(chrony, Some(&json!("pool a\n(hidden: a password or token)\n")));
        let shown = found.pointer("/storage/files/0/contents/source").unwrap().as_str().unwrap();
        assert!(shown.starts_with("(redacted: 6 bytes, sha256 "), "{shown}");
        let replace = found.pointer("/ignition/config/replace/source");
        assert_eq!(replace, Some(&json!("https://host/config?(redacted: 12 bytes)")));
        assert_eq!(
            found.pointer("/storage/files/2/append/0/source"),
            Some(&json!("https://(redacted)@host/a"))
        );
    }
}
