//! Entity tags, by which a client asks for a document only if it has changed.

use http::{HeaderMap, HeaderValue, header::IF_NONE_MATCH};
use ring::digest::{SHA256, digest};

/// Bytes of the hash in a tag.
const TAG_BYTES: usize = 16;

/// Returns the tag of a body: a strong one, so equal tags mean equal bytes.
pub(crate) fn of(body: &[u8]) -> HeaderValue {
    let hash = digest(&SHA256, body);
    let mut tag = String::with_capacity(2 * TAG_BYTES + 2);
    tag.push('"');
    for byte in hash.as_ref().iter().take(TAG_BYTES) {
        tag.extend(char::from_digit(u32::from(byte >> 4), 16));
        tag.extend(char::from_digit(u32::from(byte & 15), 16));
    }
    tag.push('"');
    HeaderValue::from_str(&tag).expect("hexadecimal digits and quotes are a valid header")
}

/// Returns true if the client has the body of `tag` already (RFC 9110, section 13.1.2).
#[must_use]
pub fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().any(|value| matches(value.as_bytes(), tag.as_bytes()))
}

/// Returns true if a list of tags has `tag`. Weak tags match, too.
fn matches(mut list: &[u8], tag: &[u8]) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    loop {
        while let [b' ' | b'\t' | b',', rest @ ..] = list {
            list = rest;
        }
        list = list.strip_prefix(b"W/").unwrap_or(list);
        // A tag may contain commas, so it ends at its second quote.
        let [b'"', rest @ ..] = list else { return false };
        let Some(end) = rest.iter().position(|byte| *byte == b'"') else { return false };
        let (found, behind) = list.split_at_checked(end + 2).unwrap_or((list, &[]));
        if found == tag {
            return true;
        }
        list = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_depends_on_every_byte() {
        assert_eq!(of(b"").to_str().unwrap(), "\"e3b0c44298fc1c149afbf4c8996fb924\"");
        assert_ne!(of(b"a"), of(b"b"));
    }

    #[test]
    fn a_client_may_know_several_bodies() {
        let rows = [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("*", true),
            (" * ", true),
            ("\"x\", \"a\"", true),
            ("\"x,y\",W/\"a\"", true),
            ("\"a", false),
            ("a", false),
            ("\"b\"", false),
            ("\"b\" \"a\"", true),
            ("", false),
            (",,", false),
            ("\"\"", false),
        ];
        for (list, expected) in rows {
            assert_eq!(matches(list.as_bytes(), b"\"a\""), expected, "{list}");
        }
    }
}
