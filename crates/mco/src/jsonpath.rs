//! Templates of kubectl's `-o jsonpath`, `-o custom-columns` and `--sort-by`: text with paths in braces,
//! loops over `range`, and filters such as `[?(@.type=="Ready")]`.

mod parse;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, fmt};

use serde_json::Value;

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Vec<Part>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Path(Path),
    /// The parts are repeated for each value of the path.
    Range(Path, Vec<Self>),
}

/// A path into an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<Segment>);

/// A segment of a path.
#[derive(Clone, Debug, PartialEq)]
enum Segment {
    /// The object of the loop or of the filter.
    This,
    /// The whole object.
    Root,
    Field(String),
    All,
    /// All values below, at any depth.
    Descend,
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Filter(Path, Operator, Option<Operand>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// The path has a value.
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Value(Value),
    Path(Path),
}

/// An invalid template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateError(String);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Parses a template. One without braces is a path.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        parse::template(text).map(Self)
    }

    /// Returns the text of the template for an object. Paths that lead nowhere are empty.
    pub(crate) fn render(&self, object: &Value) -> String {
        let mut text = String::new();
        render(&self.0, object, object, &mut text);
        text
    }
}

impl Path {
    /// Parses a path, with or without braces and the leading dot.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|it| it.strip_suffix('}')).unwrap_or(text);
        parse::path(inner)
    }

    /// Returns the values that the path leads to.
    pub(crate) fn find<'v>(&self, object: &'v Value) -> Vec<&'v Value> {
        find(&self.0, object, object)
    }

    /// Compares two objects by the first value of the path; objects without one come first.
    pub(crate) fn compare(&self, left: &Value, right: &Value) -> Ordering {
        let first = |object| self.find(object).into_iter().next();
        match (first(left), first(right)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => order(left, right).unwrap_or(Ordering::Equal),
        }
    }
}

/// Returns a value as text: strings without quotes, everything else as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn render(parts: &[Part], this: &Value, root: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(path) => {
                let found: Vec<String> = find(&path.0, this, root).into_iter().map(text).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range(path, parts) => {
                for value in find(&path.0, this, root) {
                    render(parts, value, root, out);
                }
            }
        }
    }
}

fn find<'v>(segments: &[Segment], this: &'v Value, root: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![this];
    for segment in segments {
        found = found.into_iter().flat_map(|value| step(segment, value, this, root)).collect();
    }
    found
}

fn step<'v>(
    segment: &Segment,
    value: &'v Value,
    this: &'v Value,
    root: &'v Value,
) -> Vec<&'v Value> {
    match segment {
        Segment::This => vec![this],
        Segment::Root => vec![root],
        Segment::Field(name) => value.get(name).into_iter().collect(),
        Segment::All => children(value),
        Segment::Descend => {
            let mut all = vec![value];
            let below = children(value).into_iter();
            all.extend(below.flat_map(|child| step(&Segment::Descend, child, this, root)));
            all
        }
        Segment::Index(index) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            place(*index, items.len()).and_then(|index| items.get(index)).into_iter().collect()
        }
        Segment::Slice(from, to) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let from = from.map_or(Some(0), |from| place(from, items.len())).unwrap_or(items.len());
            let to =
                to.map_or(Some(items.len()), |to| place(to, items.len())).unwrap_or(items.len());
            items.get(from..to).unwrap_or_default().iter().collect()
        }
        Segment::Filter(path, operator, operand) => children(value)
            .into_iter()
            .filter(|item| holds(path, *operator, operand.as_ref(), item, root))
            .collect(),
    }
}

/// Returns the position of an index, which counts from the end if it is negative.
fn place(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn holds(
    path: &Path,
    operator: Operator,
    operand: Option<&Operand>,
    item: &Value,
    root: &Value,
) -> bool {
    let left = find(&path.0, item, root);
    let Some(left) = left.first() else { return false };
    let right = match operand {
        None => return true,
        Some(Operand::Value(value)) => Some(value),
        Some(Operand::Path(path)) => find(&path.0, item, root).into_iter().next(),
    };
    let Some(right) = right else { return false };
    let order = order(left, right);
    match operator {
        Operator::Exists => true,
        Operator::Equal => *left == right,
        Operator::NotEqual => *left != right,
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Compares two values of the same type.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (_, _) => None,
    }
}
