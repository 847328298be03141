//! Reads an object by the type of its kind, and returns it as Kubernetes writes it: without unknown
//! fields, without empty optional ones, and with all others.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use mco_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{Field, METADATA, Struct, Type, inner, resolved};
use crate::field_path::{FieldPath, FieldPaths};

/// Brings an object of the type `found` into the form in which Kubernetes writes it, and returns the
/// paths of its unknown fields, which are dropped. Fails with the message of kube-apiserver if a value
/// has the wrong type.
pub(crate) fn read(found: &'static Struct, object: &mut Value) -> Result<Vec<String>, String> {
    let mut reader = Reader::new(found);
    reader.structure(found, object, FieldPath::Root)?;
    Ok(reader.unknown.into_vec())
}

/// Brings the metadata of a custom object into that form.
pub(crate) fn read_metadata(metadata: &mut Value) -> Result<Vec<String>, String> {
    let Some(found) = inner(&METADATA) else { return Ok(Vec::new()) };
    let mut reader = Reader::new(found);
    if !metadata.is_object() && !metadata.is_null() {
        return Err(reader.mismatch(metadata, &METADATA));
    }
    reader.structure(found, metadata, FieldPath::Root.key("metadata"))?;
    Ok(reader.unknown.into_vec())
}

/// Returns an object of the type without any field but those that JSON always contains.
pub(crate) fn empty(found: &'static Struct) -> Value {
    let mut out = Map::new();
    fill(found, &mut out);
    Value::Object(out)
}

struct Reader {
    unknown: FieldPaths,
    /// Names of the fields on the way to the current value.
    fields: Vec<&'static str>,
    /// The innermost type with fields.
    owner: &'static str,
}

impl Reader {
    fn new(found: &'static Struct) -> Self {
        Self { unknown: FieldPaths::default(), fields: Vec::new(), owner: found.name }
    }

    fn mismatch(&self, value: &Value, kind: &'static Type) -> String {
        let owner = self.owner.rsplit('.').next().unwrap_or_default();
        let place = if self.fields.is_empty() {
            "Go value".to_owned()
        } else {
            format!("Go struct field {owner}.{}", self.fields.join("."))
        };
        format!("json: cannot unmarshal {} into {place} of type {}", spelled(value), go_name(kind))
    }

    fn structure(
        &mut self,
        found: &'static Struct,
        value: &mut Value,
        path: FieldPath<'_>,
    ) -> Result<(), String> {
        // Go leaves the zero value in place of null.
        let map = crate::object::map_of(value);
        let owner = std::mem::replace(&mut self.owner, found.name);
        let mut failed = None;
        map.retain(|key, below| {
            if failed.is_some() {
                return true;
            }
            let Some(field) = found.field(key) else {
                self.unknown.add(path.key(key));
                return false;
            };
            self.fields.push(field.name);
            failed = self.value(&field.kind, below, path.key(key)).err();
            self.fields.pop();
            // Storage does not tell an empty list from an absent one.
            if below.as_array().is_some_and(Vec::is_empty) {
                *below = Value::Null;
            }
            !is_left_out(field, below)
        });
        self.owner = owner;
        fill(found, map);
        failed.map_or(Ok(()), Err)
    }

    fn value(
        &mut self,
        kind: &'static Type,
        value: &mut Value,
        path: FieldPath<'_>,
    ) -> Result<(), String> {
        if value.is_null() {
            *value = zero(kind);
            return Ok(());
        }
        match (resolved(kind), &mut *value) {
            (Type::Text | Type::IntOrString, Value::String(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Float, Value::Number(_))
            | (Type::Raw, _) => {}
            (Type::Int(name), Value::Number(number)) if fits(name, number) => {}
            (Type::IntOrString, Value::Number(number)) if fits("int32", number) => {}
            (Type::Bytes, Value::String(text)) => check_bytes(text)?,
            (Type::Quantity, Value::String(text)) => *text = quantity(text)?,
            (Type::Quantity, Value::Number(number)) => {
                *value = Value::String(quantity(&number.to_string())?);
            }
            (Type::Time, Value::String(text)) => *text = time(text, false)?,
            (Type::MicroTime, Value::String(text)) => *text = time(text, true)?,
            (Type::List(below), Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.value(below, item, path.index(at))?;
                }
            }
            (Type::Map(below), Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    self.value(below, value, path.key(key))?;
                    if value.is_null() && matches!(**below, Type::Bytes) {
                        *value = json!("");
                    }
                }
            }
            (Type::Named(name), Value::Object(_)) => {
                if let Some(found) = name.structure() {
                    self.structure(found, value, path)?;
                }
            }
            _ => {
                let declared = if let Type::Pointer(below) = kind { below } else { kind };
                return Err(self.mismatch(value, declared));
            }
        }
        Ok(())
    }
}

/// Adds the fields that JSON always contains.
fn fill(found: &'static Struct, out: &mut Map<String, Value>) {
    for (name, zero) in constant(found) {
        if !out.contains_key(*name) {
            out.insert((*name).to_owned(), zero.clone());
        }
    }
}

/// Returns the fields that JSON always contains, with their values where they are absent.
fn constant(found: &'static Struct) -> &'static [(&'static str, Value)] {
    found.constant.get_or_init(|| {
        let mut out = Vec::new();
        for field in &found.fields {
            if field.name.is_empty() {
                let inline = inner(&field.kind).filter(|one| one.name != "meta.v1.TypeMeta");
                out.extend(inline.into_iter().flat_map(constant).cloned());
                continue;
            }
            let zero = zero(&field.kind);
            if !is_left_out(field, &zero) {
                out.push((field.name, zero));
            }
        }
        out
    })
}

/// Returns the value of an absent field.
fn zero(kind: &'static Type) -> Value {
    if matches!(kind, Type::Pointer(_)) {
        return Value::Null;
    }
    match resolved(kind) {
        Type::Text => json!(""),
        Type::Bool => json!(false),
        Type::Int(_) | Type::Float | Type::IntOrString => json!(0),
        Type::Quantity => json!("0"),
        Type::Named(name) => name.structure().map_or_else(|| json!({}), empty),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Raw
        | Type::List(_)
        | Type::Map(_)
        | Type::Pointer(_) => Value::Null,
    }
}

/// Returns true if JSON leaves out this value of a field.
fn is_left_out(field: &'static Field, value: &Value) -> bool {
    let kind = resolved(&field.kind);
    let is_pointer = matches!(field.kind, Type::Pointer(_));
    if field.omits_zero && !is_pointer && *value == zero(&field.kind) {
        return true;
    }
    if !field.omits_empty {
        return false;
    }
    if is_pointer {
        return value.is_null();
    }
    match (kind, value) {
        // Values that are structs in Go are never empty.
        (Type::Named(_) | Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString, _) => {
            false
        }
        (_, Value::Null) => true,
        (_, Value::Bool(truth)) => !truth,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Array(list)) => list.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
    }
}

fn fits(name: &str, number: &serde_json::Number) -> bool {
    match name {
        "int32" => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        "uint8" | "uint32" | "uint64" => number.is_u64(),
        _ => number.is_i64(),
    }
}

/// Returns a quantity in the form that Kubernetes writes.
fn quantity(text: &str) -> Result<String, String> {
    let read = Quantity::parse(text).map_err(|error| error.to_string())?;
    Ok(read.to_string())
}

fn check_bytes(text: &str) -> Result<(), String> {
    match STANDARD.decode(text) {
        Ok(_) => Ok(()),
        Err(error) => {
            let at = if let base64::DecodeError::InvalidByte(at, _) = error {
                at
            } else {
                text.len() / 4 * 4
            };
            Err(format!("illegal base64 data at input byte {at}"))
        }
    }
}

fn time(text: &str, is_precise: bool) -> Result<String, String> {
    let Ok(time) = text.parse::<Timestamp>() else {
        let layout = if is_precise {
            "2006-01-02T15:04:05.000000Z07:00"
        } else {
            "2006-01-02T15:04:05Z07:00"
        };
        return Err(format!(
            "parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\""
        ));
    };
    let layout = if is_precise { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(layout).to_string())
}

/// Returns the type of a JSON value, as Go's errors spell it.
fn spelled(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_f64() => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Returns the name of a type in Go.
fn go_name(kind: &'static Type) -> String {
    match kind {
        Type::Text | Type::Time | Type::MicroTime => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int(name) => (*name).to_owned(),
        Type::Float => "float64".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Raw => "runtime.RawExtension".to_owned(),
        Type::List(below) => format!("[]{}", go_name(below)),
        Type::Map(below) => format!("map[string]{}", go_name(below)),
        Type::Pointer(below) => format!("*{}", go_name(below)),
        Type::Named(name) => {
            let name = name.text();
            name.split_once('.').map_or(name, |(_, rest)| rest).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::struct_of, *};

    fn pod(object: &mut Value) -> Result<Vec<String>, String> {
        read(struct_of("core.v1.Pod").unwrap(), object)
    }

    #[test]
    fn objects_are_written_as_kubernetes_does() {
        let mut object = json!({"metadata": {"name": "p", "labels": {}}, "spec": {"hostNetwork": false,
            "nodeName": null, "x": 1, "containers": [{"name": "c", "y": 1,
            "resources": {"requests": {"cpu": 1, "memory": "1024Mi"}}}]}});
        assert_eq!(pod(&mut object).unwrap(), ["spec.containers[0].y", "spec.x"]);
        assert_eq!(
            object,
            json!({"metadata": {"name": "p"}, "status": {}, "spec": {"containers": [{"name": "c",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}})
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_by_its_field() {
        for (mut object, expected) in [
            (
                json!({"metadata": {"finalizers": "x"}}),
                "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers \
                 of type []string",
            ),
            (
                json!({"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}}),
                "json: cannot unmarshal string into Go struct field \
                 ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
        ] {
            assert_eq!(pod(&mut object).unwrap_err(), expected);
        }
    }
}
