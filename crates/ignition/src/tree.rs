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
    let bytes = text.as_bytes();
    let mut written = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !is_special(byte) {
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let (escape, length) = match byte {
            b'"' => ("\\\"", 1),
            b'\\' => ("\\\\", 1),
            b'\n' => ("\\n", 1),
            b'\r' => ("\\r", 1),
            b'\t' => ("\\t", 1),
            0xe2 if rest.starts_with("\u{2028}".as_bytes()) => ("\\u2028", 3),
            0xe2 if rest.starts_with("\u{2029}".as_bytes()) => ("\\u2029", 3),
            0xe2 => continue,
            _ => ("", 1),
        };
        out.extend_from_slice(bytes.get(written..at).unwrap_or_default());
        if escape.is_empty() {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        } else {
            out.extend_from_slice(escape.as_bytes());
        }
        written = at + length;
    }
    out.extend_from_slice(bytes.get(written..).unwrap_or_default());
    out.push(b'"');
}

/// Whether a byte may start an escape.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2)
}
