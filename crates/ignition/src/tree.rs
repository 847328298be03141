//! A document tree for serialization, which borrows from the config.
//!
//! JSON is always written compactly, with members in the given order and the reference's escapes.

use crate::scan;

/// A value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree<'a> {
    /// The value `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    Text(&'a str),
    /// A list.
    List(Vec<Tree<'a>>),
    /// An object; names are unique.
    Object(Vec<(&'static str, Tree<'a>)>),
}

impl Tree<'_> {
    /// Serializes the document as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        self.write_json(&mut out);
        out
    }

    /// Writes the document as compact JSON to `out`.
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

    /// Returns the length of the JSON, so that serialization allocates exactly once.
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

/// Returns the length of `text` as a JSON string.
fn string_size(text: &str) -> usize {
    let mut size = text.len() + 2;
    let mut rest = text.as_bytes();
    loop {
        let (_, special) = rest.split_at(scan::find_special(rest, is_plain));
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
/// Compat: besides the escapes that JSON requires, `<`, `>`, `&` and the two Unicode line
/// separators are escaped, and of the control characters only newline, carriage return and tab have
/// a short form.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(scan::find_special(rest, is_plain));
        out.extend_from_slice(plain);
        let [first, behind @ ..] = special else { break };
        rest = behind;
        match first {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0xe2 => match behind {
                [0x80, last @ (0xa8 | 0xa9), behind @ ..] => {
                    out.extend_from_slice(if *last == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                    rest = behind;
                }
                _ => out.push(0xe2),
            },
            _ => write_code(*first, out),
        }
    }
    out.push(b'"');
}

/// Writes `byte` as a `\u` escape.
fn write_code(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
}

/// Returns true if `byte` is written unchanged and cannot start a character that needs an escape.
fn is_plain(byte: u8) -> bool {
    byte >= b' ' && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_escaped_as_the_reference_escapes_it() {
        let cases = [
            ("plain", "plain"),
            ("\"\\/", "\\\"\\\\/"),
            ("a\nb\rc\td", "a\\nb\\rc\\td"),
            ("\u{0}\u{8}\u{c}\u{1f}\u{7f}", "\\u0000\\u0008\\u000c\\u001f\u{7f}"),
            ("<&>'", "\\u003c\\u0026\\u003e'"),
            ("\u{2028}\u{2029}\u{2027}é€😀", "\\u2028\\u2029\u{2027}é€😀"),
        ];
        for (text, expected) in cases {
            for padding in [0, 1, 31, 32, 33, 100] {
                let padding = "x".repeat(padding);
                let mut out = Vec::new();
                write_string(&format!("{padding}{text}{padding}"), &mut out);
                let expected = format!("\"{padding}{expected}{padding}\"");
                assert_eq!(String::from_utf8(out).unwrap(), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn the_size_equals_the_length_of_the_json(text: String, number: i64, switch: bool) {
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
