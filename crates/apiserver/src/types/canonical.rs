//! Reads an object by the type of its kind, and returns it as Kubernetes writes it: without unknown
//! fields, without empty optional ones, and with all others.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use mco_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{Field, Struct, Type, inner, resolved, struct_of};
use crate::schema::prune::join;

/// An object as Kubernetes writes it.
#[derive(Debug)]
pub(crate) struct Canonical {
    pub(crate) object: Value,
    /// Paths of the fields that the type does not have.
    pub(crate) unknown: Vec<String>,
}

/// Reads an object of the type `found`. Fails with the message of kube-apiserver if a value has the
/// wrong type.
pub(crate) fn read(found: &'static Struct, object: &Value) -> Result<Canonical, String> {
    let mut reader = Reader { unknown: Vec::new(), fields: Vec::new(), owner: found.name };
    let object = reader.structure(found, object, "")?;
    Ok(Canonical { object, unknown: reader.unknown })
}

/// Reads the metadata of a custom object.
pub(crate) fn read_metadata(metadata: &Value) -> Result<Canonical, String> {
    let mut reader =
        Reader { unknown: Vec::new(), fields: Vec::new(), owner: "meta.v1.ObjectMeta" };
    let Some(found) = struct_of("meta.v1.ObjectMeta") else {
        return Ok(Canonical { object: metadata.clone(), unknown: Vec::new() });
    };
    if !metadata.is_object() && !metadata.is_null() {
        return Err(reader.mismatch(metadata, &METADATA));
    }
    let object = reader.structure(found, metadata, "metadata")?;
    Ok(Canonical { object, unknown: reader.unknown })
}

/// The type of all metadata.
static METADATA: Type = Type::Named("meta.v1.ObjectMeta");

struct Reader {
    unknown: Vec<String>,
    /// Names of the fields on the way to the current value.
    fields: Vec<&'static str>,
    /// The innermost type with fields.
    owner: &'static str,
}

impl Reader {
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
        value: &Value,
        path: &str,
    ) -> Result<Value, String> {
        let empty = Map::new();
        // Go leaves the zero value in place of null.
        let map = value.as_object().unwrap_or(&empty);
        let owner = std::mem::replace(&mut self.owner, found.name);
        let mut out = Map::new();
        for (key, below) in map {
            let Some(field) = found.field(key) else {
                self.unknown.push(join(path, key));
                continue;
            };
            self.fields.push(field.name);
            let mut value = self.value(&field.kind, below, &join(path, key))?;
            self.fields.pop();
            // Storage does not tell an empty list from an absent one.
            if value == json!([]) {
                value = Value::Null;
            }
            if !(is_left_out(field, &value)) {
                out.insert(key.clone(), value);
            }
        }
        self.owner = owner;
        fill(found, &mut out);
        Ok(Value::Object(out))
    }

    fn value(&mut self, kind: &'static Type, value: &Value, path: &str) -> Result<Value, String> {
        if value.is_null() {
            return Ok(zero(kind));
        }
        let declared = if let Type::Pointer(below) = kind { below } else { kind };
        let wrong = |reader: &Self| Err(reader.mismatch(value, declared));
        match (resolved(kind), value) {
            (Type::Text | Type::IntOrString, Value::String(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Float, Value::Number(_))
            | (Type::Raw, _) => Ok(value.clone()),
            (Type::Int(name), Value::Number(number)) if fits(name, number) => Ok(value.clone()),
            (Type::Bytes, Value::String(text)) => bytes(text),
            (Type::Quantity, Value::String(text)) => quantity(text),
            (Type::Quantity, Value::Number(number)) => quantity(&number.to_string()),
            (Type::IntOrString, Value::Number(number)) if fits("int32", number) => {
                Ok(value.clone())
            }
            (Type::Time, Value::String(text)) => time(text, false),
            (Type::MicroTime, Value::String(text)) => time(text, true),
            (Type::List(below), Value::Array(items)) => {
                let mut out = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    out.push(self.value(below, item, &format!("{path}[{at}]"))?);
                }
                Ok(Value::Array(out))
            }
            (Type::Map(below), Value::Object(map)) => {
                let mut out = Map::new();
                for (key, value) in map {
                    let mut value = self.value(below, value, &join(path, key))?;
                    if value.is_null() && **below == Type::Bytes {
                        value = json!("");
                    }
                    out.insert(key.clone(), value);
                }
                Ok(Value::Object(out))
            }
            (Type::Named(name), Value::Object(_)) => match struct_of(name) {
                Some(found) => self.structure(found, value, path),
                None => Ok(value.clone()),
            },
            _ => wrong(self),
        }
    }
}

/// Adds the fields that JSON always contains.
fn fill(found: &'static Struct, out: &mut Map<String, Value>) {
    for field in &found.fields {
        if field.name.is_empty() {
            if let Some(inline) = inner(&field.kind).filter(|one| one.name != "meta.v1.TypeMeta") {
                fill(inline, out);
            }
            continue;
        }
        let zero = zero(&field.kind);
        if !out.contains_key(field.name) && !is_left_out(field, &zero) {
            out.insert(field.name.to_owned(), zero);
        }
    }
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
        Type::Named(name) => {
            let mut out = Map::new();
            if let Some(found) = struct_of(name) {
                fill(found, &mut out);
            }
            Value::Object(out)
        }
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
fn quantity(text: &str) -> Result<Value, String> {
    let read = Quantity::parse(text).map_err(|error| error.to_string())?;
    Ok(Value::String(read.to_string()))
}

fn bytes(text: &str) -> Result<Value, String> {
    match STANDARD.decode(text) {
        Ok(_) => Ok(Value::String(text.to_owned())),
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

fn time(text: &str, is_precise: bool) -> Result<Value, String> {
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
    Ok(Value::String(time.strftime(layout).to_string()))
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
            let name = name.split_once('.').map_or(*name, |(_, rest)| rest);
            name.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(object: &Value) -> Result<Canonical, String> {
        read(struct_of("core.v1.Pod").unwrap(), object)
    }

    #[test]
    fn objects_are_written_as_kubernetes_does() {
        let object = json!({"metadata": {"name": "p", "labels": {}}, "spec": {"hostNetwork": false,
            "nodeName": null, "x": 1, "containers": [{"name": "c", "y": 1,
            "resources": {"requests": {"cpu": 1, "memory": "1024Mi"}}}]}});
        let read = pod(&object).unwrap();
        assert_eq!(read.unknown, ["spec.containers[0].y", "spec.x"]);
        assert_eq!(
            read.object,
            json!({"metadata": {"name": "p"}, "status": {}, "spec": {"containers": [{"name": "c",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}})
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_by_its_field() {
        for (object, expected) in [
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
            assert_eq!(pod(&object).unwrap_err(), expected);
        }
    }
}
