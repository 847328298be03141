//! Removal of secrets from free text, such as logs and messages.

use crate::lint::secret;

/// Words that announce a secret.
const WORDS: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "passwordhash",
    "secret",
    "token",
    "api_key",
    "apikey",
    "client-key-data",
    "authorization",
    "private_key",
];

const HIDDEN: &str = "(redacted)";

/// Returns the text without private keys, tokens, passwords and credentials in URLs.
///
/// Whole lines that look like a secret are replaced. In other lines the value after a word such as
/// `token=` is.
#[must_use]
pub fn text(text: &str) -> String {
    let lines = secret::redact(text);
    let mut shown = String::with_capacity(lines.len());
    for line in lines.split_inclusive('\n') {
        shown.push_str(&credentials(&values(line)));
    }
    shown
}

/// Returns true if a member of this name has a secret as its value.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.ends_with(word))
}

/// Hides the values that follow words such as `token`.
fn values(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let mut shown = String::with_capacity(line.len());
    let mut rest = 0;
    while let Some((start, end)) = next_value(&lower, rest) {
        shown.push_str(line.get(rest..start).unwrap_or_default());
        shown.push_str(HIDDEN);
        rest = end;
    }
    shown.push_str(line.get(rest..).unwrap_or_default());
    shown
}

/// Returns the place of the next value after `from`.
fn next_value(lower: &str, from: usize) -> Option<(usize, usize)> {
    let mut words: Vec<usize> = WORDS
        .iter()
        .flat_map(|word| {
            let found = lower.get(from..).unwrap_or_default().match_indices(word);
            found.map(|(at, word)| from + at + word.len())
        })
        .collect();
    words.sort_unstable();
    words.into_iter().find_map(|end| value_at(lower, end))
}

/// Returns the place of the value after a word that ends at `end`, if `=` or `:` follows the word.
fn value_at(lower: &str, end: usize) -> Option<(usize, usize)> {
    let rest = lower.get(end..)?;
    let after_name = rest.trim_start_matches(['"', '\'', '\\']);
    let after_sign = after_name.strip_prefix(['=', ':'])?;
    let value = after_sign.trim_start_matches([' ', '"', '\'', '\\']);
    let value =
        value.strip_prefix("bearer ").or_else(|| value.strip_prefix("basic ")).unwrap_or(value);
    let start = lower.len() - value.len();
    let stop = value.find(|letter: char| letter.is_whitespace() || "\"',;}\\".contains(letter));
    let length = stop.unwrap_or(value.len());
    let shown = value.get(..length)?;
    // Settings and what was hidden before are no secrets.
    let is_word = ["true", "false", "null", "none", "required", "off", HIDDEN].contains(&shown);
    (length > 0 && !is_word && !shown.starts_with('(')).then_some((start, start + length))
}

/// Hides user and password in URLs.
fn credentials(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        shown.extend([before, "://"]);
        let end = after.find(|letter: char| letter.is_whitespace() || "/\"'?#".contains(letter));
        let authority = after.get(..end.unwrap_or(after.len())).unwrap_or_default();
        rest = match authority.rsplit_once('@') {
            Some((user, _)) => {
                shown.push_str(HIDDEN);
                after.get(user.len()..).unwrap_or_default()
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_logs_are_hidden() {
        let rows = [
            ("plain text: all is well", "plain text: all is well"),
            (
                r#"{"level":"INFO","token":"abc.def","pool":"worker"}"#,
                r#"{"level":"INFO","token":"(redacted)","pool":"worker"}"#,
            ),
            ("msg=\"login\" password=hunter22 user=a", "msg=\"login\" password=(redacted) user=a"),
            (
                "request failed: Authorization: Bearer abcdef",
                "request failed: Authorization: Bearer (redacted)",
            ),
            (
                "GET https://user:pw@host/path?a=b failed",
                "GET https://(redacted)@host/path?a=b failed",
            ),
            ("join-tokens=required tokens: 3", "join-tokens=required tokens: 3"),
            ("the Secret a/b has no token", "the Secret a/b has no token"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nafter\n",
                "(hidden: a private key)\n(hidden: a private key)\n(hidden: a private key)\nafter\n",
            ),
            (
                "user: {client-key-data: TUFS, token: abc}",
                "user: {client-key-data: (redacted), token: (redacted)}",
            ),
        ];
        for (given, expected) in rows {
            assert_eq!(text(given), expected);
        }
    }

    #[test]
    fn names_of_secrets_are_known() {
        for name in ["token", "bearerToken", "adminPassword", "client-key-data"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["secretName", "tokens", "name", "passwordAuthentication"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
