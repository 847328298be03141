//! Validation of object names, labels and annotation keys.

use serde_json::Value;

use crate::{
    failure::{Fault, FaultKind},
    resource::Resource,
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Returns true if the text is an RFC 1123 label.
pub(crate) fn is_label(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.starts_with(fine)
        && text.ends_with(fine)
        && text.chars().all(|c| fine(c) || c == '-')
}

/// Returns true if the text is an RFC 1123 subdomain.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(fine) && part.ends_with(fine) && part.chars().all(|c| fine(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

/// Returns true if the text is an RFC 1035 label: an RFC 1123 label that starts with a letter.
pub(crate) fn is_rfc1035_label(text: &str) -> bool {
    is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns true if the text is valid as a label value.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Returns true if the text is valid as a label key, with or without a prefix.
pub(crate) fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

fn is_name_part(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| ends(c) || matches!(c, '-' | '_' | '.'))
}

/// Validates the name of an object of `resource`.
pub(crate) fn check(resource: &Resource, name: &str) -> Vec<Fault> {
    if name.is_empty() {
        return vec![Fault::required("metadata.name", "name or generateName is required")];
    }
    let (fine, rule) = if resource.kind == "Namespace" && !resource.custom {
        (is_label(name), LABEL)
    } else {
        (is_subdomain(name), SUBDOMAIN)
    };
    if fine {
        return Vec::new();
    }
    vec![Fault::invalid("metadata.name", &Value::from(name), rule)]
}

/// Validates the labels and the annotation keys of an object.
pub(crate) fn check_labels(object: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    for field in ["labels", "annotations"] {
        let Some(map) = object.get("metadata").and_then(|meta| meta.get(field)) else { continue };
        let place = format!("metadata.{field}");
        let Some(map) = map.as_object() else {
            if !map.is_null() {
                faults.push(Fault::wrong_type(place, map, "object"));
            }
            continue;
        };
        for (key, value) in map {
            // Compat: annotation keys may contain upper case letters; their prefix is validated in
            // lower case.
            let key_checked =
                if field == "labels" { key.clone() } else { key.to_ascii_lowercase() };
            if !is_qualified(&key_checked) {
                faults.push(Fault::invalid(place.clone(), &Value::from(key.as_str()), QUALIFIED));
            }
            match value.as_str() {
                None => faults.push(Fault {
                    field: format!("{place}.{key}"),
                    kind: FaultKind::TypeInvalid,
                    message: format!("Invalid value: {value}: must be a string"),
                }),
                Some(text) if field == "labels" && !is_label_value(text) => {
                    faults.push(Fault::invalid(place.clone(), value, LABEL_VALUE));
                }
                Some(_) => {}
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_follow_the_rules_of_kubernetes() {
        for (name, label, subdomain) in [
            ("a", true, true),
            ("a-b", true, true),
            ("a.b", false, true),
            ("0a", true, true),
            ("A", false, false),
            ("-a", false, false),
            ("a.", false, false),
            ("a..b", false, false),
            ("", false, false),
            ("a_b", false, false),
        ] {
            assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name}");
        }
        assert!(!is_label(&"a".repeat(64)));
    }

    #[test]
    fn labels_with_bad_keys_or_values_are_refused() {
        let bad = json!({"metadata": {"labels": {"a b": "x", "ok": "has space", "n": 1}}});
        assert_eq!(check_labels(&bad).len(), 3);
        let good = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""},
            "annotations": {"Any/Key": "some text, any"}}});
        assert_eq!(check_labels(&good), []);
    }
}
