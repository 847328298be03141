//! Decodes the protobuf form of objects, in which kubectl and client-go send built-in kinds.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Field, Struct, Type, inner, of_kind, resolved, struct_of};

/// First bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Maximum depth of nested objects. Types of Kubernetes are not nested deeper, except by an
/// attacker.
const MAX_DEPTH: usize = 64;

/// The body is no object in protobuf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtoError {
    #[error("the body does not start with the bytes of a protobuf object")]
    Magic,
    #[error("the body ends within a value, or a value is malformed")]
    Malformed,
    #[error("no kind \"{0}\" is known in protobuf")]
    UnknownKind(String),
}

/// Decodes a body to an object with its `apiVersion` and `kind`.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtoError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtoError::Magic)?;
    let (mut meta, mut raw) = (&[][..], &[][..]);
    for entry in Entries(envelope) {
        match entry? {
            (1, Wire::Bytes(found)) => meta = found,
            (2, Wire::Bytes(found)) => raw = found,
            _ => {}
        }
    }
    let (mut version, mut kind) = (String::new(), String::new());
    for entry in Entries(meta) {
        match entry? {
            (1, Wire::Bytes(found)) => version = text(found)?,
            (2, Wire::Bytes(found)) => kind = text(found)?,
            _ => {}
        }
    }
    let (group, only) = version.split_once('/').unwrap_or(("", &version));
    let found = of_kind(group, only, &kind)
        .or_else(|| (kind == "DeleteOptions").then(|| struct_of("meta.v1.DeleteOptions")).flatten())
        .ok_or_else(|| ProtoError::UnknownKind(format!("{version}, Kind={kind}")))?;
    let mut map = Map::new();
    message(found, raw, &mut map, 0)?;
    map.insert("apiVersion".into(), version.into());
    map.insert("kind".into(), kind.into());
    Ok(Value::Object(map))
}

/// A value on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The entries of a message: field numbers with values.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(u64, Wire<'a>), ProtoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry.ok_or(ProtoError::Malformed))
    }
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(self.take(4)?.try_into().ok()?))),
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)? else { return None };
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

fn text(bytes: &[u8]) -> Result<String, ProtoError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtoError::Malformed)
}

fn message(
    found: &'static Struct,
    bytes: &[u8],
    out: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    if depth > MAX_DEPTH {
        return Err(ProtoError::Malformed);
    }
    for entry in Entries(bytes) {
        let (number, wire) = entry?;
        // Fields of a newer version are unknown and skipped.
        let Some(field) = found.fields.iter().find(|field| field.number == number) else {
            continue;
        };
        add(field, wire, out, depth)?;
    }
    Ok(())
}

fn add(
    field: &'static Field,
    wire: Wire<'_>,
    out: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    if field.name.is_empty() {
        if let (Some(found), Wire::Bytes(bytes)) = (inner(&field.kind), wire) {
            message(found, bytes, out, depth + 1)?;
        }
        return Ok(());
    }
    let kind = resolved(&field.kind);
    if let Type::List(below) = kind {
        let item = value(below, wire, depth)?;
        let list = out.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(item);
        }
    } else if let Type::Map(below) = kind {
        let (key, item) = pair(below, wire, depth)?;
        let map = out.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(map) = map {
            map.insert(key, item);
        }
    } else {
        out.insert(field.name.to_owned(), value(kind, wire, depth)?);
    }
    Ok(())
}

fn pair(below: &'static Type, wire: Wire<'_>, depth: usize) -> Result<(String, Value), ProtoError> {
    let Wire::Bytes(bytes) = wire else { return Err(ProtoError::Malformed) };
    let (mut key, mut item) = (String::new(), None);
    for entry in Entries(bytes) {
        match entry? {
            (1, Wire::Bytes(found)) => key = text(found)?,
            (2, wire) => item = Some(value(below, wire, depth + 1)?),
            _ => {}
        }
    }
    let absent = || value(below, Wire::Bytes(&[]), depth + 1);
    Ok((key, item.map_or_else(absent, Ok)?))
}

fn value(kind: &'static Type, wire: Wire<'_>, depth: usize) -> Result<Value, ProtoError> {
    match (resolved(kind), wire) {
        (Type::Text, Wire::Bytes(bytes)) => text(bytes).map(Value::String),
        (Type::Bool, Wire::Number(number)) => Ok(Value::Bool(number != 0)),
        // Negative numbers are encoded in two's complement.
        (Type::Int("int32" | "int64" | "int"), Wire::Number(number)) => {
            Ok(Value::from(number.cast_signed()))
        }
        (Type::Int(_), Wire::Number(number)) => Ok(Value::from(number)),
        (Type::Float, Wire::Number(number)) => Ok(Value::from(f64::from_bits(number))),
        (Type::Bytes, Wire::Bytes(bytes)) => Ok(Value::String(STANDARD.encode(bytes))),
        (Type::Raw, Wire::Bytes(bytes)) => raw(bytes),
        (Type::Quantity, Wire::Bytes(bytes)) => {
            let found = first(bytes, 1)?.unwrap_or(Wire::Bytes(b"0"));
            let Wire::Bytes(found) = found else { return Err(ProtoError::Malformed) };
            text(found).map(Value::String)
        }
        (Type::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes),
        (Type::Time | Type::MicroTime, Wire::Bytes(bytes)) => time(bytes),
        (Type::Named(name), Wire::Bytes(bytes)) => {
            let mut out = Map::new();
            let found = name.structure().ok_or(ProtoError::Malformed)?;
            message(found, bytes, &mut out, depth + 1)?;
            Ok(Value::Object(out))
        }
        _ => Err(ProtoError::Malformed),
    }
}

/// Returns the first value of a field of a message.
fn first(bytes: &[u8], number: u64) -> Result<Option<Wire<'_>>, ProtoError> {
    for entry in Entries(bytes) {
        let (found, wire) = entry?;
        if found == number {
            return Ok(Some(wire));
        }
    }
    Ok(None)
}

fn raw(bytes: &[u8]) -> Result<Value, ProtoError> {
    match first(bytes, 1)? {
        Some(Wire::Bytes(json)) => serde_json::from_slice(json).map_err(|_| ProtoError::Malformed),
        Some(Wire::Number(_)) => Err(ProtoError::Malformed),
        None => Ok(Value::Null),
    }
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtoError> {
    if let Some(Wire::Number(1)) = first(bytes, 1)? {
        let Some(Wire::Bytes(found)) = first(bytes, 3)? else { return Ok(Value::from("")) };
        return text(found).map(Value::String);
    }
    match first(bytes, 2)? {
        Some(Wire::Number(number)) => Ok(Value::from(number.cast_signed())),
        Some(Wire::Bytes(_)) => Err(ProtoError::Malformed),
        None => Ok(Value::from(0)),
    }
}

fn time(bytes: &[u8]) -> Result<Value, ProtoError> {
    let number = |field| match first(bytes, field)? {
        Some(Wire::Number(number)) => Ok(number.cast_signed()),
        Some(Wire::Bytes(_)) => Err(ProtoError::Malformed),
        None => Ok(0),
    };
    let (seconds, nanos) = (number(1)?, number(2)?);
    // The zero time of Go stands for an absent one.
    if bytes.is_empty() || seconds < 0 {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| ProtoError::Malformed)?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| ProtoError::Malformed)?;
    Ok(Value::String(time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Encodes a field with a value of bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    }

    fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn objects_are_decoded_by_the_table() {
        let meta = field(1, b"a");
        let data = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &meta), field(2, &data)].concat();
        assert_eq!(
            decode(&envelope("v1", "ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                "data": {"k": "v"}})
        );
        let spec =
            [vec![1 << 3, 3], field(2, &field(1, &[field(1, b"a"), field(2, b"b")].concat()))];
        let raw = [field(1, &meta), field(2, &spec.concat())].concat();
        assert_eq!(
            decode(&envelope("apps/v1", "Deployment", &raw)).unwrap()["spec"],
            json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}})
        );
    }

    #[test]
    fn malformed_bodies_are_refused() {
        assert_eq!(decode(b"{}"), Err(ProtoError::Magic));
        let unknown = decode(&envelope("v1", "Nonsense", b""));
        assert!(matches!(unknown, Err(ProtoError::UnknownKind(_))));
        let whole = envelope("v1", "ConfigMap", &field(1, &field(1, b"abc")));
        for end in 4..whole.len() {
            // Every prefix either ends at a field, or is refused.
            let _ = decode(&whole[..end]);
        }
        assert_eq!(decode(&envelope("v1", "ConfigMap", &[0x0a, 9])), Err(ProtoError::Malformed));
    }
}
