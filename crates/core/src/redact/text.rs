//! Removal of secrets from free text, such as logs and messages.

use crate::lint::secret;

/// Words that announce a secret.
const WORDS: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "passwordhash",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "client-key-data",
    "authorization",
    "private_key",
    "privatekey",
    "signature",
];

/// Member of registry credentials. Without the quote it would be a part of other words.
const AUTH: &str = "\"auth";

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
        .chain([&AUTH])
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
    let after_name = rest.trim_start_matches(['"', '\'', '\\']).trim_start_matches(' ');
    let after_sign = after_name.strip_prefix(['=', ':'])?;
    // Headers are lists in the output of Go.
    let opening = after_sign.trim_start_matches([' ', '[']);
    let unescaped = opening.trim_start_matches('\\');
    let is_inner = unescaped.len() < opening.len();
    let quote = unescaped.chars().next().filter(|first| matches!(first, '"' | '\''));
    let value = quote.and_then(|quote| unescaped.strip_prefix(quote)).unwrap_or(unescaped);
    let value =
        value.strip_prefix("bearer ").or_else(|| value.strip_prefix("basic ")).unwrap_or(value);
    let start = lower.len() - value.len();
    let length = quote.map_or_else(|| word(value), |quote| quoted(value, quote, is_inner));
    let shown = value.get(..length)?;
    // The quote was the last one of a text, such as `"no token:"`, or an object follows.
    let other = if quote.is_some() { [',', '}', ']'] } else { ['{', ']', ','] };
    // Settings and what was hidden before are no secrets.
    let is_word = ["true", "false", "null", "none", "required", "off", HIDDEN].contains(&shown);
    let is_secret = length > 0 && !value.starts_with(other) && !is_word && !shown.starts_with('(');
    is_secret.then_some((start, start + length))
}

/// Returns the length of a value without quotes.
fn word(value: &str) -> usize {
    let ends = |letter: char| letter.is_whitespace() || "\"',;]}\\".contains(letter);
    value.find(ends).unwrap_or(value.len())
}

/// Returns the length of a value up to its closing quote; up to the end of its line without one. The
/// quotes of a text in a text, which `is_inner`, have a backslash.
fn quoted(value: &str, quote: char, is_inner: bool) -> usize {
    let mut is_escaped = false;
    for (at, letter) in value.char_indices() {
        let closes = || value.get(at + 1..).is_some_and(|rest| rest.starts_with(quote));
        match letter {
            '\r' | '\n' => return at,
            _ if is_escaped => is_escaped = false,
            '\\' if is_inner && closes() => return at,
            '\\' => is_escaped = true,
            letter if letter == quote => return at,
            _ => {}
        }
    }
    value.len()
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
            // Values in quotes, with spaces and quotes in them.
            ("login with password = hunter2 failed", "login with password = (redacted) failed"),
            (r#"say password="correct horse", user=a"#, r#"say password="(redacted)", user=a"#),
            ("say secret: 'a b' and c", "say secret: '(redacted)' and c"),
            (
                r#"{"msg":"x","token" : "a \" b","n":1}"#,
                r#"{"msg":"x","token" : "(redacted)","n":1}"#,
            ),
            (
                r#"{"body":"{\"token\":\"a b\",\"n\":1}"}"#,
                r#"{"body":"{\"token\":\"(redacted)\",\"n\":1}"}"#,
            ),
            ("failed: token=\"a b\nnext line", "failed: token=\"(redacted)\nnext line"),
            (r#"say token="", user="a""#, r#"say token="", user="a""#),
            (r#"{"body":"{\"token\":\"\",\"n\":1}"}"#, r#"{"body":"{\"token\":\"\",\"n\":1}"}"#),
            (r#"{"msg":"no token:","n":"a"}"#, r#"{"msg":"no token:","n":"a"}"#),
            ("sent map[Authorization:[Bearer abc]]", "sent map[Authorization:[Bearer (redacted)]]"),
            (r#"{"token": {"expires": "a"}}"#, r#"{"token": {"expires": "a"}}"#),
            // Credentials of registries and of clouds.
            (r#"      "auth": "dXNlcjpwdw==","#, r#"      "auth": "(redacted)","#),
            (r#"{\"auth\":\"dXNlcjpwdw==\"}"#, r#"{\"auth\":\"(redacted)\"}"#),
            ("oauth: enabled, author: me", "oauth: enabled, author: me"),
            ("use aws_secret_access_key=wJalrXU now", "use aws_secret_access_key=(redacted) now"),
            (
                "GET https://host/a?X-Amz-Signature=0815&b=c failed",
                "GET https://host/a?X-Amz-Signature=(redacted) failed",
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
