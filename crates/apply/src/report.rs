//! Formats an error with its causes as one line.

use std::error::Error;

use serde_json::error::Category;

/// Returns the error and its causes, joined with `: `.
///
/// A cause that its parent's text already ends with is dropped. Values that could not be decoded are
/// left out, because they may be secret.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |error| (*error).source());
    let quotes: Vec<(String, String)> = causes()
        .filter_map(|error| error.downcast_ref::<serde_json::Error>())
        .map(|error| (error.to_string(), without_values(error)))
        .collect();
    let mut text = String::new();
    for error in causes() {
        let line = quotes
            .iter()
            .fold(error.to_string(), |line, (quote, shown)| line.replace(quote, shown));
        if !line.is_empty() && !text.ends_with(&line) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&line);
        }
    }
    text
}

/// Returns the kind of fault and its position; serde's own message quotes the value.
fn without_values(error: &serde_json::Error) -> String {
    let fault = match error.classify() {
        Category::Io => "read error",
        Category::Syntax => "invalid JSON",
        Category::Eof => "incomplete JSON",
        Category::Data => "value of the wrong type",
    };
    format!("failed to decode: {fault} at line {}, column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskError;

    #[test]
    fn a_chain_names_each_cause_once_and_quotes_no_value() {
        let source = serde_json::from_str::<Vec<u8>>(r#"{"a": "SECRET"}"#).unwrap_err();
        let error = DiskError::Parse { path: "/etc/a", source };
        assert_eq!(
            chain(&error),
            "failed to parse /etc/a: failed to decode: value of the wrong type at line 1, column 0"
        );
    }
}
