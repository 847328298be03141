//! Evaluation of label selectors as Kubernetes defines it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// A label selector that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator is none of the four known ones.
    #[error("{operator:?} is not a valid label selector operator (key {key:?})")]
    UnknownOperator {
        /// Label key of the requirement.
        key: String,
        /// Operator of the requirement.
        operator: String,
    },
    /// `In` or `NotIn` has no values.
    #[error("operator {operator} needs at least one value (key {key:?})")]
    ValuesMissing {
        /// Label key of the requirement.
        key: String,
        /// Operator of the requirement.
        operator: String,
    },
    /// `Exists` or `DoesNotExist` has values.
    #[error("operator {operator} takes no values (key {key:?})")]
    ValuesForbidden {
        /// Label key of the requirement.
        key: String,
        /// Operator of the requirement.
        operator: String,
    },
}

/// Returns true if `labels` satisfy all requirements of `selector`; the empty selector matches
/// everything.
///
/// The whole selector is checked first, so that an error is reported for any labels.
pub fn matches(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let mut matched =
        selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    for requirement in selector.match_expressions.iter().flatten() {
        matched &= requirement_matches(requirement, labels)?;
    }
    Ok(matched)
}

/// Returns true if the selector has no requirements.
///
/// Such a selector matches everything, but some callers treat it as "select nothing".
#[must_use]
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

fn requirement_matches(
    requirement: &LabelSelectorRequirement,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let LabelSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_deref().unwrap_or_default();
    let (key_text, operator_text) = (|| key.clone(), || operator.clone());
    let value = labels.get(key);

    match operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            Err(SelectorError::ValuesMissing { key: key_text(), operator: operator_text() })
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            Err(SelectorError::ValuesForbidden { key: key_text(), operator: operator_text() })
        }
        "In" => Ok(value.is_some_and(|value| values.contains(value))),
        "NotIn" => Ok(value.is_none_or(|value| !values.contains(value))),
        "Exists" => Ok(value.is_some()),
        "DoesNotExist" => Ok(value.is_none()),
        _ => Err(SelectorError::UnknownOperator { key: key_text(), operator: operator_text() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `"role=worker zone"` as two labels; a bare word has an empty value.
    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn selector(json: serde_json::Value) -> LabelSelector {
        serde_json::from_value(json).expect("a selector")
    }

    fn expression(operator: &str, values: &[&str]) -> LabelSelector {
        selector(serde_json::json!({
            "matchExpressions": [{"key": "role", "operator": operator, "values": values}]
        }))
    }

    #[test]
    fn each_operator_means_what_kubernetes_says() {
        let cases = [
            // operator, values, labels, matches
            ("In", &["worker", "infra"][..], "role=infra", true),
            ("In", &["worker"], "role=infra", false),
            ("In", &["worker"], "", false),
            ("NotIn", &["worker"], "role=infra", true),
            ("NotIn", &["worker"], "role=worker", false),
            ("NotIn", &["worker"], "zone=a", true), // an absent key is not in the list
            ("Exists", &[], "role", true),
            ("Exists", &[], "zone", false),
            ("DoesNotExist", &[], "zone", true),
            ("DoesNotExist", &[], "role=x", false),
        ];
        for (operator, values, given, expected) in cases {
            let got = matches(&expression(operator, values), &labels(given));
            assert_eq!(got, Ok(expected), "{operator} {values:?} on {given:?}");
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        let both = selector(serde_json::json!({
            "matchLabels": {"role": "worker"},
            "matchExpressions": [{"key": "zone", "operator": "Exists"}]
        }));
        assert_eq!(matches(&both, &labels("role=worker zone=a")), Ok(true));
        assert_eq!(matches(&both, &labels("role=worker")), Ok(false));
        assert_eq!(matches(&both, &labels("role=infra zone=a")), Ok(false));
    }

    #[test]
    fn the_empty_selector_matches_everything() {
        let empty = LabelSelector::default();
        assert!(is_empty(&empty));
        assert_eq!(matches(&empty, &labels("")), Ok(true));
        assert_eq!(matches(&empty, &labels("role=worker")), Ok(true));
    }

    #[test]
    fn invalid_selectors_are_reported_for_any_labels() {
        let faults = [
            (expression("Equals", &["a"]), "\"Equals\" is not a valid label selector operator"),
            (expression("In", &[]), "operator In needs at least one value"),
            (expression("Exists", &["a"]), "operator Exists takes no values"),
        ];
        for (selector, start) in faults {
            for given in ["", "role=a"] {
                let error = matches(&selector, &labels(given)).expect_err(start);
                assert!(error.to_string().starts_with(start), "{error}");
            }
        }
    }
}
