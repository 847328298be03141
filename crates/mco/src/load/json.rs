//! Parses JSON with positions: one value or several in sequence.

use mco_core::lint::{
    Position, SpannedValue,
    value::{Entry, Value},
};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::{collections::HashSet, fmt};

use super::yaml::SyntaxError;

/// Maximum nesting, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: usize = 100;

/// Parses the values of a text.
pub(crate) fn read(text: &str) -> Result<Vec<SpannedValue>, SyntaxError> {
    let source = Source::new(text);
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value = value.map_err(|error| syntax(&error, None))?;
        values.push(source.node(value.get(), 0)?);
    }
    Ok(values.into_iter().filter(|value| !value.is_null()).collect())
}

/// A text and the offsets of its lines.
struct Source<'t> {
    text: &'t str,
    lines: Vec<usize>,
}

impl<'t> Source<'t> {
    fn new(text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { text, lines: std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect() }
    }

    /// Returns the position of a piece of the text.
    fn position(&self, piece: &str) -> Position {
        let offset = (piece.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let column = self.text.get(start..offset).map_or(0, |text| text.chars().count());
        Position { line, column: column + 1 }
    }

    fn node(&self, piece: &'t str, depth: usize) -> Result<SpannedValue, SyntaxError> {
        let at = self.position(piece);
        let refuse = |error: serde_json::Error| syntax(&error, Some(at));
        if depth > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} levels of nesting");
            return Err(SyntaxError { at: Some(at), message, hint: None });
        }
        let value = match piece.as_bytes().first() {
            Some(b'{') => {
                let members: Members<'_> = serde_json::from_str(piece).map_err(refuse)?;
                let entries = members.0.into_iter().map(|(key, value)| {
                    let value = self.node(value.get(), depth + 1)?;
                    Ok(Entry { key, key_at: value.at, value })
                });
                Value::Map(entries.collect::<Result<_, SyntaxError>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(piece).map_err(refuse)?;
                let items = items.into_iter().map(|item| self.node(item.get(), depth + 1));
                Value::List(items.collect::<Result<_, SyntaxError>>()?)
            }
            Some(b'"') => Value::String(serde_json::from_str(piece).map_err(refuse)?),
            Some(b'n') => Value::Null,
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            _ => Value::Number(serde_json::from_str(piece).map_err(refuse)?),
        };
        Ok(SpannedValue { at, value })
    }
}

fn syntax(error: &serde_json::Error, at: Option<Position>) -> SyntaxError {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or_default().to_owned();
    let own = Position { line: error.line().max(1), column: error.column().max(1) };
    SyntaxError { at: Some(at.unwrap_or(own)), message, hint: None }
}

/// The members of an object in order, without duplicates.
struct Members<'t>(Vec<(String, &'t RawValue)>);

struct MembersVisitor;

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members<'de>, A::Error> {
        let mut seen = HashSet::new();
        let mut members = Vec::new();
        while let Some((name, value)) = access.next_entry::<String, &'de RawValue>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("duplicate key {name:?}")));
            }
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests;
