//! The `OpenAPI` documents that kubectl needs: the requests that take `fieldValidation`, and the
//! schemas of custom resources for `kubectl explain`.

use serde_json::{Map, Value, json};

use crate::{
    object,
    resource::{Resource, catalog::Served},
};

/// Returns the document at a path below `/openapi`.
pub(crate) fn document(served: &Served, path: &str) -> Option<Value> {
    if path == "/openapi/v3" {
        return Some(index(served));
    }
    let place = path.strip_prefix("/openapi/v3/")?;
    let resources: Vec<&Resource> =
        served.values().map(AsRef::as_ref).filter(|one| base(one) == place).collect();
    if resources.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources {
        add_paths(resource, &mut paths);
        schemas.insert(schema_name(resource), schema(resource));
    }
    Some(json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths, "components": {"schemas": schemas}}))
}

fn base(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

fn index(served: &Served) -> Value {
    let mut paths = Map::new();
    for resource in served.values() {
        let base = base(resource);
        let url = format!("/openapi/v3/{base}");
        paths.entry(base).or_insert_with(|| json!({"serverRelativeURL": url}));
    }
    json!({ "paths": paths })
}

fn gvk(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn add_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let base = base(resource);
    let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{base}/{scope}{}", resource.plural);
    let call = |action: &str, options: &[&str]| {
        let parameters: Vec<Value> = options
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .collect();
        let reference = format!("#/components/schemas/{}", schema_name(resource));
        json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(resource),
            "parameters": parameters, "responses": {"200": {"description": "OK",
            "content": {"application/json": {"schema": {"$ref": reference}}}}}})
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    paths.insert(
        collection.clone(),
        json!({"get": call("list", &["labelSelector", "fieldSelector", "limit", "continue"]),
            "post": call("post", &write)}),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({"get": call("get", &[]), "put": call("put", &write),
            "patch": call("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
            "delete": call("delete", &["dryRun"])}),
    );
}

fn schema_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').filter(|part| !part.is_empty()).collect();
    parts.reverse();
    parts.extend([resource.version.as_str(), resource.kind.as_str()]);
    parts.join(".")
}

fn schema(resource: &Resource) -> Value {
    let mut schema = resource.written_schema.as_deref().cloned().unwrap_or_else(|| json!({}));
    let map = object::map_of(&mut schema);
    map.insert("type".into(), "object".into());
    map.insert("x-kubernetes-group-version-kind".into(), json!([gvk(resource)]));
    let properties = object::map_mut(map, "properties");
    for (field, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        properties.entry(field).or_insert_with(|| json!({"type": kind}));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::catalog::Catalog;

    #[test]
    fn every_indexed_document_exists_and_has_field_validation() {
        let served = Catalog::new().served();
        let index = document(&served, "/openapi/v3").unwrap();
        for (place, entry) in index["paths"].as_object().unwrap() {
            let url = entry["serverRelativeURL"].as_str().unwrap();
            let found = document(&served, url).unwrap();
            assert!(found.to_string().contains("fieldValidation"), "{place}");
        }
        assert_eq!(document(&served, "/openapi/v2"), None);
    }
}
