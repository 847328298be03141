//! Decoding of JSON by the table of fields.

use mco_api::quantity::{Quantity, QuantityError};
use serde_json::{Map, Value};

use super::super::{
    duration::{self, DurationError},
    fields::{Field, Kind, Presence, find},
};
use crate::yaml::YamlError;

/// A configuration that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON.
    #[error("not a JSON object")]
    Json,
    /// The text is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A value has another type than its field.
    #[error("{path} is {value}, and must be {expected}")]
    Type {
        /// Path of the field.
        path: String,
        /// The value, or its type.
        value: String,
        /// The type of the field.
        expected: &'static str,
    },
    /// A text is no duration.
    #[error("{path}: {fault}")]
    Duration {
        /// Path of the field.
        path: String,
        /// The fault.
        fault: DurationError,
    },
    /// A text is no quantity.
    #[error("{path} is {value:?}: {fault}")]
    Quantity {
        /// Path of the field.
        path: String,
        /// The text.
        value: String,
        /// The fault.
        fault: QuantityError,
    },
}

/// Receives the path and the value of a field that does not exist; returns the value to keep.
pub(super) type OnUnknown<'a> = &'a mut dyn FnMut(&str, &Value) -> Option<Value>;

/// Decodes the fields of an object. A null leaves a field unset.
pub(super) fn fields(
    known: &'static [Field],
    path: &str,
    value: &Value,
    on_unknown: OnUnknown<'_>,
) -> Result<Map<String, Value>, DecodeError> {
    let Value::Object(members) = value else { return Err(mismatch(path, value, "an object")) };
    let mut decoded = Map::new();
    for (name, value) in members {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let value = match find(known, name) {
            // The type of the object; printing sets it again.
            None if path == "kind" || path == "apiVersion" => None,
            None => on_unknown(&path, value),
            Some(field) => decode(field, &path, value, on_unknown)?,
        };
        if let Some(value) = value {
            decoded.insert(name.clone(), value);
        }
    }
    Ok(decoded)
}

fn decode(
    field: &Field,
    path: &str,
    value: &Value,
    on_unknown: OnUnknown<'_>,
) -> Result<Option<Value>, DecodeError> {
    if value.is_null() {
        // Compat: Go parses a null duration as an empty text, unless the field is a pointer.
        let text = matches!(field.kind, Kind::Duration) && field.presence != Presence::Optional;
        return if text { duration_text(path, "").map(Some) } else { Ok(None) };
    }
    let decoded = match field.kind {
        Kind::Struct(inner) => fields(inner, path, value, on_unknown)?.into(),
        Kind::StructList(inner) => {
            let mut items = Vec::new();
            for (index, item) in list(path, value)?.iter().enumerate() {
                let path = format!("{path}[{index}]");
                items.push(Value::Object(fields(inner, &path, item, on_unknown)?));
            }
            items.into()
        }
        Kind::TextList => each(path, value, text)?,
        Kind::IntList => each(path, value, |path, item| int(path, item, i32::MIN, i32::MAX))?,
        Kind::TextMap => entries(path, value, text)?,
        Kind::BoolMap => entries(path, value, |path, value| {
            if value.is_null() { Ok(false.into()) } else { boolean(path, value) }
        })?,
        Kind::QuantityMap => entries(path, value, quantity)?,
        Kind::TextListMap => entries(path, value, |path, value| {
            if value.is_null() { Ok(Value::Null) } else { each(path, value, text) }
        })?,
        Kind::Bool => boolean(path, value)?,
        Kind::Int32 => int(path, value, i32::MIN, i32::MAX)?,
        Kind::Int64 => int(path, value, i64::MIN, i64::MAX)?,
        Kind::Uint32 => int(path, value, 0_u32, u32::MAX)?,
        Kind::Float if value.is_number() => value.clone(),
        Kind::Float => return Err(mismatch(path, value, "a number")),
        Kind::Text => text(path, value)?,
        Kind::Duration => match value.as_str() {
            Some(text) => duration_text(path, text)?,
            None => return Err(mismatch(path, value, "a duration such as 1m30s")),
        },
        Kind::LooseDuration => match value.as_str() {
            Some(text) => duration_text(path, text)?,
            None => int(path, value, i64::MIN, i64::MAX)?,
        },
        Kind::Quantity => quantity(path, value)?,
    };
    Ok(Some(decoded))
}

fn duration_text(path: &str, text: &str) -> Result<Value, DecodeError> {
    let parsed = duration::parse(text);
    let parsed = parsed.map_err(|fault| DecodeError::Duration { path: path.to_owned(), fault })?;
    Ok(duration::format(parsed).into())
}

fn boolean(path: &str, value: &Value) -> Result<Value, DecodeError> {
    if value.is_boolean() { Ok(value.clone()) } else { Err(mismatch(path, value, "true or false")) }
}

/// Decodes text. Compat: numbers and booleans become text, as in YAML that the API machinery reads.
fn text(path: &str, value: &Value) -> Result<Value, DecodeError> {
    match value {
        Value::String(_) => Ok(value.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string().into()),
        Value::Null => Ok("".into()),
        Value::Array(_) | Value::Object(_) => Err(mismatch(path, value, "text")),
    }
}

fn quantity(path: &str, value: &Value) -> Result<Value, DecodeError> {
    let text = text(path, value)?;
    let text = text.as_str().unwrap_or_default();
    let parsed = Quantity::parse(text).map_err(|fault| DecodeError::Quantity {
        path: path.to_owned(),
        value: text.to_owned(),
        fault,
    })?;
    Ok(parsed.to_string().into())
}

fn int<T: Into<i64>>(path: &str, value: &Value, least: T, most: T) -> Result<Value, DecodeError> {
    let whole = |number: f64| {
        // The limits of a float that is a whole number of 53 bits.
        let fits = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
        #[expect(clippy::cast_possible_truncation, reason = "within the limits")]
        fits.then_some(number as i64)
    };
    let number = value.as_i64().or_else(|| value.as_f64().and_then(whole));
    let (least, most) = (least.into(), most.into());
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(number.into()),
        None if least == 0 => Err(mismatch(path, value, "a whole number from 0 to 4294967295")),
        None if most == i64::MAX => Err(mismatch(path, value, "a whole number")),
        None => Err(mismatch(path, value, "a whole number of up to 32 bits")),
    }
}

type Decoder = fn(&str, &Value) -> Result<Value, DecodeError>;

fn each(path: &str, value: &Value, item: Decoder) -> Result<Value, DecodeError> {
    let items = list(path, value)?.iter().enumerate();
    items.map(|(index, value)| item(&format!("{path}[{index}]"), value)).collect()
}

fn entries(path: &str, value: &Value, entry: Decoder) -> Result<Value, DecodeError> {
    let Value::Object(members) = value else { return Err(mismatch(path, value, "an object")) };
    let decoded = members.iter().map(|(key, value)| {
        let value = entry(&format!("{path}[{key}]"), value)?;
        Ok((key.clone(), value))
    });
    decoded.collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

fn list<'a>(path: &str, value: &'a Value) -> Result<&'a [Value], DecodeError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| mismatch(path, value, "a list"))
}

fn mismatch(path: &str, value: &Value, expected: &'static str) -> DecodeError {
    let value = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    };
    let path = if path.is_empty() { "the configuration" } else { path };
    DecodeError::Type { path: path.to_owned(), value, expected }
}
