//! A JSON tree that keeps the byte offset of each value.
//!
//! Object members keep their order, and duplicates are kept too, because both have a meaning in the
//! reference's decoder: a later member is decoded on top of an earlier one.

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

/// Content of a [`Node`]. Numbers are kept as text.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<Member<'a>>),
}

/// A member of an object.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// Byte offset of the key's opening quote.
    pub(crate) at: usize,
    pub(crate) key: Cow<'a, str>,
    pub(crate) node: Node<'a>,
}

/// A JSON syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SyntaxError {
    /// Byte offset of the first invalid character.
    pub(crate) at: usize,
    message: String,
}

impl Value<'_> {
    /// Returns the name of this kind of value for type errors.
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
    /// Returns true if all numbers in this value fit a floating-point number, which Go requires of
    /// values without a known type.
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
