//! Reads YAML as kubectl does: scalars follow YAML 1.1 (`0644` is the number 420, `yes` is true), duplicate
//! keys are errors, and aliases are expanded within limits.

use serde_json::Value;

/// A text that is not YAML, or exceeds the limits. The message quotes nothing but a key of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid YAML: {message}")]
pub struct YamlError {
    message: String,
}

/// Returns the documents of a text without the empty ones.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        // A snippet of the source may show a secret.
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_documents: 1_000,
            max_events: 1_000_000,
            max_nodes: 250_000,
            max_depth: 100,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
    };
    let found = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    let found =
        found.map_err(|error| YamlError { message: error.without_snippet().to_string() })?;
    Ok(found.into_iter().filter(|document| !document.is_null()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_read_as_kubectl_reads_them() {
        let text = "---\nmode: 0644\non: yes\n---\n# empty\n---\n- a\n";
        assert_eq!(documents(text), Ok(vec![json!({"mode": 420, "on": true}), json!(["a"])]));
        assert_eq!(documents(""), Ok(Vec::new()));
    }

    #[test]
    fn invalid_text_is_an_error_without_its_values() {
        for text in ["a: 1\na: hunter2\n", "a: [hunter2\n"] {
            let error = documents(text).expect_err(text).to_string();
            assert!(error.starts_with("invalid YAML: ") && !error.contains("hunter2"), "{error}");
        }
    }
}
