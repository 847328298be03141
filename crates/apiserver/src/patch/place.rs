//! The types of values, as far as merging needs them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::fields::Step;
use crate::{
    resource::{Form, Resource},
    schema::{Additional, ListType, Schema},
    types::{self, METADATA, Type, merge::Merge},
};

static ATOMIC: ListType = ListType::Atomic;

/// The type of the value at one place of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// An object of a built-in kind.
    Object(&'static types::Struct),
    /// A value of a built-in type, with the rules of its field.
    Typed(&'static Type, Option<&'static Merge>),
    /// The root of a custom object.
    Root(&'a Schema),
    /// A value that the schema of a definition describes.
    Custom(&'a Schema),
    /// A kind without a table: all its fields are known, its lists are atomic.
    Plain,
    /// A value that nothing describes.
    Unknown,
}

/// Returns the fields of a type, if it has any.
fn structure(kind: &'static Type) -> Option<&'static types::Struct> {
    if let Type::Named(name) = types::resolved(kind) { name.structure() } else { None }
}

/// The way in which a value is owned and merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape<'a> {
    /// As a whole.
    Leaf,
    /// Entry by entry.
    Map,
    /// Item by item.
    List(&'a ListType),
}

impl<'a> Place<'a> {
    /// Returns the type of a resource's objects.
    pub(crate) fn root(resource: &'a Resource) -> Self {
        if resource.custom {
            return resource.schema.as_deref().map_or(Self::Unknown, Self::Root);
        }
        let group = if resource.form == Form::NewEvent { "" } else { resource.group.as_str() };
        types::of_kind(group, &resource.version, &resource.kind).map_or(Self::Plain, Self::Object)
    }

    /// Returns the way in which a value here is owned.
    pub(crate) fn shape(self, value: &Value) -> Shape<'a> {
        match value {
            Value::Object(_) if self.is_atomic_map() => Shape::Leaf,
            Value::Object(_) => Shape::Map,
            Value::Array(_) => match self.list() {
                ListType::Atomic => Shape::Leaf,
                list @ (ListType::Set | ListType::Map(_)) => Shape::List(list),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Shape::Leaf,
        }
    }

    fn is_atomic_map(self) -> bool {
        match self {
            Self::Typed(kind, merge) => {
                merge.is_some_and(|merge| merge.is_atomic)
                    || *types::resolved(kind) == Type::Raw
                    || structure(kind).is_some_and(|found| found.is_atomic)
            }
            Self::Root(schema) | Self::Custom(schema) => schema.atomic_map,
            Self::Object(_) | Self::Plain | Self::Unknown => false,
        }
    }

    fn list(self) -> &'a ListType {
        match self {
            Self::Typed(_, Some(merge)) => &merge.list,
            Self::Custom(schema) => &schema.list,
            Self::Typed(_, None)
            | Self::Object(_)
            | Self::Root(_)
            | Self::Plain
            | Self::Unknown => &ATOMIC,
        }
    }

    /// Returns the rules of the field that holds the value, for strategic merge patches.
    pub(crate) fn rules(self) -> Option<&'static Merge> {
        if let Self::Typed(_, merge) = self { merge } else { None }
    }

    /// Returns the type of an entry of a map, and true if the type of the map names the entry.
    pub(crate) fn field(self, key: &str) -> (Self, bool) {
        match self {
            Self::Object(found) => Self::of_struct(found, key),
            Self::Typed(kind, _) => {
                if let Type::Map(below) = types::resolved(kind) {
                    return (Self::Typed(below, None), false);
                }
                structure(kind).map_or((Self::Unknown, false), |found| Self::of_struct(found, key))
            }
            Self::Root(_) | Self::Plain if key == "metadata" => {
                (Self::Typed(&METADATA, None), true)
            }
            Self::Root(_) if matches!(key, "apiVersion" | "kind") => (Self::Unknown, true),
            Self::Root(schema) | Self::Custom(schema) => match schema.properties.get(key) {
                Some(below) => (Self::Custom(below), true),
                None => match &schema.additional {
                    Additional::Each(each) => (Self::Custom(each), false),
                    Additional::Nothing | Additional::Anything => (Self::Unknown, false),
                },
            },
            Self::Plain => (Self::Plain, true),
            Self::Unknown => (Self::Unknown, false),
        }
    }

    fn of_struct(found: &'static types::Struct, key: &str) -> (Self, bool) {
        match found.field(key) {
            Some(field) => (Self::Typed(&field.kind, Some(&field.merge)), true),
            None => (Self::Unknown, false),
        }
    }

    /// Returns the type of the items of a list.
    pub(crate) fn items(self) -> Self {
        match self {
            Self::Typed(kind, _) => {
                let list = types::resolved(kind);
                if let Type::List(below) = list { Self::Typed(below, None) } else { Self::Unknown }
            }
            Self::Custom(schema) | Self::Root(schema) => {
                schema.items.as_deref().map_or(Self::Unknown, Self::Custom)
            }
            Self::Object(_) | Self::Plain | Self::Unknown => Self::Unknown,
        }
    }

    /// Returns the path step of an item of a list here.
    pub(crate) fn step(self, list: &ListType, item: &Value) -> Step {
        let ListType::Map(keys) = list else { return Step::Member(item.to_string()) };
        let mut parts = Map::new();
        for key in keys {
            let value = item.get(key).map(Cow::Borrowed).or_else(|| self.key_default(key));
            if let Some(value) = value {
                parts.insert(key.clone(), value.into_owned());
            }
        }
        Step::Item(Value::Object(parts).to_string())
    }

    /// Returns the value of a key field that an item leaves out.
    fn key_default(self, key: &str) -> Option<Cow<'a, Value>> {
        match self {
            // The only key field of the built-in kinds that has a default.
            Self::Typed(..) if key == "protocol" => Some(Cow::Owned("TCP".into())),
            Self::Custom(schema) => {
                let items = schema.items.as_deref()?;
                items.properties.get(key)?.default.as_ref().map(Cow::Borrowed)
            }
            Self::Typed(..) | Self::Object(_) | Self::Root(_) | Self::Plain | Self::Unknown => None,
        }
    }

    /// Returns the object that Kubernetes compares a new object with: the fields that every object
    /// of the kind has.
    pub(crate) fn empty(self) -> Value {
        match self {
            Self::Object(found) => types::canonical::empty(found),
            Self::Plain => serde_json::json!({"metadata": {}, "spec": {"names": {}}, "status": {}}),
            Self::Typed(..) | Self::Root(_) | Self::Custom(_) | Self::Unknown => {
                Value::Object(Map::new())
            }
        }
    }
}
