//! Structural schemas of custom resources, parsed when their definition is written.

pub(crate) mod cel;
pub(crate) mod default;
pub(crate) mod format;
pub(crate) mod prune;
pub(crate) mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::object;

/// The schema of one value and everything below it.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the schema language")]
pub(crate) struct Schema {
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) int_or_string: bool,
    /// True if the value is a complete Kubernetes object, like the root.
    pub(crate) embedded: bool,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) default: Option<Value>,
    pub(crate) limits: Limits,
    pub(crate) format: String,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
    pub(crate) list: ListType,
    pub(crate) atomic_map: bool,
    pub(crate) rules: Vec<cel::Rule>,
}

/// The JSON type that a schema requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Kind {
    /// Returns the type's name in schemas and errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// The values that a map accepts besides its named properties.
#[derive(Clone, Debug, Default)]
pub(crate) enum Additional {
    #[default]
    Nothing,
    Anything,
    Each(Box<Schema>),
}

/// The merge strategy of a list, which also determines how its items are identified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Numeric and length limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) pattern: Option<Regex>,
}

/// An error in a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub(crate) struct SchemaError {
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Schema {
    /// Parses an `openAPIV3Schema`. The root is an object with metadata.
    pub(crate) fn root(source: &Value) -> Result<Self, SchemaError> {
        let mut schema = Self::read(source, "openAPIV3Schema")?;
        schema.embedded = true;
        Ok(schema)
    }

    fn read(source: &Value, path: &str) -> Result<Self, SchemaError> {
        let flag = |key: &str| source.get(key).and_then(Value::as_bool).unwrap_or(false);
        let text = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or("");
        let list = |key: &str| source.get(key).and_then(Value::as_array).cloned();
        let texts = |key: &str| -> Vec<String> {
            let found = list(key).unwrap_or_default();
            found.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut properties = BTreeMap::new();
        let named = source.get("properties").and_then(Value::as_object);
        for (key, value) in named.into_iter().flatten() {
            let below = format!("{path}.properties[{key}]");
            properties.insert(key.clone(), Self::read(value, &below)?);
        }
        Ok(Self {
            kind: kind(text("type")),
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional: Self::additional(source, path)?,
            items: Self::below(source, "items", path)?,
            required: texts("required"),
            allowed: list("enum").unwrap_or_default(),
            default: source.get("default").cloned(),
            limits: limits(source, path)?,
            format: text("format").to_owned(),
            all_of: Self::many(source, "allOf", path)?,
            any_of: Self::many(source, "anyOf", path)?,
            one_of: Self::many(source, "oneOf", path)?,
            not: Self::below(source, "not", path)?,
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(texts("x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            atomic_map: text("x-kubernetes-map-type") == "atomic",
            rules: cel::read_rules(source, path)?,
        })
    }

    fn below(source: &Value, key: &str, path: &str) -> Result<Option<Box<Self>>, SchemaError> {
        let Some(found) = source.get(key).filter(|found| found.is_object()) else {
            return Ok(None);
        };
        Ok(Some(Box::new(Self::read(found, &format!("{path}.{key}"))?)))
    }

    fn many(source: &Value, key: &str, path: &str) -> Result<Vec<Self>, SchemaError> {
        let found = source.get(key).and_then(Value::as_array).into_iter().flatten();
        found.map(|one| Self::read(one, &format!("{path}.{key}"))).collect()
    }

    fn additional(source: &Value, path: &str) -> Result<Additional, SchemaError> {
        match source.get("additionalProperties") {
            Some(Value::Bool(true)) => Ok(Additional::Anything),
            Some(found @ Value::Object(_)) => {
                let below = format!("{path}.additionalProperties");
                Ok(Additional::Each(Box::new(Self::read(found, &below)?)))
            }
            _ => Ok(Additional::Nothing),
        }
    }

    /// Returns the schema of a map's entry, if there is one.
    pub(crate) fn entry(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(match &self.additional {
            Additional::Each(schema) => Some(schema),
            Additional::Nothing | Additional::Anything => None,
        })
    }
}

fn kind(name: &str) -> Kind {
    match name {
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => Kind::Any,
    }
}

fn limits(source: &Value, path: &str) -> Result<Limits, SchemaError> {
    let real = |key: &str| source.get(key).and_then(Value::as_f64);
    let count = |key: &str| source.get(key).and_then(Value::as_u64);
    let flag = |key: &str| source.get(key).and_then(Value::as_bool).unwrap_or(false);
    let pattern = match object::text(source, &["pattern"]) {
        "" => None,
        text => Some(Regex::new(text).map_err(|error| SchemaError {
            path: format!("{path}.pattern"),
            message: format!("must be a valid regular expression, but isn't: {error}"),
        })?),
    };
    Ok(Limits {
        minimum: real("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: real("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: real("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        pattern,
    })
}

#[cfg(test)]
mod tests;
