//! JSON that is stored and written back byte for byte, such as the Ignition config in a
//! MachineConfig.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Name that `serde_json` gives its raw value. If it changed, [`RawConfig`] would still deserialize
/// every value, only through [`serde_json::Value`]; a test checks that.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// A JSON value kept as the text that was deserialized.
///
/// Two values are equal if their texts are. `Debug` shows only the length, because configs contain
/// secrets.
#[derive(Clone)]
pub struct RawConfig(Box<RawValue>);

impl RawConfig {
    /// Wraps JSON text; fails if the text is not one JSON value.
    pub fn from_json(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl fmt::Debug for RawConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawConfig({} bytes)", self.get().len())
    }
}

impl PartialEq for RawConfig {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawConfig {}

impl Serialize for RawConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for RawConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_newtype_struct(RAW_VALUE, RawVisitor)
    }
}

/// Deserializes the text from `serde_json`, and a value from other formats (YAML, serde's buffers).
struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawConfig, A::Error> {
        Box::<RawValue>::deserialize(MapAccessDeserializer::new(map)).map(RawConfig)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<RawConfig, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        RawConfig::from_json(value.to_string()).map_err(D::Error::custom)
    }
}

impl JsonSchema for RawConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RawConfig".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Untagged enums are deserialized through serde's buffer, which does not support raw values.
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Buffered {
        Raw { config: RawConfig },
    }

    #[test]
    fn json_text_is_kept_to_the_byte() {
        let text = r#"{ "b": 1e2,  "a": [ ] }"#;
        let config: RawConfig = serde_json::from_str(text).expect("JSON");
        assert_eq!(config.get(), text);
        assert_eq!(serde_json::to_string(&config).expect("text"), text);
    }

    #[test]
    fn values_and_buffers_are_deserialized() {
        let value = json!({"ignition": {"version": "3.5.0"}});
        let config: RawConfig = serde_json::from_value(value.clone()).expect("a value");
        assert_eq!(config.get(), value.to_string());

        let Buffered::Raw { config } =
            serde_json::from_value(json!({"config": value})).expect("a buffer");
        assert_eq!(config.get(), value.to_string());
    }

    #[test]
    fn debug_output_hides_the_text() {
        let config = RawConfig::from_json(r#"{"password":"x"}"#.to_owned()).expect("JSON");
        assert_eq!(format!("{config:?}"), "RawConfig(16 bytes)");
        assert!(RawConfig::from_json("{".to_owned()).is_err());
    }
}
