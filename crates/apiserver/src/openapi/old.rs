//! `OpenAPI` v2, made of the documents of v3.

use serde_json::{Map, Value, json};

use super::schemas::REFERENCE;

/// Returns the v2 document that has the paths and schemas of all v3 documents.
pub(super) fn document<'a>(documents: impl Iterator<Item = &'a Value>, version: &str) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        for (path, item) in entries(document, "/paths") {
            paths.insert(path.clone(), path_item(item));
        }
        for (name, schema) in entries(document, "/components/schemas") {
            definitions.insert(name.clone(), converted(schema));
        }
    }
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": version},
        "paths": paths, "definitions": definitions})
}

fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.pointer(path).and_then(Value::as_object).into_iter().flatten()
}

fn path_item(item: &Value) -> Value {
    let mut out = Map::new();
    for (method, operation) in entries(item, "") {
        let value = match method.as_str() {
            "parameters" => parameters(operation).into(),
            _ => path_operation(operation),
        };
        out.insert(method.clone(), value);
    }
    out.into()
}

fn path_operation(operation: &Value) -> Value {
    let mut out: Map<String, Value> = entries(operation, "")
        .filter(|(key, _)| key.starts_with("x-kubernetes"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut all = operation.get("parameters").map(parameters).unwrap_or_default();
    let content: Vec<(&String, &Value)> = entries(operation, "/requestBody/content").collect();
    if let Some((_, body)) = content.first() {
        let schema = body.get("schema").map(converted).unwrap_or_default();
        all.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
        let media: Vec<&String> = content.iter().map(|(media, _)| *media).collect();
        out.insert("consumes".into(), json!(media));
    }
    out.insert("produces".into(), json!(["application/json"]));
    out.insert("parameters".into(), all.into());
    let answer = operation.pointer("/responses/200/content/application~1json/schema");
    let answer = answer.map(converted).unwrap_or_default();
    out.insert("responses".into(), json!({"200": {"description": "OK", "schema": answer}}));
    out.into()
}

/// Returns parameters, which in v2 have no schema of their own.
fn parameters(list: &Value) -> Vec<Value> {
    let flat = |one: &Value| {
        let mut one = one.clone();
        if let Some(map) = one.as_object_mut()
            && let Some(Value::Object(schema)) = map.remove("schema")
        {
            map.extend(schema);
        }
        one
    };
    list.as_array().into_iter().flatten().map(flat).collect()
}

/// Returns a schema in the terms of v2, which has no defaults, no alternatives, and references that
/// stand alone.
fn converted(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    if let Some(Value::Array(all)) = map.get("allOf")
        && let [only] = all.as_slice()
        && let Some(target) = only.get("$ref")
    {
        let mut out = map.clone();
        out.remove("allOf");
        out.insert("$ref".into(), target.clone());
        return converted(&out.into());
    }
    let is_typed = map.contains_key("type") || map.contains_key("$ref");
    let mut out = Map::new();
    for (key, value) in map {
        match (key.as_str(), value) {
            ("default" | "nullable", _) if is_typed => {}
            ("oneOf" | "anyOf", _) => {
                out.insert("type".into(), "string".into());
            }
            ("$ref", Value::String(target)) => {
                out.insert(key.clone(), target.replace(REFERENCE, "#/definitions/").into());
            }
            ("properties", Value::Object(fields)) => {
                let fields = fields.iter().map(|(name, one)| (name.clone(), converted(one)));
                out.insert(key.clone(), fields.collect::<Map<_, _>>().into());
            }
            ("items" | "additionalProperties" | "not", value) => {
                out.insert(key.clone(), converted(value));
            }
            (_, value) => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    out.into()
}
