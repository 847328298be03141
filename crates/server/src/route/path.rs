//! Request paths, parsed as Go's router does.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Characters that are escaped in the path of a `Location` header.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'%').add(b'<').add(b'>').add(b'?').add(b'#').add(b'`');

/// Returns the path without its escapes; `None` if an escape is invalid or the result is not UTF-8.
pub(super) fn decode(path: &str) -> Option<String> {
    let mut rest = path.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let digits = rest.get(at + 1..at + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = rest.get(at + 3..)?;
    }
    percent_decode_str(path).decode_utf8().ok().map(Into::into)
}

/// Returns the path without empty parts, `.` and `..`; a slash at the end stays.
///
/// `/config` becomes `/config/`, because only paths below it exist.
pub(super) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if (path.ends_with('/') && clean != "/") || clean == "/config" {
        clean.push('/');
    }
    clean
}

/// Encodes path and query for a header.
pub(super) fn location(path: &str, query: Option<&str>) -> String {
    let path = utf8_percent_encode(path, ESCAPED);
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_string(),
    }
}

/// Returns the last part that is not empty.
pub(super) fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}
