//! A `KubeletConfiguration`: decoding, merging and printing, as the reference does with the Go type.
//!
//! Values are kept as JSON in canonical form: durations as Go prints them, quantities as the API
//! machinery does, numbers of text fields as text. A field that was set to zero is kept, because
//! merging and printing treat it by the rules of [`Presence`].

mod decode;

use mco_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{
    duration,
    fields::{self, Field, Kind, Presence, ROOT},
};
use crate::{goyaml, yaml};

pub use self::decode::DecodeError;

/// API version of the configuration.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// A decoded `KubeletConfiguration`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Configuration {
    fields: Map<String, Value>,
    /// Paths of fields that do not exist.
    unknown: Vec<String>,
}

impl Configuration {
    /// Decodes the fields that a user sets. Fields that do not exist are left out and remembered.
    pub(super) fn from_user(json: &str) -> Result<Self, DecodeError> {
        let value: Value = serde_json::from_str(json).map_err(|_| DecodeError::Json)?;
        let mut unknown = Vec::new();
        let fields = decode::fields(ROOT, "", &value, &mut |path, _| {
            unknown.push(path.to_owned());
            None
        })?;
        Ok(Self { fields, unknown })
    }

    /// Decodes a configuration file. Fields that do not exist stay: the file may be for a newer
    /// kubelet.
    pub(super) fn from_file(text: &str) -> Result<Self, DecodeError> {
        let documents = yaml::documents(text).map_err(DecodeError::Yaml)?;
        let value = documents.into_iter().next().unwrap_or_else(|| json!({}));
        let mut keep = |_: &str, value: &Value| Some(value.clone());
        let fields = decode::fields(ROOT, "", &value, &mut keep)?;
        Ok(Self { fields, unknown: Vec::new() })
    }

    /// Returns the paths of fields that do not exist.
    pub(super) fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Returns the fields that are set.
    pub(super) const fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Returns the value of a field that is set, even to zero.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Returns the text of a field; empty if unset.
    pub(super) fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the items of a list of texts.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let items = self.fields.get(name).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Sets a field.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// Unsets a field.
    pub(super) fn unset(&mut self, name: &str) {
        self.fields.remove(name);
    }

    /// Adds entries to a map, or fields to a structure.
    pub(super) fn add_entries(
        &mut self,
        name: &str,
        entries: impl IntoIterator<Item = (String, Value)>,
    ) {
        let known = self.fields.entry(name).or_insert_with(|| json!({}));
        if let Some(known) = known.as_object_mut() {
            known.extend(entries);
        }
    }

    /// Removes an entry of a map; returns its text.
    pub(super) fn take_entry(&mut self, name: &str, key: &str) -> Option<String> {
        let entry = self.fields.get_mut(name)?.as_object_mut()?.remove(key)?;
        entry.as_str().map(str::to_owned)
    }

    /// Merges `other` into this configuration: its fields win where they are not zero, its maps are
    /// merged entry by entry.
    ///
    /// Compat: zero loses even where it was set (mergo.WithOverride in
    /// pkg/controller/kubelet-config/helpers.go), so `kubeAPIQPS: 0` keeps the value of the base.
    pub(super) fn merge(&mut self, other: &Self) {
        merge(ROOT, &mut self.fields, &other.fields);
    }

    /// Prints the configuration with all fields that Kubernetes prints in any case.
    pub(super) fn print(&self) -> Result<String, goyaml::UnreadableText> {
        print(completed(ROOT, &self.fields))
    }

    /// Prints only the fields that are set.
    pub(super) fn print_fragment(&self) -> Result<String, goyaml::UnreadableText> {
        print(self.fields.clone())
    }
}

fn print(mut fields: Map<String, Value>) -> Result<String, goyaml::UnreadableText> {
    fields.insert("apiVersion".to_owned(), API_VERSION.into());
    fields.insert("kind".to_owned(), KIND.into());
    goyaml::to_text(&Value::Object(fields))
}

fn merge(fields: &'static [Field], into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (name, value) in from {
        let Some(field) = fields::find(fields, name) else { continue };
        let known = into.get_mut(name);
        match (field.kind, known, value) {
            (Kind::Struct(inner), Some(Value::Object(known)), Value::Object(value)) => {
                merge(inner, known, value);
            }
            (Kind::Struct(inner), None, Value::Object(value)) => {
                let mut merged = Map::new();
                merge(inner, &mut merged, value);
                if field.presence == Presence::Optional || !merged.is_empty() {
                    into.insert(name.clone(), Value::Object(merged));
                }
            }
            (
                Kind::TextMap | Kind::BoolMap | Kind::QuantityMap | Kind::TextListMap,
                Some(Value::Object(known)),
                Value::Object(value),
            ) => known.extend(value.clone()),
            (Kind::LooseDuration, Some(known), _) => merge_loose(known, value),
            (_, Some(known), _) if !is_zero(field.kind, value) => *known = value.clone(),
            (_, Some(_), _) => {}
            (_, None, _) => {
                if field.presence == Presence::Optional || !is_zero(field.kind, value) {
                    into.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

/// Merges a duration that is text or a number of nanoseconds. Text stays text.
fn merge_loose(known: &mut Value, value: &Value) {
    let nanoseconds = |value: &Value| match value.as_str() {
        Some(text) => duration::parse(text).unwrap_or_default(),
        None => value.as_i64().unwrap_or_default(),
    };
    let size = match nanoseconds(value) {
        0 => nanoseconds(known),
        size => size,
    };
    let is_text = known.is_string() || value.is_string();
    *known = if is_text { duration::format(size).into() } else { size.into() };
}

/// Returns true for the value that Go gives a field without a value.
pub(super) fn is_zero(kind: Kind, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => match kind {
            Kind::Duration | Kind::LooseDuration => text == "0s",
            Kind::Quantity => Quantity::parse(text).is_ok_and(|quantity| quantity.is_zero()),
            Kind::Bool
            | Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Float
            | Kind::Text
            | Kind::TextList
            | Kind::IntList
            | Kind::TextMap
            | Kind::BoolMap
            | Kind::QuantityMap
            | Kind::TextListMap
            | Kind::Struct(_)
            | Kind::StructList(_) => text.is_empty(),
        },
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Returns the fields as Kubernetes prints them: without unset ones, with those that are printed
/// in any case.
fn completed(fields: &'static [Field], set: &Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for field in fields {
        let value = set.get(field.name);
        let printed = match (field.kind, value) {
            (Kind::Struct(inner), Some(Value::Object(set))) => Some(completed(inner, set).into()),
            (Kind::StructList(inner), Some(Value::Array(items))) if !items.is_empty() => {
                let item = |item: &Value| match item.as_object() {
                    Some(set) => completed(inner, set).into(),
                    None => item.clone(),
                };
                Some(items.iter().map(item).collect())
            }
            (_, None) if field.presence == Presence::Always => Some(zero(field.kind)),
            (_, None) => None,
            (kind, Some(value)) => {
                let is_printed = field.presence != Presence::Omitted || !is_zero(kind, value);
                is_printed.then(|| value.clone())
            }
        };
        if let Some(printed) = printed {
            all.insert(field.name.to_owned(), printed);
        }
    }
    let unknown = set.iter().filter(|(name, _)| fields::find(fields, name).is_none());
    all.extend(unknown.map(|(name, value)| (name.clone(), value.clone())));
    all
}

fn zero(kind: Kind) -> Value {
    match kind {
        Kind::Duration => json!("0s"),
        Kind::Quantity => json!("0"),
        Kind::Text => json!(""),
        Kind::Bool => json!(false),
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Float | Kind::LooseDuration => json!(0),
        Kind::Struct(inner) => completed(inner, &Map::new()).into(),
        Kind::TextList
        | Kind::IntList
        | Kind::TextMap
        | Kind::BoolMap
        | Kind::QuantityMap
        | Kind::TextListMap
        | Kind::StructList(_) => Value::Null,
    }
}
