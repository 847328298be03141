//! Decodes the bodies of requests: JSON, YAML and protobuf.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error};

use crate::{
    failure::Failure,
    field_path::{FieldPath, FieldPaths},
    types::proto,
};

/// A decoded body.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// The objections of strict decoding: fields that are given twice, whose last value counts.
    pub(crate) notes: Vec<String>,
}

/// Decodes a body of the given media type.
pub(crate) fn decode(media: &str, bytes: &[u8], kind: &str) -> Result<Decoded, Failure> {
    match media {
        "" | "application/json" => json(bytes).map_err(|why| unrecognized(kind, &why, bytes)),
        "application/yaml" => yaml(bytes).map_err(|why| unrecognized(kind, &why, bytes)),
        "application/vnd.kubernetes.protobuf" => {
            let value =
                proto::decode(bytes).map_err(|error| Failure::bad_request(error.to_string()));
            Ok(Decoded { value: value?, notes: Vec::new() })
        }
        _ => Err(Failure::media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// 400: the body is no object of the kind.
pub(crate) fn unrecognized(kind: &str, why: &str, bytes: &[u8]) -> Failure {
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        snippet(bytes)
    ))
}

/// Returns the start of a body, for a message.
fn snippet(bytes: &[u8]) -> String {
    let start = bytes.get(..SNIPPET).unwrap_or(bytes);
    let more = if bytes.len() > SNIPPET { " ..." } else { "" };
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    if bytes.first() == Some(&b'{') {
        return format!("{}{more}", String::from_utf8_lossy(start));
    }
    let mut text = String::with_capacity(2 * start.len() + more.len());
    for byte in start {
        let _ = write!(text, "{byte:02x}");
    }
    text + more
}

/// Number of bytes of a body that a message shows.
const SNIPPET: usize = 30;

fn json(bytes: &[u8]) -> Result<Decoded, String> {
    let read = any_json(bytes).map_err(|error| {
        format!("couldn't get version/kind; json parse error: {}", explained(bytes, &error))
    })?;
    object(read.value, read.notes)
}

/// Reads any JSON value.
pub(crate) fn any_json(bytes: &[u8]) -> Result<Decoded, serde_json::Error> {
    let mut duplicates = FieldPaths::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let node = Node { path: FieldPath::Root, duplicates: &mut duplicates };
    let value = node.deserialize(&mut reader)?;
    reader.end()?;
    let notes = duplicates.into_vec().into_iter().map(|path| format!("duplicate field {path:?}"));
    Ok(Decoded { value, notes: notes.collect() })
}

fn yaml(bytes: &[u8]) -> Result<Decoded, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let why = |error: Error| format!("yaml: {error}");
    match yaml_value(text, DuplicateKeyPolicy::Error) {
        Err(error) => {
            let note = set_again(&error).ok_or_else(|| why(error))?;
            object(yaml_value(text, DuplicateKeyPolicy::LastWins).map_err(why)?, vec![note])
        }
        Ok(value) => object(value, Vec::new()),
    }
}

fn yaml_value(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Error> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        duplicate_keys: duplicate_keys,
        budget: serde_saphyr::budget! { max_documents: 1, max_nodes: 250_000, max_depth: MAX_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// Returns the note about a key that a YAML map has twice, if that is the error.
fn set_again(error: &Error) -> Option<String> {
    let Error::DuplicateMappingKey { key, location } = error else { return None };
    let (line, key) = (location.line(), key.as_deref().unwrap_or_default());
    Some(format!("{YAML_NOTE}line {line}: key {key:?} already set in map"))
}

/// Start of a note about YAML, which warnings do not have.
pub(crate) const YAML_NOTE: &str = "yaml: unmarshal errors:\n  ";

/// Reads an applied object, in JSON or YAML. The notes are those about YAML.
pub(crate) fn applied(bytes: &[u8], kind: &str) -> Result<Decoded, Failure> {
    let Ok(read @ Decoded { value: Value::Object(_), .. }) = any_json(bytes) else {
        return decode("application/yaml", bytes, kind).map_err(|failure| {
            Failure::bad_request(format!("error decoding YAML: {}", failure.message))
        });
    };
    if read.notes.is_empty() {
        return Ok(read);
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let error = yaml_value(text, DuplicateKeyPolicy::Error).err();
    Ok(Decoded { notes: error.as_ref().and_then(set_again).into_iter().collect(), ..read })
}

/// Maximum depth of a YAML body. The parser calls itself for each level.
const MAX_DEPTH: usize = 60;

fn object(value: Value, notes: Vec<String>) -> Result<Decoded, String> {
    match value {
        Value::Object(_) => Ok(Decoded { value, notes }),
        // Compat: null is an object without fields.
        Value::Null => Ok(Decoded { value: Value::Object(Map::new()), notes }),
        Value::Array(_) => Err(not_an_object("array")),
        Value::String(_) => Err(not_an_object("string")),
        Value::Bool(_) => Err(not_an_object("bool")),
        Value::Number(_) => Err(not_an_object("number")),
    }
}

fn not_an_object(found: &str) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value \
         of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
         \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// Returns the message of Go for a syntax error, where it is known.
pub(crate) fn explained(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let lines = bytes.split(|byte| *byte == b'\n');
    let line = lines.into_iter().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)).copied().map(char::from);
    let text = error.to_string();
    match found {
        Some(c) if text.starts_with("trailing characters") => {
            format!("invalid character '{c}' after top-level value")
        }
        Some(c) if text.starts_with("expected value") || text.starts_with("expected ident") => {
            format!("invalid character '{c}' looking for beginning of value")
        }
        Some(c) if text.starts_with("key must be") => {
            format!("invalid character '{c}' looking for beginning of object key string")
        }
        _ => text,
    }
}

/// Reads one value and notes the fields that are given twice.
struct Node<'a> {
    path: FieldPath<'a>,
    duplicates: &'a mut FieldPaths,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let path = self.path.index(out.len());
            let node = Node { path, duplicates: &mut *self.duplicates };
            match list.next_element_seed(node)? {
                Some(item) => out.push(item),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = self.path.key(&key);
            let node = Node { path, duplicates: &mut *self.duplicates };
            let value = map.next_value_seed(node)?;
            if out.contains_key(&key) {
                self.duplicates.add(path);
            }
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_are_given_twice_are_noted() {
        let read = decode("", br#"{"a": {"b": 1, "b": 2}, "c": [{"d": 1, "d": 1}]}"#, "A").unwrap();
        assert_eq!(read.value, json!({"a": {"b": 2}, "c": [{"d": 1}]}));
        assert_eq!(read.notes, ["duplicate field \"a.b\"", "duplicate field \"c[0].d\""]);
        let text = b"kind: A\nkind: B\nc: {d: 1, d: 2}\n";
        let read = decode("application/yaml", text, "A").unwrap();
        assert_eq!(read.value, json!({"kind": "B", "c": {"d": 2}}));
        let note = "yaml: unmarshal errors:\n  line 2: key \"kind\" already set in map";
        assert_eq!(read.notes, [note]);
    }

    #[test]
    fn many_fields_that_are_given_twice_are_not_all_kept() {
        let same = r#""a": 1,"#.repeat(100_000);
        let many: Vec<String> =
            (0..1_000).map(|key| format!(r#""{key}": 1, "{key}": 2,"#)).collect();
        let many = many.concat();
        let body = format!(r#"{{"{}": {{{same} {many} "b": 1}}}}"#, "k".repeat(1 << 20));
        let notes = decode("", body.as_bytes(), "A").unwrap().notes;
        assert!(notes.len() <= 100 && notes.iter().all(|note| note.len() <= 5000));
        let body = format!("{{{same} {many} {same} \"b\": 1}}");
        let notes = decode("", body.as_bytes(), "A").unwrap().notes;
        assert_eq!(notes.len(), 100);
        assert_eq!(notes[..2], ["duplicate field \"a\"", "duplicate field \"0\""]);
    }

    #[test]
    fn yaml_is_decoded() {
        let read = decode("application/yaml", b"kind: A\nmetadata: {name: x}\n", "A").unwrap();
        assert_eq!(read.value, json!({"kind": "A", "metadata": {"name": "x"}}));
    }

    #[test]
    fn malformed_bodies_are_refused_as_kubernetes_does() {
        for (body, expected) in [
            ("{", "unexpected end of JSON input"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("x", "invalid character 'x' looking for beginning of value"),
        ] {
            let refused = decode("", body.as_bytes(), "A").unwrap_err();
            assert!(refused.message.contains(expected), "{body}: {}", refused.message);
        }
    }
}
