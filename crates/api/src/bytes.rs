//! Binary data such as certificates and pull secrets, written as base64 text in JSON.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::ByteString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Bytes; base64 on the wire. `Debug` shows only the length, because some values are secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(ByteString);

impl Bytes {
    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(ByteString(bytes))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.as_slice().len())
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "byte"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_on_the_wire_and_hidden_in_logs() {
        let bytes: Bytes = serde_json::from_str("\"aGVsbG8=\"").expect("base64");
        assert_eq!(bytes.as_slice(), b"hello");
        assert_eq!(serde_json::to_string(&bytes).expect("text"), "\"aGVsbG8=\"");
        assert_eq!(format!("{bytes:?}"), "Bytes(5 bytes)");
    }
}
