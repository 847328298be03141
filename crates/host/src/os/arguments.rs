//! Splits kernel arguments into words.

/// Splits kernel arguments at spaces outside of double quotes; the quotes stay.
#[must_use]
pub fn words(texts: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    for text in texts {
        let mut word = String::new();
        let mut quoted = false;
        for letter in text.chars() {
            if letter.is_whitespace() && !quoted {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            quoted ^= letter == '"';
            word.push(letter);
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C78
    #[test]
    fn words_end_at_spaces_outside_quotes() {
        let cases: [(&str, &[&str]); 6] = [
            ("", &[]),
            ("nosmt", &["nosmt"]),
            ("a  b=1", &["a", "b=1"]),
            (
                r#"dyndbg="file a +p; file b +p" quiet"#,
                &[r#"dyndbg="file a +p; file b +p""#, "quiet"],
            ),
            (r#"a="b c"#, &[r#"a="b c"#]),
            ("x x", &["x", "x"]),
        ];
        for (text, want) in cases {
            assert_eq!(words(&[text.to_owned()]), want, "{text}");
        }
    }
}
