//! The two JSON formats of the files that a machine gets.
//!
//! Compat: both escape characters with a meaning in HTML, as Go's encoder does.

/// Removes white space between values, and escapes characters inside strings.
pub(super) fn compact(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    let mut inside = Inside::default();
    while let Some((&byte, behind)) = rest.split_first() {
        let outside = !inside.is_text(byte);
        rest = behind;
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' if outside => {}
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            // U+2028 and U+2029 end a line in JavaScript.
            0xe2 if matches!(behind, [0x80, 0xa8 | 0xa9, ..]) => {
                let escape: &[u8] =
                    if behind.get(1) == Some(&0xa8) { b"\\u2028" } else { b"\\u2029" };
                out.extend_from_slice(escape);
                rest = behind.get(2..).unwrap_or_default();
            }
            other => out.push(other),
        }
    }
    out
}

/// Formats compact JSON with one member or item per line and four spaces per level.
pub(super) fn indented(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 5 / 4);
    let mut inside = Inside::default();
    let mut depth = 0_usize;
    let mut previous = b' ';
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 4));
    };
    for &byte in json {
        let outside = !inside.is_text(byte);
        let opened = outside && matches!(previous, b'{' | b'[');
        match byte {
            b'}' | b']' if outside => {
                depth = depth.saturating_sub(1);
                if !opened {
                    line(&mut out, depth);
                }
            }
            _ if opened => line(&mut out, depth),
            _ => {}
        }
        out.push(byte);
        match byte {
            b'{' | b'[' if outside => depth += 1,
            b',' if outside => line(&mut out, depth),
            b':' if outside => out.push(b' '),
            _ => {}
        }
        previous = if outside { byte } else { b'"' };
    }
    out
}

/// Tracks if a scan of JSON is inside a string.
#[derive(Default)]
struct Inside {
    text: bool,
    escape: bool,
}

impl Inside {
    /// Consumes the next byte; returns true if it is part of a string, including the closing quote.
    fn is_text(&mut self, byte: u8) -> bool {
        let was = self.text;
        match byte {
            _ if self.escape => self.escape = false,
            b'"' => self.text = !self.text,
            b'\\' => self.escape = self.text,
            _ => {}
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_outside_of_strings_is_removed_and_strings_are_escaped() {
        let rows = [
            (r#"{ "a" : [ 1 , 2 ] }"#, r#"{"a":[1,2]}"#),
            (r#"{"a b":"c \" d"}"#, r#"{"a b":"c \" d"}"#),
            (r#"["a\\", " b"]"#, r#"["a\\"," b"]"#),
            (r#"["<a>&b"]"#, "[\"\\u003ca\\u003e\\u0026b\"]"),
            ("[\"x\u{2028}y\u{2029}z\u{2027}\"]", "[\"x\\u2028y\\u2029z\u{2027}\"]"),
            ("\n{}\r\n\t", "{}"),
        ];
        for (text, expected) in rows {
            assert_eq!(String::from_utf8(compact(text.as_bytes())).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn every_value_has_its_line_and_empty_containers_stay_closed() {
        let rows = [
            ("{}", "{}"),
            ("[]", "[]"),
            ("[1,[],{}]", "[\n    1,\n    [],\n    {}\n]"),
            (
                r#"{"a":{"b":[{"c":"{,:["}]},"d":null}"#,
                "{\n    \"a\": {\n        \"b\": [\n            {\n                \
                 \"c\": \"{,:[\"\n            }\n        ]\n    },\n    \"d\": null\n}",
            ),
            ("[\"{\",\"}\"]", "[\n    \"{\",\n    \"}\"\n]"),
        ];
        for (text, expected) in rows {
            assert_eq!(String::from_utf8(indented(text.as_bytes())).unwrap(), expected, "{text}");
        }
    }
}
