//! Quoted text in the reference's messages.

use std::fmt::Write as _;

/// Quotes `text` and escapes unprintable characters as Go does.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            letter if is_printed(letter) => out.push(letter),
            letter => escaped(letter, &mut out),
        }
    }
    out.push('"');
    out
}

fn is_printed(letter: char) -> bool {
    // Rust escapes exactly the characters that it regards as unprintable, and the single quote.
    letter == '\'' || letter.escape_debug().len() == 1
}

fn escaped(letter: char, out: &mut String) {
    let code = u32::from(letter);
    let done = match code {
        0..=0x7f => write!(out, "\\x{code:02x}"),
        0x80..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    done.expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotation_follows_go() {
        let cases = [
            ("plain", r#""plain""#),
            ("a \"b\" 'c'", r#""a \"b\" 'c'""#),
            ("a\nb\\c\u{1}", r#""a\nb\\c\x01""#),
            ("ä \u{feff}", r#""ä \ufeff""#),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text), expected);
        }
    }
}
