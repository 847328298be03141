//! The report of a machine that failed to join: step, error and the end of the journal.
//!
//! The machine removes its secrets and stays within the size that the config server accepts; the
//! server does not rely on it.

mod received;

use serde::{Deserialize, Serialize};

pub use self::received::{ReceivedReport, ReportError, plain};
use crate::lint::secret;

/// Largest report that the server accepts, in bytes.
pub const MAX_REPORT: usize = 32 << 10;
/// Longest error and longest line of the journal, in characters.
const MAX_TEXT: usize = 4096;
const MAX_LINE: usize = 512;
/// Shown in place of a secret.
const HIDDEN: &str = "(hidden)";
/// Shorter values occur by chance in other words.
const MIN_SECRET: usize = 8;

/// A report of a failed join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FirstBootReport {
    /// Pool that the machine joins.
    pub pool: String,
    /// Name of the node.
    pub node: String,
    /// Machine id of systemd.
    pub machine_id: String,
    /// The step that failed.
    pub step: String,
    /// The error with its causes.
    pub error: String,
    /// The last lines of the journal, oldest first.
    pub journal: Vec<String>,
}

impl FirstBootReport {
    /// Returns the report as JSON, without these secrets and without all that looks like one; drops
    /// the oldest lines of the journal if the report is too large.
    #[must_use]
    pub fn to_json(&self, secrets: &[&str]) -> Vec<u8> {
        let mut report = Self {
            error: cut(&hide(&self.error, secrets), MAX_TEXT),
            journal: self.hidden_journal(secrets),
            ..self.clone()
        };
        loop {
            let bytes = serde_json::to_vec(&report).expect("texts can be serialized");
            if bytes.len() <= MAX_REPORT || report.journal.is_empty() {
                return bytes;
            }
            let excess = bytes.len() - MAX_REPORT;
            let mut dropped = 0;
            let keep = report.journal.iter().position(|line| {
                dropped += line.len() + 3;
                dropped >= excess
            });
            let count = keep.map_or(report.journal.len(), |index| index + 1);
            report.journal.drain(..count);
        }
    }

    /// A secret may span lines, such as a key, so that the journal is searched as one text.
    fn hidden_journal(&self, secrets: &[&str]) -> Vec<String> {
        let text = hide(&self.journal.join("\n"), secrets);
        text.lines().map(|line| cut(line, MAX_LINE)).collect()
    }
}

/// Hides secrets in a text.
fn hide(text: &str, secrets: &[&str]) -> String {
    let known = secrets.iter().filter(|secret| secret.len() >= MIN_SECRET);
    let text = known.fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN));
    let lines = text.split_inclusive('\n').map(hide_message);
    secret::redact(&lines.collect::<String>())
}

/// Hides a setting with a secret that follows the prefix of a line in the journal, such as
/// `2026-01-01T00:00:00 m4 app[1]: `.
fn hide_message(line: &str) -> String {
    let hidden = line.match_indices(": ").find_map(|(at, mark)| {
        let (prefix, message) = line.split_at(at + mark.len());
        let is_secret = !secret::find(message.trim_end().as_bytes()).is_empty();
        is_secret
            .then(|| format!("{prefix}{HIDDEN}{}", if line.ends_with('\n') { "\n" } else { "" }))
    });
    // A key spans lines, and its first one must still be recognized.
    hidden.filter(|_| !line.contains("PRIVATE KEY")).unwrap_or_else(|| line.to_owned())
}

fn cut(text: &str, limit: usize) -> String {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(limit).collect();
    if text.chars().nth(limit).is_some() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(error: &str, journal: Vec<String>) -> FirstBootReport {
        FirstBootReport {
            pool: "worker".to_owned(),
            node: "m4".to_owned(),
            machine_id: "0123".to_owned(),
            step: "apply".to_owned(),
            error: error.to_owned(),
            journal,
        }
    }

    #[test]
    fn secrets_do_not_leave_the_machine() {
        let marker = "MARKER0123456789";
        let journal = vec![
            "kubelet: started".to_owned(),
            format!("kubelet: token abcdefgh.{marker} was refused"),
            format!("2026-01-01T00:00:00+0000 m4 app[7]: password = {marker}2"),
            "-----BEGIN PRIVATE KEY-----".to_owned(),
            format!("{marker}3"),
            "-----END PRIVATE KEY-----".to_owned(),
            format!(r#"{{"auths":{{"a":{{"auth":"{marker}4"}}}}}}"#),
            "kubelet: stopped".to_owned(),
        ];
        let error = format!("failed with abcdefgh.{marker}\u{1b}[31m");
        let token = format!("abcdefgh.{marker}");
        let json = report(&error, journal).to_json(&[&token, "short"]);
        let text = String::from_utf8(json.clone()).unwrap();
        assert!(!text.contains("MARKER"), "{text}");
        assert!(text.contains("kubelet: started") && text.contains("kubelet: stopped"), "{text}");
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["error"], "failed with (hidden)[31m");
        assert_eq!(value["machineId"], "0123");
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["error", "journal", "machineId", "node", "pool", "step"]);
    }

    #[test]
    fn a_report_fits_and_keeps_the_newest_lines() {
        let journal: Vec<String> =
            (0..2000).map(|n| format!("line {n} \"{}\"", "x".repeat(80))).collect();
        let json = report(&"e".repeat(100_000), journal).to_json(&[]);
        assert!(json.len() <= MAX_REPORT, "{}", json.len());
        assert!(json.len() > MAX_REPORT / 2, "{}", json.len());
        let text = String::from_utf8(json).unwrap();
        assert!(text.contains("line 1999") && !text.contains("line 0 "), "{text}");
    }
}
