//! The `OpenAPI` v3 schemas of objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    object,
    resource::Resource,
    types::{self, Field, Struct, Type},
};

/// Schemas by name.
pub(super) type Schemas = BTreeMap<String, Value>;

/// Prefix of references to schemas.
pub(super) const REFERENCE: &str = "#/components/schemas/";

/// Name prefix of the types that Kubernetes shares between API groups.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Packages of the table whose name differs from `io.k8s.api`.
const PACKAGES: [(&str, &str); 3] = [
    ("meta.v1", META),
    ("published-events.v1", "io.k8s.api.events.v1"),
    ("published-definitions.v1", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"),
];

/// Returns a reference to a schema.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REFERENCE}{name}")})
}

/// Adds the schemas of a resource: of its objects and of their lists. Returns the names of both.
pub(super) fn add(resource: &Resource, schemas: &mut Schemas) -> (String, String) {
    let kind = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
    let name =
        if resource.custom { add_custom(resource, schemas) } else { add_kind(kind, schemas) };
    let list = name.strip_suffix(resource.kind.as_str()).unwrap_or(&name).to_owned();
    let list = list + &resource.list_kind;
    let meta = types::struct_of("meta.v1.ListMeta").map(|meta| add_struct(meta, schemas));
    let meta = meta.map_or_else(|| json!({"type": "object"}), |name| of_reference(&name));
    let item = if resource.custom { reference(&name) } else { of_reference(&name) };
    schemas.insert(
        list.clone(),
        json!({"type": "object", "required": ["items"],
            "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "metadata": meta, "items": {"type": "array", "items": item}},
            "x-kubernetes-group-version-kind": [gvk((kind.0, kind.1, &resource.list_kind))]}),
    );
    (name, list)
}

/// Adds the schema of a built-in kind. Returns its name.
pub(super) fn add_kind(kind: (&str, &str, &str), schemas: &mut Schemas) -> String {
    let found = match kind {
        ("events.k8s.io", version, name) => {
            types::struct_of(&format!("published-events.{version}.{name}"))
        }
        ("apiextensions.k8s.io", version, name) => {
            types::struct_of(&format!("published-definitions.{version}.{name}"))
        }
        (group, version, name) => types::of_kind(group, version, name),
    };
    let Some(found) = found else { return format!("{META}.{}", kind.2) };
    let name = add_struct(found, schemas);
    if let Some(schema) = schemas.get_mut(&name) {
        object::map_of(schema).insert("x-kubernetes-group-version-kind".into(), json!([gvk(kind)]));
    }
    name
}

/// Adds the schema of a custom kind. Returns its name.
fn add_custom(resource: &Resource, schemas: &mut Schemas) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').rev().collect();
    parts.extend([resource.version.as_str(), resource.kind.as_str()]);
    let name = parts.join(".");
    let meta = types::struct_of("meta.v1.ObjectMeta").map(|meta| add_struct(meta, schemas));
    let mut schema = resource.written_schema.as_deref().cloned().unwrap_or_else(|| json!({}));
    let map = object::map_of(&mut schema);
    map.insert("type".into(), "object".into());
    let kind = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
    map.insert("x-kubernetes-group-version-kind".into(), json!([gvk(kind)]));
    let properties = object::map_mut(map, "properties");
    for field in ["apiVersion", "kind"] {
        properties.entry(field).or_insert_with(|| json!({"type": "string"}));
    }
    if let Some(meta) = meta {
        properties.insert("metadata".into(), json!({"allOf": [reference(&meta)]}));
    }
    schemas.insert(name.clone(), schema);
    name
}

/// Returns a group, version and kind as documents have them.
pub(super) fn gvk((group, version, kind): (&str, &str, &str)) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// Returns the name of a type in documents.
fn published(name: &str) -> String {
    let found = PACKAGES.iter().find_map(|(package, full)| {
        let kind = name.strip_prefix(package)?.strip_prefix('.')?;
        Some(format!("{full}.{kind}"))
    });
    found.unwrap_or_else(|| format!("io.k8s.api.{name}"))
}

/// Adds the schema of a type and of the types that it uses. Returns its name.
fn add_struct(found: &'static Struct, schemas: &mut Schemas) -> String {
    let name = published(found.name);
    if schemas.contains_key(&name) {
        return name;
    }
    // Types may contain themselves.
    schemas.insert(name.clone(), json!({}));
    let (mut properties, mut required) = (Map::new(), Vec::new());
    add_fields(found, &mut properties, &mut required, schemas);
    let mut schema = Map::new();
    // Types without fields encode themselves: they are any JSON value.
    if !found.fields.is_empty() {
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
    } else if found.name.ends_with("Status") {
        schema.insert("type".into(), "object".into());
    }
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    if found.is_atomic {
        schema.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    schemas.insert(name.clone(), schema.into());
    name
}

fn add_fields(
    found: &'static Struct,
    properties: &mut Map<String, Value>,
    required: &mut Vec<Value>,
    schemas: &mut Schemas,
) {
    for field in &found.fields {
        if field.name.is_empty() {
            if let Some(inline) = types::inner(&field.kind) {
                add_fields(inline, properties, required, schemas);
            }
            continue;
        }
        if field.published.is_required {
            required.push(field.name.into());
        }
        properties.insert(field.name.into(), property(field, schemas));
    }
}

/// Returns the schema of a field.
fn property(field: &'static Field, schemas: &mut Schemas) -> Value {
    let mut schema = match field.name {
        "fieldsV1" => of_object(&format!("{META}.FieldsV1"), schemas),
        _ => schema(&field.kind, schemas),
    };
    let map = object::map_of(&mut schema);
    if let Some(target) = map.remove("$ref") {
        map.insert("allOf".into(), json!([{"$ref": target}]));
    }
    let published = &field.published;
    let written = published.default.and_then(|text| serde_json::from_str(text).ok());
    if let Some(default) = written.or_else(|| zero(&field.kind, field.omits_empty)) {
        map.insert("default".into(), default);
    }
    let mut mark = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(format!("x-kubernetes-{name}"), value);
        }
    };
    mark("list-type", published.list_type.map(Value::from));
    if let crate::schema::ListType::Map(keys) = &field.merge.list {
        mark("list-map-keys", Some(keys.clone().into()));
    }
    mark("map-type", field.merge.is_atomic.then(|| "atomic".into()));
    mark("patch-strategy", published.patch_strategy.map(Value::from));
    mark("patch-merge-key", field.merge.key.map(Value::from));
    schema
}

/// Returns the schema of a type.
fn schema(kind: &'static Type, schemas: &mut Schemas) -> Value {
    let simple = |kind: &str, format: &str| json!({"type": kind, "format": format});
    match types::resolved(kind) {
        Type::Text => match types::values(kind) {
            [] => json!({"type": "string"}),
            values => json!({"type": "string", "enum": values}),
        },
        Type::Bool => json!({"type": "boolean"}),
        Type::Int("int64" | "uint64" | "uint32") => simple("integer", "int64"),
        Type::Int("uint8") => simple("integer", "byte"),
        Type::Int(_) => simple("integer", "int32"),
        Type::Float => simple("number", "double"),
        Type::Bytes => simple("string", "byte"),
        Type::Quantity => {
            let body = json!({"oneOf": [{"type": "string"}, {"type": "number"}]});
            of_value("io.k8s.apimachinery.pkg.api.resource.Quantity", body, schemas)
        }
        Type::IntOrString => {
            let body = json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]});
            of_value("io.k8s.apimachinery.pkg.util.intstr.IntOrString", body, schemas)
        }
        Type::Time => of_value(&format!("{META}.Time"), simple("string", "date-time"), schemas),
        Type::MicroTime => {
            of_value(&format!("{META}.MicroTime"), simple("string", "date-time"), schemas)
        }
        Type::Raw => of_object("io.k8s.apimachinery.pkg.runtime.RawExtension", schemas),
        Type::List(below) => json!({"type": "array", "items": element(below, schemas)}),
        Type::Map(below) => {
            json!({"type": "object", "additionalProperties": element(below, schemas)})
        }
        Type::Pointer(below) => schema(below, schemas),
        Type::Named(name) => match name.structure() {
            Some(found) => reference(&add_struct(found, schemas)),
            None => json!({}),
        },
    }
}

/// Returns the schema of the elements of a list or a map.
fn element(kind: &'static Type, schemas: &mut Schemas) -> Value {
    let mut schema = schema(kind, schemas);
    let Some(default) = zero(kind, false) else { return schema };
    let map = object::map_of(&mut schema);
    if let Some(target) = map.remove("$ref") {
        map.insert("allOf".into(), json!([{"$ref": target}]));
    }
    map.insert("default".into(), default);
    schema
}

/// Returns the value of a field that is not given, if it is always set.
fn zero(kind: &'static Type, omits_empty: bool) -> Option<Value> {
    if let Type::Named(name) = kind
        && let Some(found) = name.structure()
    {
        let is_any = found.fields.is_empty() && !found.name.ends_with("Status");
        return (!is_any).then(|| json!({}));
    }
    if omits_empty || matches!(kind, Type::Pointer(_)) {
        return None;
    }
    let kind = types::resolved(kind);
    if matches!(kind, Type::Text) {
        Some("".into())
    } else if matches!(kind, Type::Bool) {
        Some(false.into())
    } else if matches!(kind, Type::Int(_) | Type::Float) {
        Some(0.into())
    } else {
        None
    }
}

fn of_reference(name: &str) -> Value {
    json!({"allOf": [reference(name)], "default": {}})
}

fn of_object(name: &str, schemas: &mut Schemas) -> Value {
    of_value(name, json!({"type": "object"}), schemas)
}

/// Adds the schema of a type that is no object of the table. Returns a reference to it.
fn of_value(name: &str, body: Value, schemas: &mut Schemas) -> Value {
    schemas.entry(name.to_owned()).or_insert(body);
    reference(name)
}
