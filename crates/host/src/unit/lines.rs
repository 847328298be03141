//! The lines of a unit file, and the words of a value, as systemd parses them.

/// Returns the lines of a unit file, with continuation lines joined.
///
/// A comment is no part of a continuation, and a backslash at its end does not continue it.
pub(super) fn logical(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut pending: Option<String> = None;
    for line in text.strip_prefix('\u{feff}').unwrap_or(text).lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let mut line = pending.take().unwrap_or_default() + line;
        if ends_in_backslash(&line) {
            line.pop();
            line.push(' ');
            pending = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(pending);
    lines
}

/// Returns true if the last backslash is not escaped by another.
fn ends_in_backslash(line: &str) -> bool {
    line.chars().fold(false, |escaped, letter| !escaped && letter == '\\')
}

/// Splits a value at white space outside of quotes, and removes the quotes. A word whose quote is not
/// closed does not count.
pub(super) fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in value.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if matches!(letter, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_none() {
        words.extend(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_continue_after_a_backslash_but_comments_do_not() {
        let cases: [(&str, &[&str]); 7] = [
            ("a=1\nb=2", &["a=1", "b=2"]),
            ("a=1 \\\n  2\nb=3", &["a=1    2", "b=3"]),
            ("# note \\\na=1", &["a=1"]),
            ("a=1 \\\n# note \\\n2", &["a=1  2"]),
            ("; note\\\n[Install]", &["[Install]"]),
            ("a=1\\\\\nb=2", &["a=1\\\\", "b=2"]),
            ("a=1\\", &["a=1 "]),
        ];
        for (text, want) in cases {
            assert_eq!(logical(text), want, "{text:?}");
        }
    }

    #[test]
    fn words_are_quoted_as_in_systemd() {
        let cases: [(&str, &[&str]); 5] = [
            ("a  b", &["a", "b"]),
            ("\"a b\" 'c'd", &["a b", "cd"]),
            ("\"\"", &[""]),
            ("a\\x2db", &["a\\x2db"]),
            ("a \"b", &["a"]),
        ];
        for (value, want) in cases {
            assert_eq!(words(value), want, "{value}");
        }
    }
}
