//! Parser of templates and paths.

use serde_json::Value;

use super::{Operand, Operator, Part, Path, Segment, TemplateError};

fn error(text: impl Into<String>) -> TemplateError {
    TemplateError(text.into())
}

/// Parses a template; one without braces is a path.
pub(super) fn template(text: &str) -> Result<Vec<Part>, TemplateError> {
    if !text.contains('{') {
        return Ok(vec![Part::Path(path(text)?)]);
    }
    // The innermost loop is the last one.
    let mut open: Vec<(Path, Vec<Part>)> = Vec::new();
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        let (inner, after) = braces(after).ok_or_else(|| error("a closing brace is missing"))?;
        rest = after;
        match inner.trim() {
            "end" => {
                let (path, outer) = open.pop().ok_or_else(|| error("{end} has no {range}"))?;
                let inner = std::mem::replace(&mut parts, outer);
                parts.push(Part::Range(path, inner));
            }
            word => match word.strip_prefix("range ") {
                Some(path) => open.push((self::path(path)?, std::mem::take(&mut parts))),
                None => parts.push(expression(word)?),
            },
        }
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    if open.is_empty() { Ok(parts) } else { Err(error("{range} has no {end}")) }
}

/// Splits at the closing brace that is not part of a quoted text.
fn braces(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (_, _) if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some((text.get(..index)?, text.get(index + 1..)?)),
            (_, _) => {}
        }
    }
    None
}

fn expression(text: &str) -> Result<Part, TemplateError> {
    if text.starts_with(['"', '\'']) {
        return match unquoted(text) {
            Some((text, "")) => Ok(Part::Text(text)),
            Some(_) | None => Err(error(format!("invalid text {text}"))),
        };
    }
    path(text).map(Part::Path)
}

/// Reads a quoted text at the start, and returns the rest.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut result = String::new();
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
            match c {
                'n' => result.push('\n'),
                't' => result.push('\t'),
                'r' => result.push('\r'),
                other => result.push(other),
            }
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return Some((result, text.get(index + 1..)?));
        } else {
            result.push(c);
        }
    }
    None
}

/// Parses a path.
pub(super) fn path(text: &str) -> Result<Path, TemplateError> {
    let mut segments = Vec::new();
    let mut rest = text.trim();
    if let Some(after) = rest.strip_prefix('$') {
        segments.push(Segment::Root);
        rest = after;
    } else if let Some(after) = rest.strip_prefix('@') {
        segments.push(Segment::This);
        rest = after;
    }
    let mut is_first = true;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (inner, after) = brackets(after)
                .ok_or_else(|| error(format!("a closing bracket is missing in {text:?}")))?;
            segments.push(bracket(inner)?);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("..") {
            segments.push(Segment::Descend);
            rest = field(after, &mut segments);
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = field(after, &mut segments);
        } else if is_first {
            rest = field(rest, &mut segments);
        } else {
            return Err(error(format!("unexpected {rest:?} in {text:?}")));
        }
        is_first = false;
    }
    Ok(Path(segments))
}

/// Reads the name of a field, in which a backslash escapes a dot, and returns the rest.
fn field<'t>(text: &'t str, segments: &mut Vec<Segment>) -> &'t str {
    let mut name = String::new();
    let mut escaped = false;
    let mut end = text.len();
    for (index, c) in text.char_indices() {
        if escaped {
            escaped = false;
            name.push(c);
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '.' | '[') {
            end = index;
            break;
        } else {
            name.push(c);
        }
    }
    match name.as_str() {
        "" => {}
        "*" => segments.push(Segment::All),
        _ => segments.push(Segment::Field(name)),
    }
    text.get(end..).unwrap_or_default()
}

/// Splits at the closing bracket, beyond brackets and quoted texts inside.
fn brackets(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1_usize;
    let mut quote = None;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            (Some(_) | None, _) => {}
        }
        if depth == 0 {
            return Some((text.get(..index)?, text.get(index + 1..)?));
        }
    }
    None
}

fn bracket(inner: &str) -> Result<Segment, TemplateError> {
    let inner = inner.trim();
    let invalid = || error(format!("invalid index [{inner}]"));
    if inner == "*" {
        return Ok(Segment::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|it| it.strip_suffix(')')) {
        return self::filter(filter);
    }
    if inner.starts_with(['"', '\'']) {
        // Compat: kubectl accepts escaped dots in a quoted name.
        let (name, _) = unquoted(inner).filter(|(_, rest)| rest.is_empty()).ok_or_else(invalid)?;
        return Ok(Segment::Field(name));
    }
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| invalid());
    match inner.split_once(':') {
        Some((from, to)) => {
            let bound = |text: &str| match text.trim() {
                "" => Ok(None),
                text => number(text).map(Some),
            };
            Ok(Segment::Slice(bound(from)?, bound(to)?))
        }
        None => Ok(Segment::Index(number(inner)?)),
    }
}

/// Operators, those that start with another one first.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

fn filter(text: &str) -> Result<Segment, TemplateError> {
    for (sign, operator) in OPERATORS {
        if let Some((left, right)) = text.split_once(sign) {
            return Ok(Segment::Filter(path(left)?, operator, Some(operand(right.trim())?)));
        }
    }
    Ok(Segment::Filter(path(text)?, Operator::Exists, None))
}

fn operand(text: &str) -> Result<Operand, TemplateError> {
    if text.starts_with(['"', '\'']) {
        return match unquoted(text) {
            Some((text, "")) => Ok(Operand::Value(Value::String(text))),
            Some(_) | None => Err(error(format!("invalid text {text}"))),
        };
    }
    if text.starts_with(['@', '$']) {
        return path(text).map(Operand::Path);
    }
    let value = serde_json::from_str(text).map_err(|_| error(format!("invalid value {text}")))?;
    Ok(Operand::Value(value))
}
