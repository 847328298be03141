//! A JSON tree that remembers where each value stood.
//!
//! Object members stay in their order and duplicates stay too, because the reference's decoder
//! gives both a meaning: a later member is decoded on top of an earlier one.

mod parser;
mod text;

use std::borrow::Cow;

pub(crate) use parser::parse;

/// A JSON value and the byte offset of its first character.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) at: usize,
    pub(crate) value: Value<'a>,
}

/// What a [`Node`] holds. Numbers keep their spelling.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>),
}

/// One member of an object.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// The byte offset of the key's opening quote.
    pub(crate) at: usize,
    pub(crate) key: Cow<'a, str>,
    pub(crate) node: Node<'a>,
}

/// Why some bytes are not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SyntaxError {
    /// The byte offset of the first character that cannot stand where it does.
    pub(crate) at: usize,
    message: String,
}

impl Value<'_> {
    /// What type errors call this kind of value.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl Node<'_> {
    /// Whether every number here fits a floating-point number, as Go wants it of values whose type
    /// it does not know.
    pub(crate) fn has_finite_numbers(&self) -> bool {
        match &self.value {
            Value::Number(text) => text.parse::<f64>().is_ok_and(f64::is_finite),
            Value::Array(nodes) => nodes.iter().all(Self::has_finite_numbers),
            Value::Object(members) => members.iter().all(|it| it.node.has_finite_numbers()),
            Value::Null | Value::Bool(_) | Value::String(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
