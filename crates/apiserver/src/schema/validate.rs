//! Validates an object against its schema and collects all faults.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Additional, Kind, ListType, Schema, cel, format};
use crate::{
    admit::Part,
    failure::{Fault, FaultKind, shown},
    field_path::FieldPath,
};

/// Returns all faults of an object. `old` is the object that it replaces.
pub(crate) fn object(schema: &Schema, new: &Value, old: Option<&Value>, part: Part) -> Vec<Fault> {
    let mut faults = Vec::new();
    value(schema, new, FieldPath::Root, &mut faults);
    if part == Part::Status {
        // A status write must not fail because of a spec that an earlier schema allowed.
        faults.retain(|fault| fault.field.starts_with("status"));
    }
    // Rules assume values of the right type, so they are evaluated only for well-formed objects.
    if faults.is_empty() {
        cel::evaluate(schema, new, old, part, &mut faults);
    }
    faults
}

fn value(schema: &Schema, found: &Value, path: FieldPath<'_>, faults: &mut Vec<Fault>) {
    if Fault::are_enough(faults) || (found.is_null() && schema.nullable) {
        return;
    }
    if !has_type(schema, found) {
        let expected = if schema.int_or_string { "int-or-string" } else { schema.kind.name() };
        faults.push(Fault::wrong_type(path.to_string(), found, expected));
        return;
    }
    if !schema.allowed.is_empty() && !schema.allowed.contains(found) {
        let supported: Vec<String> = schema.allowed.iter().map(Value::to_string).collect();
        faults.push(Fault {
            field: path.to_string(),
            kind: FaultKind::NotSupported,
            message: format!(
                "Unsupported value: {}: supported values: {}",
                shown(found),
                supported.join(", ")
            ),
        });
    }
    match found {
        Value::Object(map) => object_value(schema, map, path, faults),
        Value::Array(list) => list_value(schema, list, path, faults),
        Value::String(text) => text_value(schema, text, path, faults),
        Value::Number(_) => number_value(schema, found, path, faults),
        Value::Null | Value::Bool(_) => {}
    }
    combined(schema, found, path, faults);
}

fn has_type(schema: &Schema, found: &Value) -> bool {
    if schema.int_or_string {
        return found.is_string() || found.is_i64() || found.is_u64();
    }
    match schema.kind {
        Kind::Any => true,
        Kind::Object => found.is_object(),
        Kind::Array => found.is_array(),
        Kind::String => found.is_string(),
        Kind::Boolean => found.is_boolean(),
        Kind::Number => found.is_number(),
        Kind::Integer => {
            found.is_i64() || found.is_u64() || found.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
    }
}

fn object_value(
    schema: &Schema,
    map: &Map<String, Value>,
    path: FieldPath<'_>,
    faults: &mut Vec<Fault>,
) {
    for key in &schema.required {
        if !map.contains_key(key) {
            faults.push(Fault::required(path.key(key).to_string(), ""));
        }
    }
    for (key, found) in map {
        if schema.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(below) = schema.properties.get(key) {
            value(below, found, path.key(key), faults);
        } else if let Additional::Each(each) = &schema.additional {
            value(each, found, path.key(key), faults);
        }
    }
    let count = map.len() as u64;
    if let Some(most) = schema.limits.max_properties.filter(|most| count > *most) {
        faults.push(too_many(path, count, most));
    }
    if let Some(least) = schema.limits.min_properties.filter(|least| count < *least) {
        let rule = format!("{path} in body should have at least {least} properties");
        faults.push(Fault::invalid(path.to_string(), &Value::from(count), &rule));
    }
}

fn too_many(path: FieldPath<'_>, count: u64, most: u64) -> Fault {
    Fault {
        field: path.to_string(),
        kind: FaultKind::TooMany,
        message: format!(
            "Too many: {count}: must have at most {most} {}",
            if most == 1 { "item" } else { "items" }
        ),
    }
}

fn list_value(schema: &Schema, list: &[Value], path: FieldPath<'_>, faults: &mut Vec<Fault>) {
    if let Some(items) = &schema.items {
        for (at, item) in list.iter().enumerate() {
            value(items, item, path.index(at), faults);
        }
    }
    let count = list.len() as u64;
    if let Some(most) = schema.limits.max_items.filter(|most| count > *most) {
        faults.push(too_many(path, count, most));
    }
    if let Some(least) = schema.limits.min_items.filter(|least| count < *least) {
        let rule = format!("{path} in body should have at least {least} items");
        faults.push(Fault::invalid(path.to_string(), &Value::from(count), &rule));
    }
    let mut seen = BTreeSet::new();
    for (at, item) in list.iter().enumerate() {
        let identity = match &schema.list {
            ListType::Map(keys) => Some(identity(item, keys).to_string()),
            ListType::Set => Some(item.to_string()),
            ListType::Atomic => schema.limits.unique_items.then(|| item.to_string()),
        };
        if let Some(identity) = identity
            && !seen.insert(identity.clone())
            && !Fault::are_enough(faults)
        {
            faults.push(Fault {
                field: format!("{path}[{at}]"),
                kind: FaultKind::Duplicate,
                message: format!("Duplicate value: {identity}"),
            });
        }
    }
}

/// Returns the key fields of a list item.
pub(crate) fn identity(item: &Value, keys: &[String]) -> Value {
    let parts = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(parts.collect())
}

fn text_value(schema: &Schema, text: &str, path: FieldPath<'_>, faults: &mut Vec<Fault>) {
    let found = Value::from(text);
    let length = text.chars().count() as u64;
    let mut broken = |rule: String| faults.push(Fault::invalid(path.to_string(), &found, &rule));
    if let Some(least) = schema.limits.min_length.filter(|least| length < *least) {
        broken(format!("{path} in body should be at least {least} chars long"));
    }
    if let Some(pattern) = schema.limits.pattern.as_ref().filter(|p| !p.is_match(text)) {
        broken(format!("{path} in body should match '{}'", pattern.as_str()));
    }
    if !schema.format.is_empty() && !format::holds(&schema.format, text) {
        broken(format!("{path} in body must be of type {}: {found}", schema.format));
    }
    if let Some(most) = schema.limits.max_length.filter(|most| length > *most) {
        faults.push(Fault {
            field: path.to_string(),
            kind: FaultKind::TooLong,
            message: format!("Too long: may not be more than {most} bytes"),
        });
    }
}

fn number_value(schema: &Schema, found: &Value, path: FieldPath<'_>, faults: &mut Vec<Fault>) {
    let Some(number) = found.as_f64() else { return };
    let limits = &schema.limits;
    let mut broken = |rule: String| faults.push(Fault::invalid(path.to_string(), found, &rule));
    if let Some(least) = limits.minimum {
        if limits.exclusive_minimum && number <= least {
            broken(format!("{path} in body should be greater than {least}"));
        } else if number < least {
            broken(format!("{path} in body should be greater than or equal to {least}"));
        }
    }
    if let Some(most) = limits.maximum {
        if limits.exclusive_maximum && number >= most {
            broken(format!("{path} in body should be less than {most}"));
        } else if number > most {
            broken(format!("{path} in body should be less than or equal to {most}"));
        }
    }
    if let Some(step) = limits.multiple_of.filter(|step| (number / step).fract() != 0.0) {
        broken(format!("{path} in body should be a multiple of {step}"));
    }
    let fits = match schema.format.as_str() {
        "int32" => found.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        "int64" => found.is_i64() || number.fract() == 0.0,
        _ => true,
    };
    if !fits {
        broken(format!("{path} in body must be of type {}: {found}", schema.format));
    }
}

fn combined(schema: &Schema, found: &Value, path: FieldPath<'_>, faults: &mut Vec<Fault>) {
    let passes = |one: &Schema| {
        let mut faults = Vec::new();
        value(one, found, path, &mut faults);
        faults.is_empty()
    };
    for one in &schema.all_of {
        value(one, found, path, faults);
    }
    let mut broken = |rule: &str| {
        faults.push(Fault::invalid(path.to_string(), found, &format!("{path} in body {rule}")));
    };
    if !schema.any_of.is_empty() && !schema.any_of.iter().any(passes) {
        broken("must validate at least one schema (anyOf)");
    }
    if !schema.one_of.is_empty() && schema.one_of.iter().filter(|one| passes(one)).count() != 1 {
        broken("must validate one and only one schema (oneOf)");
    }
    if schema.not.as_deref().is_some_and(passes) {
        broken("must not validate the schema (not)");
    }
}
