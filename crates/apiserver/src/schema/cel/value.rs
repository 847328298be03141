//! Converts JSON values to CEL values, guided by the schema.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use ::cel::{
    Context, Env, Program, Value as Cel,
    objects::{Key, Map},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::super::{Kind, Schema};

/// Reserved words of CEL. Rules write a property of that name with underscores around it.
const RESERVED: [&str; 19] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
];

/// Converts a JSON value under `schema` to a CEL value.
pub(super) fn from_json(schema: &Schema, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(truth) => Cel::Bool(*truth),
        Value::Number(number) => {
            let real = schema.kind == Kind::Number;
            match number.as_i64() {
                Some(whole) if !real => Cel::Int(whole),
                _ => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Value::String(text) => from_text(&schema.format, text),
        Value::Array(list) => {
            let items = schema.items.as_deref();
            let any = Schema::default();
            let item = |one| from_json(items.unwrap_or(&any), one);
            Cel::List(Arc::new(list.iter().map(item).collect()))
        }
        Value::Object(map) => {
            let any = Schema::default();
            let entries = map.iter().filter(|(key, _)| key.as_str() != "managedFields");
            let entries = entries.map(|(key, below)| {
                let named = schema.properties.contains_key(key);
                let name = if named { escaped(key) } else { key.clone() };
                let below = from_json(schema.entry(key).unwrap_or(&any), below);
                (Key::String(Arc::new(name)), below)
            });
            let map: HashMap<Key, Cel> = entries.collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

fn from_text(format: &str, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    match format {
        "byte" => STANDARD.decode(text).map_or_else(|_| plain(), |raw| Cel::Bytes(Arc::new(raw))),
        "date-time" => timestamp(text).unwrap_or_else(plain),
        _ => plain(),
    }
}

/// Builds a timestamp with CEL's own conversion.
fn timestamp(text: &str) -> Option<Cel> {
    static CONVERSION: LazyLock<(Arc<Env>, Program)> = LazyLock::new(|| {
        let env = Env::stdlib();
        let program =
            env.compile("timestamp(text)").expect("the call of a standard function compiles");
        (Arc::new(env), program)
    });
    let (env, program) = &*CONVERSION;
    let mut context = Context::with_env(Arc::clone(env));
    context.add_variable_from_value("text", Cel::String(Arc::new(text.to_owned())));
    program.execute(&context).ok()
}

/// Escapes a property's name as rules write it.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_names_are_escaped_as_rules_write_them() {
        for (name, expected) in [
            ("plain", "plain"),
            ("namespace", "__namespace__"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a__b", "a__underscores__b"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(escaped(name), expected);
        }
    }
}
