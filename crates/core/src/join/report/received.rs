//! A report as the config server takes it.
//!
//! Any holder of a token can send one, so its texts are bounded and stripped before people see them.

use std::net::IpAddr;

use super::{FirstBootReport, HIDDEN};
use crate::join::{machine::is_node_name, token::TokenText};

/// Maximum number of characters of a step, an error and a line of the journal.
const MAX_STEP: usize = 80;
const MAX_ERROR: usize = 400;
const MAX_LINE: usize = 200;

/// Number of lines of the journal that are kept: the last ones.
const MAX_LINES: usize = 6;

/// A report whose texts are bounded and have no control characters or tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedReport {
    /// Pool that the machine wanted to join: that of its token, else the one it names.
    pub pool: String,
    /// Name that its node would have; empty if unknown.
    pub node: String,
    machine_id: String,
    step: String,
    error: String,
    journal: Vec<String>,
}

/// A body that is not a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The body is not the JSON of a report.
    #[error(
        "the report is not JSON of the form {{\"pool\", \"node\", \"machineId\", \"step\", \"error\", \"journal\"}}"
    )]
    Shape,
    /// The pool is missing, or cannot be the name of a pool.
    #[error("the report names no pool")]
    Pool,
}

impl ReceivedReport {
    /// Reads a report. A machine whose config is unreadable may not know its pool, but its token
    /// does.
    pub fn read(body: &[u8], pool_of_token: Option<&str>) -> Result<Self, ReportError> {
        let sent: FirstBootReport = serde_json::from_slice(body).map_err(|_| ReportError::Shape)?;
        let pool = pool_of_token.unwrap_or(&sent.pool).to_owned();
        if !is_node_name(&pool) {
            return Err(ReportError::Pool);
        }
        let from = sent.journal.len().saturating_sub(MAX_LINES);
        let journal = sent.journal.iter().skip(from).map(|line| plain(line, MAX_LINE));
        Ok(Self {
            node: if is_node_name(&sent.node) { sent.node } else { String::new() },
            machine_id: plain(&sent.machine_id, 32),
            step: plain(&sent.step, MAX_STEP),
            error: plain(&sent.error, MAX_ERROR),
            journal: journal.filter(|line| !line.is_empty()).collect(),
            pool,
        })
    }

    /// Returns the text of the event, the failure first and the journal last.
    #[must_use]
    pub fn text(&self, address: IpAddr) -> String {
        let Self { node, machine_id, step, error, journal, .. } = self;
        let name = if node.is_empty() { "A machine".to_owned() } else { format!("Machine {node}") };
        let id = if machine_id.is_empty() {
            String::new()
        } else {
            format!(", machine id {machine_id}")
        };
        let step = if step.is_empty() { String::new() } else { format!(" at step {step}") };
        let mut text = format!("{name} (address {address}{id}) failed to join{step}: {error}");
        if !journal.is_empty() {
            text.push_str(". Journal: ");
            text.push_str(&journal.join(" | "));
        }
        text
    }
}

/// Returns at most `length` characters of the text on one line, without control characters and
/// without anything that looks like a token or a key.
#[must_use]
pub fn plain(text: &str, length: usize) -> String {
    let hidden = |c: char| {
        c.is_control()
            // Characters that change the direction of text, and the mark of byte order.
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let clean: String = text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect();
    let mut shown = String::new();
    let mut after_bearer = false;
    for word in clean.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let secret = after_bearer || is_secret(word);
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(if secret { HIDDEN } else { word });
        after_bearer = bare.eq_ignore_ascii_case("bearer");
    }
    if shown.chars().count() <= length {
        return shown;
    }
    let kept: String = shown.chars().take(length.saturating_sub(1)).collect();
    kept + "…"
}

/// Returns true if a word contains a join token, a JSON web token or a PEM block.
fn is_secret(word: &str) -> bool {
    let parts = word.split(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)));
    let mut parts = parts.filter(|part| !part.is_empty());
    word.contains("-----BEGIN")
        || parts.any(|part| {
            let is_web_token = part.starts_with("eyJ") && part.matches('.').count() == 2;
            is_web_token || TokenText::parse(part.trim_matches('.')).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::join::fixture::text;

    fn address() -> IpAddr {
        [10, 0, 0, 1].into()
    }

    #[test]
    fn a_report_reads_as_a_sentence() {
        let body = r#"{"pool": "worker", "node": "w-4", "machineId": "00ff", "step": "fetch",
            "error": "the certificate is not yet valid", "journal": ["a", "b\u001b[31m", ""]}"#;
        let report = ReceivedReport::read(body.as_bytes(), None).unwrap();
        assert_eq!(
            report.text(address()),
            "Machine w-4 (address 10.0.0.1, machine id 00ff) failed to join at step fetch: the \
             certificate is not yet valid. Journal: a | b [31m"
        );
        let report = ReceivedReport::read(br#"{"pool": "worker", "error": "x"}"#, None).unwrap();
        assert_eq!(report.text(address()), "A machine (address 10.0.0.1) failed to join: x");
        assert_eq!(ReceivedReport::read(b"[1]", None), Err(ReportError::Shape));
        assert_eq!(ReceivedReport::read(br#"{"pool": 3}"#, None), Err(ReportError::Shape));
        assert_eq!(ReceivedReport::read(br#"{"error": "x"}"#, None), Err(ReportError::Pool));
        assert_eq!(ReceivedReport::read(br#"{"pool": "../x"}"#, None), Err(ReportError::Pool));
        for claimed in [r#"{"error": "x"}"#, r#"{"pool": "master", "error": "x"}"#] {
            let report = ReceivedReport::read(claimed.as_bytes(), Some("worker")).unwrap();
            assert_eq!(report.pool, "worker", "{claimed}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let token = text(1).reveal();
        let rows = [
            format!("curl --token {token} x"),
            format!("--token={token}"),
            format!("\"{token}\","),
            "Authorization: Bearer abc.def".to_owned(),
            "token: eyJhbGciOi.eyJzdWIi.c2ln".to_owned(),
            "key -----BEGIN PRIVATE KEY-----".to_owned(),
        ];
        for row in rows {
            let shown = plain(&row, 400);
            assert!(shown.contains("(hidden)"), "{shown}");
            for secret in [token.as_str(), "abc.def", "eyJ", "BEGIN"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        assert_eq!(
            plain("failed to resolve api-int.example.test", 400),
            "failed to resolve api-int.example.test"
        );
    }

    proptest! {
        #[test]
        fn no_report_is_long_or_controls_a_terminal(step in any::<String>(),
            error in "\\PC{0,2000}", journal in proptest::collection::vec(any::<String>(), 0..50)) {
            let body = serde_json::json!({"pool": "worker", "step": step, "error": error,
                "journal": journal});
            let report = ReceivedReport::read(body.to_string().as_bytes(), None).unwrap();
            let shown = report.text(address());
            prop_assert!(shown.chars().count() < 2000);
            prop_assert!(!shown.contains(char::is_control));
        }

        #[test]
        fn no_body_causes_a_panic(body in any::<Vec<u8>>()) {
            drop(ReceivedReport::read(&body, None));
        }
    }
}
