//! The subset of `JSONPath` that printer columns use: fields, indexes, `[*]` and equality filters.

use serde_json::Value;

/// Returns all values that a path selects. An invalid path selects nothing.
pub(crate) fn find<'a>(path: &str, root: &'a Value) -> Vec<&'a Value> {
    let Some(steps) = parse(path) else { return Vec::new() };
    let mut found = vec![root];
    for step in &steps {
        found = found.into_iter().flat_map(|value| step.from(value)).collect();
    }
    found.retain(|value| !value.is_null());
    found
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Where { field: Vec<String>, equals: String },
}

impl Step {
    fn from<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let at = if *index < 0 {
                    index + i64::try_from(list.len()).unwrap_or(0)
                } else {
                    *index
                };
                usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(map) => map.values().collect(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
            },
            Self::Where { field, equals } => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let holds = |item: &&Value| {
                    let found = field.iter().try_fold(*item, |value, key| value.get(key));
                    match found {
                        Some(Value::String(text)) => text == equals,
                        Some(other) => {
                            serde_json::from_str(equals).is_ok_and(|wanted: Value| wanted == *other)
                        }
                        None => false,
                    }
                };
                list.iter().filter(holds).collect()
            }
        }
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let mut rest = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or(path);
    rest = rest.strip_prefix('$').unwrap_or(rest);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let end = close(tail)?;
            let (inside, tail) = tail.split_at_checked(end)?;
            steps.push(bracket(inside)?);
            rest = tail.strip_prefix(']')?;
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            let (name, tail) = field(tail);
            if !name.is_empty() {
                steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            } else if !tail.starts_with('[') && !tail.is_empty() {
                return None;
            }
            rest = tail;
        }
    }
    Some(steps)
}

/// Reads a field name up to the next step. A backslash escapes the next character.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (name, text.get(at..).unwrap_or("")),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// Returns the position of the closing bracket, ignoring brackets inside quotes.
fn close(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Option<Step> {
    let inside = inside.trim();
    if inside == "*" {
        return Some(Step::All);
    }
    if let Ok(index) = inside.parse() {
        return Some(Step::Index(index));
    }
    if let Some(name) = unquoted(inside) {
        return Some(Step::Field(name.to_owned()));
    }
    let test = inside.strip_prefix("?(")?.strip_suffix(')')?;
    let (left, right) = test.split_once("==")?;
    let field = left.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
    let right = right.trim();
    Some(Step::Where { field, equals: unquoted(right).unwrap_or(right).to_owned() })
}

fn unquoted(text: &str) -> Option<&str> {
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_select_the_values_of_columns() {
        let object = json!({"metadata": {"annotations": {"a.io/b": "v"}},
            "list": [{"type": "X", "s": "1"}, {"type": "Y", "s": "2"}], "n": null});
        for (path, expected) in [
            (".metadata.annotations.a\\.io/b", vec!["v"]),
            (".list[?(@.type==\"Y\")].s", vec!["2"]),
            (".list[?(@.type=='Z')].s", vec![]),
            (".list[*].s", vec!["1", "2"]),
            (".list[0].s", vec!["1"]),
            (".list[-1].s", vec!["2"]),
            ("{.list[1]['s']}", vec!["2"]),
            (".missing.deep", vec![]),
            (".n", vec![]),
            (".list[", vec![]),
        ] {
            assert_eq!(find(path, &object), expected, "{path}");
        }
    }
}
