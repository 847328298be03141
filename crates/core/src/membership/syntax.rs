//! Syntax of label keys and values.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::name;

/// Maximum length of the name part of a key, and of a value.
const MAX_LABEL: usize = 63;

/// A key or value that is not valid in a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLabel {
    /// Invalid key.
    #[error("{0:?} is not a valid label key")]
    Key(String),
    /// Invalid value.
    #[error("{value:?} is not a valid value of label {key}")]
    Value {
        /// Key of the label.
        key: String,
        /// Invalid value.
        value: String,
    },
}

/// Checks every key and value in the selector.
pub(super) fn check(selector: &LabelSelector) -> Result<(), BadLabel> {
    for (key, value) in selector.match_labels.iter().flatten() {
        check_key(key)?;
        check_value(key, value)?;
    }
    for requirement in selector.match_expressions.iter().flatten() {
        check_key(&requirement.key)?;
        for value in requirement.values.iter().flatten() {
            check_value(&requirement.key, value)?;
        }
    }
    Ok(())
}

fn check_key(key: &str) -> Result<(), BadLabel> {
    let good = match key.split_once('/') {
        None => is_word(key),
        Some((prefix, name)) => name::check(prefix).is_ok() && is_word(name),
    };
    if good { Ok(()) } else { Err(BadLabel::Key(key.to_owned())) }
}

fn check_value(key: &str, value: &str) -> Result<(), BadLabel> {
    if value.is_empty() || is_word(value) {
        return Ok(());
    }
    Err(BadLabel::Value { key: key.to_owned(), value: value.to_owned() })
}

fn is_word(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MAX_LABEL
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
        && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_follow_the_rules_of_kubernetes() {
        let long = "a".repeat(64);
        let cases = [
            ("a", true),
            ("node-role.kubernetes.io/worker", true),
            ("A_b.c-9", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a/b/c", false),
            ("Up/a", false),
            ("-a", false),
            ("a b", false),
            (long.as_str(), false),
        ];
        for (key, good) in cases {
            assert_eq!(check_key(key).is_ok(), good, "{key}");
        }
        assert!(check_value("k", "").is_ok() && check_value("k", "x.y").is_ok());
        assert!(check_value("k", "x/y").is_err() && check_value("k", &long).is_err());
    }
}
