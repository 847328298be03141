//! Validation of object names, labels and annotation keys.

use serde_json::{Value, json};

use crate::{failure::Fault, object, resource::Resource};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const RFC1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  \
    or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and \
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

/// Returns the rules that a text violates as a label key.
pub(crate) fn qualified_faults(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let mut faults = Vec::new();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults
                    .extend(subdomain_faults(prefix).iter().map(|it| format!("prefix part {it}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !has_name_form(name) {
        faults.push(format!("name part {NAME_PART}"));
    }
    faults
}

/// Returns the rules that a text violates as an RFC 1123 subdomain.
pub(crate) fn subdomain_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 253 {
        faults.push("must be no more than 253 characters".to_owned());
    }
    if !text.split('.').all(has_label_form) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// Returns the rules that a text violates as an RFC 1123 label.
pub(crate) fn label_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 characters".to_owned());
    }
    if !has_label_form(text) {
        // Compat: a text that is a subdomain but no label is told the reason alone.
        let only_dots = text.contains('.') && text.split('.').all(has_label_form);
        faults.push(if only_dots { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    faults
}

/// Returns the rules that a text violates as an RFC 1035 label.
pub(crate) fn rfc1035_label_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 characters".to_owned());
    }
    if !has_label_form(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(RFC1035_LABEL.to_owned());
    }
    faults
}

/// Returns the rules that a text violates as a part of a path.
pub(crate) fn segment_faults(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let illegal = ['/', '%'].into_iter().filter(|c| text.contains(*c));
    illegal.map(|c| format!("may not contain '{c}'")).collect()
}

/// Returns the rules that a text violates as a label value.
pub(crate) fn label_value_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !has_name_form(text) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

fn has_label_form(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(fine) && text.ends_with(fine) && text.chars().all(|c| fine(c) || c == '-')
}

fn has_name_form(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| ends(c) || matches!(c, '-' | '_' | '.'))
}

/// Validates the name of a new object of `resource`, and the prefix of a generated name.
pub(crate) fn check(resource: &Resource, object: &Value) -> Vec<Fault> {
    let rules = |text: &str| match resource.kind.as_str() {
        _ if resource.custom => subdomain_faults(text),
        "Namespace" | "Service" => label_faults(text),
        "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding" => segment_faults(text),
        "CertificateSigningRequest" => Vec::new(),
        _ => subdomain_faults(text),
    };
    let mut faults = Vec::new();
    let prefix = object::meta(object, "generateName");
    if !prefix.is_empty() {
        // Compat: a dash at the end is not the end of the name.
        let mut shown = prefix.to_owned();
        if prefix.len() > 1 && prefix.ends_with('-') {
            shown.truncate(prefix.len() - 1);
            shown.pop();
            shown.push('a');
        }
        for rule in rules(&shown) {
            faults.push(Fault::invalid("metadata.generateName", &json!(prefix), &rule));
        }
    }
    let name = object::name(object);
    if name.is_empty() {
        faults.push(Fault::required("metadata.name", "name or generateName is required"));
        return faults;
    }
    for rule in rules(name) {
        faults.push(Fault::invalid("metadata.name", &json!(name), &rule));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn prefixes_of_generated_names_are_validated() {
        let pods = crate::resource::builtin::by_plural("pods");
        for (prefix, count) in [("a-", 0), ("a", 0), ("-", 1), ("p.", 1), ("ä-", 0), ("--", 0)] {
            let object = json!({"metadata": {"name": "a", "generateName": prefix}});
            assert_eq!(check(&pods, &object).len(), count, "{prefix}");
        }
    }

    #[test]
    fn each_violated_rule_is_named() {
        assert_eq!(
            qualified_faults(""),
            ["name part must be non-empty".to_owned(), format!("name part {NAME_PART}")]
        );
        assert_eq!(qualified_faults("a.b/c"), [""; 0]);
        assert_eq!(qualified_faults("/c"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_faults("a/b/c").len(), 1);
        assert_eq!(label_value_faults(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(label_faults("a.b"), ["must not contain dots"]);
    }
}
