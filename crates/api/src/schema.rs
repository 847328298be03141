//! Conversion of Rust types to the structural schemas that Kubernetes requires.
//!
//! schemars turns the types into JSON Schema; [`normalise`] turns that into a schema for a CRD:
//!
//! - a member is required exactly if our types always write it; a type that writes an optional
//!   member anyway has an explicit `required` list;
//! - `Option` means "may be absent". If `null` is allowed too, the type has `nullable`;
//! - Rust's defaults are not API defaults. Those are written as [`DEFAULT`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::generate::{Contract, SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::wire::is_default;

/// Key for the API server's default of a member.
pub(crate) const DEFAULT: &str = "x-default";

/// Key for the CEL rules of a schema.
const RULES: &str = "x-kubernetes-validations";

/// A CEL rule and the message for the user if it is broken; a value of `x-kubernetes-validations`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    #[serde(rename = "rule")]
    expression: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'static str,
    #[serde(skip_serializing_if = "is_default")]
    optional_old_self: bool,
}

impl Rule {
    /// Returns a rule; with an empty message the API server words its own.
    pub(crate) const fn new(expression: &'static str, message: &'static str) -> Self {
        Self { expression, message, optional_old_self: false }
    }

    /// Evaluates the rule on creation too, without an old value.
    pub(crate) const fn with_optional_old_self(mut self) -> Self {
        self.optional_old_self = true;
        self
    }
}

/// Builds the schema of a whole object.
pub(crate) fn root<K: Kind>() -> JSONSchemaProps {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.contract = Contract::Serialize;
    });
    let mut generator = settings.into_generator();
    let mut properties = Map::from_iter([
        ("apiVersion".to_owned(), json!({"type": "string", "description": API_VERSION})),
        ("kind".to_owned(), json!({"type": "string", "description": KIND})),
        ("metadata".to_owned(), json!({"type": "object"})),
    ]);
    for (name, schema) in K::members(&mut generator) {
        properties.insert(name.to_owned(), schema.to_value());
    }
    let facts = K::DEFINITION;
    let mut schema = json!({
        "type": "object",
        "description": K::DESCRIPTION,
        "required": facts.required,
        "properties": properties,
        RULES: facts.rules,
    });
    normalise(&mut schema);
    serde_json::from_value(schema)
        .expect("our types yield structural schemas; a test builds the schema of each kind")
}

const API_VERSION: &str = "Group and version of this object's type.";
const KIND: &str = "Kind of this object.";

/// Normalises a schema and all schemas below it.
fn normalise(schema: &mut Value) {
    let Value::Object(map) = schema else {
        // schemars uses `true` for a schema that accepts any value.
        *schema = json!({"x-kubernetes-preserve-unknown-fields": true});
        return;
    };
    drop_null(map);
    for key in ["$schema", "title", "default"] {
        map.remove(key);
    }
    if let Some(default) = map.remove(DEFAULT) {
        map.insert("default".to_owned(), default);
    }
    for key in ["required", RULES] {
        if map.get(key).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            map.remove(key);
        }
    }
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = one_line_per_paragraph(text);
    }
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        map.remove("type");
        map.remove("format");
        map.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    for (_, member) in
        map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
    {
        normalise(member);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            normalise(inner);
        }
    }
}

/// Removes the forms of "or null" that schemars generates.
fn drop_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get("type") {
        let kept = types.iter().find(|name| *name != "null").cloned();
        map.insert("type".to_owned(), kept.unwrap_or(Value::Null));
    }
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let Some(Value::Array(choices)) = map.get("anyOf") else { return };
    let null = json!({"type": "null"});
    if !choices.contains(&null) {
        return;
    }
    let kept = choices.iter().find(|choice| **choice != null).cloned();
    map.remove("anyOf");
    for (key, value) in kept.as_ref().and_then(Value::as_object).into_iter().flatten() {
        // Attributes of the member take precedence over those of its type.
        map.entry(key.clone()).or_insert_with(|| value.clone());
    }
    drop_null(map);
}

/// Joins the lines of each paragraph of a doc comment.
fn one_line_per_paragraph(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
    });
    paragraphs.collect::<Vec<_>>().join("\n\n").trim().to_owned()
}
