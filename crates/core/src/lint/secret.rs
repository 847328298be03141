//! Detection of secrets in contents, which every user with read access to MachineConfigs can read.
//!
//! A result contains the kind of the secret and its line, never its text.

/// A line that looks like a secret.
#[derive(Debug, PartialEq, Eq)]
pub struct Secret {
    /// Kind with its article, such as `a private key`.
    pub kind: &'static str,
    /// Line in the text, from zero.
    pub line: usize,
}

/// Hint of the faults.
pub(super) const HINT: &str =
    "move the secret out of the config: every user who can read MachineConfigs can read it";

/// Names of settings whose value is a secret.
const WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "secret_key",
    "client_secret",
];

/// Returns the first secret of each kind in the contents; none for binary contents.
#[must_use]
pub fn find(contents: &[u8]) -> Vec<Secret> {
    let Ok(text) = std::str::from_utf8(contents) else { return Vec::new() };
    let mut found: Vec<Secret> = Vec::new();
    for (line, text) in text.lines().enumerate() {
        if let Some(kind) = kind(text)
            && !found.iter().any(|secret| secret.kind == kind)
        {
            found.push(Secret { kind, line });
        }
    }
    found
}

/// Replaces every line that contains a secret with the kind of the secret.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        let found = kind(line);
        let hidden = in_key || found.is_some();
        in_key = (in_key || found == Some(PRIVATE_KEY)) && !line.contains("-----END ");
        if hidden {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            let word = found.unwrap_or(PRIVATE_KEY);
            shown.extend(["(hidden: ", word, ")", end]);
        } else {
            shown.push_str(line);
        }
    }
    shown
}

const PRIVATE_KEY: &str = "a private key";

fn kind(line: &str) -> Option<&'static str> {
    if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY") {
        return Some(PRIVATE_KEY);
    }
    if line.contains("\"auths\"") && line.contains("\"auth\"") {
        return Some("a pull secret");
    }
    if line.split(|c: char| !c.is_ascii_alphanumeric()).any(is_access_key) {
        return Some("a cloud access key");
    }
    if line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).any(is_token) {
        return Some("a bearer token");
    }
    is_setting(line).then_some("a password or token")
}

fn is_access_key(word: &str) -> bool {
    word.len() == 20
        && (word.starts_with("AKIA") || word.starts_with("ASIA"))
        && word.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}

fn is_token(word: &str) -> bool {
    word.starts_with("eyJ") && word.len() > 40 && word.split('.').count() == 3
}

/// Returns true for a setting such as `password = hunter2`, with any quotes and prefixes.
fn is_setting(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with(['#', ';']) || line.starts_with("//") {
        return false;
    }
    let Some((key, value)) = line.split_once(['=', ':']) else { return false };
    let key = key.trim().trim_matches(['"', '\'']).to_ascii_lowercase().replace('-', "_");
    let named = WORDS.iter().any(|word| {
        key == *word || key.ends_with(&format!("_{word}")) || key.ends_with(&format!(".{word}"))
    });
    let value = value.trim().trim_matches([',', ';']).trim_matches(['"', '\'']);
    named && value.len() >= 6 && !value.contains(char::is_whitespace) && !is_reference(value)
}

/// Returns true for a placeholder or a reference in place of a secret.
fn is_reference(value: &str) -> bool {
    const PLACEHOLDERS: [&str; 5] = ["changeme", "example", "xxxxxx", "******", "redacted"];
    let lower = value.to_ascii_lowercase();
    value.starts_with(['/', '$', '<', '%', '{', '['])
        || PLACEHOLDERS.iter().any(|word| lower.starts_with(word))
        || ["true", "false", "optional", "required", "disabled", "enabled"]
            .contains(&lower.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_distinguished_from_settings() {
        let token =
            format!("Authorization: Bearer eyJ{}.{}.{}", "a".repeat(20), "b".repeat(20), "c");
        let rows = [
            ("-----BEGIN RSA PRIVATE KEY-----\nMII\n", Some("a private key")),
            ("-----BEGIN CERTIFICATE-----\nMII\n", None),
            ("-----BEGIN PUBLIC KEY-----\n", None),
            (r#"{"auths":{"quay.io":{"auth":"abc"}}}"#, Some("a pull secret")),
            ("aws = AKIAIOSFODNN7EXAMPLE", Some("a cloud access key")),
            (token.as_str(), Some("a bearer token")),
            ("password = hunter22", Some("a password or token")),
            ("  \"db_password\": \"hunter22\",", Some("a password or token")),
            ("ADMIN_TOKEN=abcdef123", Some("a password or token")),
            ("# password = hunter22", None),
            ("password = ${PASSWORD}", None),
            ("PasswordAuthentication no", None),
            ("password_file = /etc/pw", None),
            ("token: <your token>", None),
            ("password requisite pam_pwquality.so", None),
            ("tokenreview: enabled", None),
        ];
        for (text, want) in rows {
            let found = find(text.as_bytes());
            assert_eq!(found.first().map(|secret| secret.kind), want, "{text}");
        }
        assert_eq!(find(&[0xff, 0xfe]), []);
    }

    #[test]
    fn redacted_text_keeps_its_lines() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nplain\n";
        let hidden = "(hidden: a private key)\n".repeat(3) + "plain\n";
        assert_eq!(redact(key), hidden);
        assert_eq!(redact("a=b\npassword=abcdef"), "a=b\n(hidden: a password or token)");
    }

    #[test]
    fn the_first_line_of_each_kind_is_reported() {
        let found = find(b"a\npassword=abcdef\npassword=ghijkl\n");
        assert_eq!(found, [Secret { kind: "a password or token", line: 1 }]);
    }
}
