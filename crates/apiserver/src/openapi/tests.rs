//! Tests of the documents.

use std::collections::BTreeSet;

use super::*;
use crate::resource::{builtin, catalog::Catalog};

fn read(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

fn references(value: &Value, out: &mut BTreeSet<String>) {
    if let Some(Value::String(target)) = value.get("$ref") {
        out.insert(target.clone());
    }
    for below in value.as_object().into_iter().flat_map(Map::values) {
        references(below, out);
    }
    for below in value.as_array().into_iter().flatten() {
        references(below, out);
    }
}

#[test]
fn every_indexed_document_exists_and_has_the_hash_of_its_url() {
    let documents = Documents::default();
    let served = Catalog::new().served();
    let index = read(&documents.find(&served, "/openapi/v3").unwrap());
    let groups = index["paths"].as_object().unwrap();
    assert!(groups.contains_key("api/v1") && groups.contains_key("apis/authorization.k8s.io/v1"));
    for entry in groups.values() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        let (path, hash) = url.split_once("?hash=").unwrap();
        assert_eq!(documents.find(&served, path).unwrap().hash, hash, "{url}");
    }
    assert!(documents.find(&served, "/openapi/v3/apis/nothing/v1").is_none());
}

#[test]
fn every_reference_of_a_document_is_a_schema_of_it() {
    let served = Catalog::new().served();
    for (path, document) in documents(&served) {
        let value = read(&document);
        let mut all = BTreeSet::new();
        references(&value, &mut all);
        for target in all {
            let place = target.strip_prefix('#').unwrap();
            assert!(value.pointer(place).is_some(), "{path}: {target}");
        }
    }
}

#[test]
fn every_kind_has_a_schema_with_fields_and_a_patch_with_field_validation() {
    let served = Catalog::new().served();
    let documents = documents(&served);
    for resource in builtin::all() {
        let base = paths::base(&resource.group, &resource.version);
        let value = read(&documents[&format!("/openapi/v3/{base}")]);
        let kind = json!({"group": resource.group, "version": resource.version,
            "kind": resource.kind});
        let schemas = value["components"]["schemas"].as_object().unwrap();
        let has = |key: &str| {
            schemas.values().any(|schema| {
                schema["x-kubernetes-group-version-kind"][0] == kind
                    && schema["properties"].get(key).is_some()
            })
        };
        assert!(has("metadata"), "{kind}");
        let patches = value["paths"].as_object().unwrap().values();
        let is_checked = |patch: &Value| {
            patch["x-kubernetes-group-version-kind"] == kind
                && patch["parameters"].to_string().contains("fieldValidation")
        };
        assert!(patches.map(|item| &item["patch"]).any(is_checked), "{kind}");
    }
}

#[test]
fn the_documents_are_made_again_when_the_kinds_change() {
    let documents = Documents::default();
    let catalog = Catalog::new();
    let before = documents.find(&catalog.served(), "/openapi/v3").unwrap();
    let crd = json!({"spec": {"group": "a.example", "scope": "Cluster",
        "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"size": {"type": "integer"}}}}}]}});
    catalog.replace("a.example", "things", crate::resource::crd::resources(&crd));
    let after = documents.find(&catalog.served(), "/openapi/v3").unwrap();
    assert_ne!(before.hash, after.hash);
    let found = read(&documents.find(&catalog.served(), "/openapi/v3/apis/a.example/v1").unwrap());
    let schema = &found["components"]["schemas"]["example.a.v1.Thing"];
    assert_eq!(schema["properties"]["size"]["type"], "integer");
    let old = read(&documents.find(&catalog.served(), "/openapi/v2").unwrap());
    assert!(old["definitions"].get("example.a.v1.Thing").is_some());
}

#[test]
fn fields_have_their_types_defaults_and_merge_keys() {
    let served = Catalog::new().served();
    let value = read(&documents(&served)["/openapi/v3/api/v1"]);
    let of = |name: &str| value["components"]["schemas"][name].clone();
    let container = of("io.k8s.api.core.v1.Container");
    assert_eq!(container["required"], json!(["name"]));
    let policy = &container["properties"]["imagePullPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let ports = &container["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "containerPort");
    let port = of("io.k8s.api.core.v1.ContainerPort");
    assert_eq!(port["properties"]["protocol"]["default"], "TCP");
    assert_eq!(port["properties"]["containerPort"]["format"], "int32");
}
