//! A document on its way out: plain values that borrow from the config they came from.
//!
//! There is one way to write JSON here: compact, members in the order given, the reference's escapes.

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

    /// How long the JSON is if nothing needs an escape, so that writing it seldom reallocates.
    fn size(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) => 5,
            Self::Text(text) => text.len() + text.len() / 32 + 2,
            Self::List(items) => 2 + items.iter().map(|item| item.size() + 1).sum::<usize>(),
            Self::Object(members) => {
                2 + members.iter().map(|(name, value)| name.len() + 4 + value.size()).sum::<usize>()
            }
        }
    }
}

/// Writes `text` as a JSON string.
///
/// Compat: besides what JSON demands, `<`, `>`, `&` and the two Unicode line separators are escaped,
/// and of the control characters only newline, carriage return and tab have a short form.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_length(rest));
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
            _ => write_escape(*first, out),
        }
    }
    out.push(b'"');
}

fn write_escape(byte: u8, out: &mut Vec<u8>) {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
}

/// How many bytes of `bytes` stand before the first that may start an escape.
fn plain_length(bytes: &[u8]) -> usize {
    // A chunk is looked at as a whole, without an early exit, so that the compiler can compare many
    // bytes at once.
    const CHUNK: usize = 32;
    let has_special =
        |chunk: &&[u8]| chunk.iter().fold(false, |found, byte| found | is_special(*byte));
    let clean = bytes.chunks(CHUNK).take_while(|chunk| !has_special(chunk)).count() * CHUNK;
    let rest = bytes.get(clean..).unwrap_or_default();
    let length = clean + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len());
    length.min(bytes.len())
}

/// Whether a byte may start an escape.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2)
}

#[cfg(test)]
mod tests {
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
}
