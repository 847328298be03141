//! Removal of quoted values from messages.

/// Words that the API server quotes as types of a value.
const TYPES: [&str; 8] = ["", "array", "boolean", "integer", "null", "number", "object", "string"];

/// Returns the message of a rejected object without the values that it quotes. The name of the
/// object and the permitted values stay.
pub(super) fn without_values(message: &str) -> String {
    // `<kind> "<name>" is invalid: <fault>, <fault>`
    let (head, faults) = match message.split_once(" is invalid: ") {
        Some((head, faults)) => (format!("{head} is invalid: "), faults),
        None => (String::new(), message),
    };
    let mut text = head;
    let mut rest = faults;
    while let Some((before, quoted)) = rest.split_once('"') {
        text.push_str(before);
        let end = end_of_quote(quoted);
        let (value, after) = quoted.split_at_checked(end).unwrap_or((quoted, ""));
        let is_permitted = text.rsplit("supported values: ").next().is_some_and(|list| {
            text.contains("supported values: ")
                && list.split('"').step_by(2).all(|part| matches!(part, "" | ", "))
        });
        let shown = if TYPES.contains(&value) || is_permitted { value } else { "…" };
        text.extend(["\"", shown, "\""]);
        rest = after.strip_prefix('"').unwrap_or_default();
    }
    text + rest
}

/// Returns the position of the quote that ends a Go string.
fn end_of_quote(quoted: &str) -> usize {
    let mut escaped = false;
    for (at, character) in quoted.char_indices() {
        match character {
            '"' if !escaped => return at,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    quoted.len()
}

/// Returns the name of the field that a message of serde calls missing.
pub(super) fn missing_field(message: &str) -> Option<&str> {
    let (field, _) = message.strip_prefix("missing field `")?.split_once('`')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
    field.bytes().all(is_name).then_some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_removed_and_names_stay() {
        let rows = [
            (r#"pods "a" not found"#, r#"pods "…" not found"#),
            (
                r#"Node "a" is invalid: spec.b: Invalid value: "S\"S": c: "S""#,
                r#"Node "a" is invalid: spec.b: Invalid value: "…": c: "…""#,
            ),
            (
                r#"X "a" is invalid: spec: Invalid value: "object": no, c: Required value"#,
                r#"X "a" is invalid: spec: Invalid value: "object": no, c: Required value"#,
            ),
            (
                r#"X "a" is invalid: b: Unsupported value: "S": supported values: "c", "d", e: Invalid value: {"S":"S"}"#,
                r#"X "a" is invalid: b: Unsupported value: "…": supported values: "c", "d", e: Invalid value: {"…":"…"}"#,
            ),
            (r#"X "a" is invalid: b: "S"#, r#"X "a" is invalid: b: "…""#),
        ];
        for (message, expected) in rows {
            assert_eq!(without_values(message), expected, "{message}");
        }
    }

    #[test]
    fn only_names_of_fields_are_taken() {
        assert_eq!(missing_field("missing field `spec` at line 1 column 2"), Some("spec"));
        assert_eq!(missing_field("missing field `a b` at line 1 column 2"), None);
        assert_eq!(missing_field("invalid type: string \"missing field `a`\""), None);
    }
}
