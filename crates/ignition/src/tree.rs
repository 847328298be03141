//! A document on its way out: plain values that borrow from the config they came from.
//!
//! There is one way to write JSON here: compact, members in the order given, the reference's escapes.

use crate::scan;

/// A value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree<'a> {
    /// No value.
    Null,
    /// A switch.
    Bool(bool),
    /// A number.
    Int(i64),
    /// Text.
    Text(&'a str),
    /// A list.
    List(Vec<Tree<'a>>),
    /// An object; names are unique.
    Object(Vec<(&'static str, Tree<'a>)>),
}

impl Tree<'_> {
    /// The document as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        self.write_json(&mut out);
        out
    }

    /// Writes the document as compact JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Text(text) => write_string(text, out),
            Self::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write_json(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_string(name, out);
                    out.push(b':');
                    value.write_json(out);
                }
                out.push(b'}');
            }
        }
    }

    /// How long the JSON is, so that writing it allocates once and no more than it needs.
    fn size(&self) -> usize {
        let separators = |count: usize| 2 + count.saturating_sub(1);
        match self {
            Self::Null | Self::Bool(true) => 4,
            Self::Bool(false) => 5,
            Self::Int(number) => number.to_string().len(),
            Self::Text(text) => string_size(text),
            Self::List(items) => {
                separators(items.len()) + items.iter().map(Self::size).sum::<usize>()
            }
            Self::Object(members) => {
                let member = |(name, value): &(&str, Self)| string_size(name) + 1 + value.size();
                separators(members.len()) + members.iter().map(member).sum::<usize>()
            }
        }
    }
}

/// How long `text` is as a JSON string.
fn string_size(text: &str) -> usize {
    let mut size = text.len() + 2;
    let mut rest = text.as_bytes();
    loop {
        let (_, special) = rest.split_at(scan::past(rest, is_plain));
        let Some((&byte, behind)) = special.split_first() else { return size };
        size += match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
            0xe2 if behind.starts_with(&[0x80, 0xa8]) || behind.starts_with(&[0x80, 0xa9]) => 3,
            0xe2 => 0,
            _ => 5,
        };
        rest = behind;
    }
}

/// Writes `text` as a JSON string.
///
/// Compat: besides what JSON demands, `<`, `>`, `&` and the two Unicode line separators are escaped,
/// and of the control characters only newline, carriage return and tab have a short form.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(scan::past(rest, is_plain));
        out.extend_from_slice(plain);
        let Some(&byte) = special.first() else { break };
        let (escape, length) = match byte {
            b'"' => ("\\\"", 1),
            b'\\' => ("\\\\", 1),
            b'\n' => ("\\n", 1),
            b'\r' => ("\\r", 1),
            b'\t' => ("\\t", 1),
            0xe2 if special.starts_with("\u{2028}".as_bytes()) => ("\\u2028", 3),
            0xe2 if special.starts_with("\u{2029}".as_bytes()) => ("\\u2029", 3),
            // The first byte of some other character.
            0xe2 => {
                out.push(byte);
                ("", 1)
            }
            _ => {
                write_code(byte, out);
                ("", 1)
            }
        };
        out.extend_from_slice(escape.as_bytes());
        rest = special.get(length..).unwrap_or_default();
    }
    out.push(b'"');
}

/// Writes `byte` by its number.
fn write_code(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
}

/// Whether `byte` stands for itself and cannot start an escape.
fn is_plain(byte: u8) -> bool {
    let special = (byte == b'"')
        | (byte == b'\\')
        | (byte == b'<')
        | (byte == b'>')
        | (byte == b'&')
        | (byte == 0xe2);
    (byte >= b' ') & !special
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_is_escaped_as_the_reference_does() {
        let cases = [
            ("plain é 😀 \u{7f}", "\"plain é 😀 \u{7f}\""),
            ("\"\\\n\r\t", r#""\"\\\n\r\t""#),
            ("<a>&", r#""\u003ca\u003e\u0026""#),
            ("\u{0}\u{8}\u{c}\u{1f}", r#""\u0000\u0008\u000c\u001f""#),
            ("\u{2028}\u{2029}\u{2027}", "\"\\u2028\\u2029\u{2027}\""),
        ];
        for (text, expected) in cases {
            let json = String::from_utf8(Tree::Text(text).to_json()).expect("UTF-8");
            assert_eq!(json, expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_size_is_known_beforehand(text: String, number: i64, switch: bool) {
            let tree = Tree::Object(vec![
                ("text", Tree::Text(&text)),
                ("list", Tree::List(vec![Tree::Int(number), Tree::Bool(switch), Tree::Null])),
                ("empty", Tree::List(vec![])),
                ("more", Tree::Text("<\u{2028}\u{2030}\">")),
            ]);
            prop_assert_eq!(tree.to_json().len(), tree.size());
        }
    }
}
