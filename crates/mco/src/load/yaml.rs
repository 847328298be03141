//! Parses YAML like kubectl. This is the only module that uses the YAML library.
//!
//! Scalars follow YAML 1.1: `0644` is the number 420, `yes` and `on` are true. Duplicate keys are
//! errors, anchors and merge keys are expanded within limits, and empty documents are dropped.

use mco_core::lint::{
    Position, SpannedValue,
    value::{Entry, Value},
};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, MessageFormatter as _, Spanned, UserMessageFormatter};
use std::{collections::HashSet, fmt};

/// A syntax error in a manifest.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: Option<Position>,
    pub(crate) message: String,
    pub(crate) hint: Option<&'static str>,
}

/// Parses the documents of a text.
pub(crate) fn read(text: &str) -> Result<Vec<SpannedValue>, SyntaxError> {
    let documents = serde_saphyr::from_multiple_with_options::<Spanned<Tree>>(text, options())
        .map_err(|error| syntax_error(&error))?;
    let documents: Vec<SpannedValue> = documents.into_iter().map(node).collect::<Result<_, _>>()?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Returns a value as YAML, members in alphabetical order like kubectl.
pub(crate) fn write(value: &impl serde::Serialize) -> anyhow::Result<String> {
    // Only serde_json can serialize raw JSON inside the value.
    let value = serde_json::to_value(value)?;
    // Long values such as data URLs and SSH keys stay on one line.
    let options = serde_saphyr::ser_options! { min_fold_chars: usize::MAX };
    Ok(serde_saphyr::to_string_with_options(&value, options)?)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        // A snippet of the source may show a secret.
        with_snippet: false,
        // Large enough for all MachineConfigs of a large cluster in one file.
        budget: serde_saphyr::budget! {
            max_documents: 100_000,
            max_events: 8_000_000,
            max_nodes: 2_000_000,
            max_depth: 100,
        },
        // Only an alias bomb expands to more.
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
    }
}

fn syntax_error(error: &Error) -> SyntaxError {
    let at = error.location().filter(|at| *at != Location::UNKNOWN).map(position);
    let error = error.without_snippet();
    if let Error::DuplicateMappingKey { key, .. } = error {
        return duplicate(key.as_deref(), at);
    }
    let too_large = matches!(
        error,
        Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. }
    );
    if too_large {
        let message = "the document is too deep or too large once its aliases are expanded";
        let hint = Some("split the file, or write out the aliased parts");
        return SyntaxError { at, message: message.to_owned(), hint };
    }
    let message = UserMessageFormatter.format_message(error).into_owned();
    let tabs = message.contains("tab").then_some("indent with spaces");
    SyntaxError { at, message, hint: tabs }
}

fn position(at: Location) -> Position {
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Position { line: number(at.line()), column: number(at.column()) }
}

fn node(tree: Spanned<Tree>) -> Result<SpannedValue, SyntaxError> {
    let at = position(tree.referenced);
    let value = match tree.value {
        Tree::Plain(value) => value,
        Tree::List(items) => Value::List(items.into_iter().map(node).collect::<Result<_, _>>()?),
        Tree::Map(entries) => Value::Map(map(entries)?),
    };
    Ok(SpannedValue { at, value })
}

fn map(entries: Vec<(Spanned<Key>, Spanned<Tree>)>) -> Result<Vec<Entry>, SyntaxError> {
    let mut seen = HashSet::new();
    let mut map = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let key_at = position(key.referenced);
        let key = key.value.0;
        // The library compares keys as written; `on` and `true` become equal only here.
        if !seen.insert(key.clone()) {
            return Err(duplicate(Some(&key), Some(key_at)));
        }
        map.push(Entry { key, key_at, value: node(value)? });
    }
    Ok(map)
}

fn duplicate(key: Option<&str>, at: Option<Position>) -> SyntaxError {
    let message = match key {
        Some(key) => format!("duplicate key {key:?}"),
        None => "duplicate key".to_owned(),
    };
    SyntaxError { at, message, hint: Some("remove one of the two keys") }
}

/// The value from the library, with the library's positions.
enum Tree {
    Plain(Value),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<Key>, Spanned<Tree>)>),
}

struct TreeVisitor;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, switch: bool) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::Bool(switch)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::Number(number.into())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::Number(number.into())))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Tree, E> {
        serde_json::Number::from_f64(number)
            .map(|number| Tree::Plain(Value::Number(number)))
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::String(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree::Plain(Value::String(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

/// A map key as text.
struct Key(String);

struct KeyVisitor;

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is text")
    }

    fn visit_bool<E>(self, switch: bool) -> Result<Key, E> {
        Ok(Key(switch.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Key, E> {
        Ok(Key(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Key, E> {
        Ok(Key(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Key, E> {
        Ok(Key(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Key, E> {
        Ok(Key(text.to_owned()))
    }
}

#[cfg(test)]
mod tests;
