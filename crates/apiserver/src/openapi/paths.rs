//! The operations of `OpenAPI` v3 documents.

use serde_json::{Map, Value, json};

use super::schemas::{self, Schemas, gvk, reference};
use crate::{
    discovery,
    resource::{Resource, group_version},
    review::Review,
};

/// Name of the schema of patches.
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Media types of patches. The last is for built-in kinds only.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Options of writes, and their types.
const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const WRITE_PATCH: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

/// The kind of an operation.
type Kind<'a> = (&'a str, &'a str, &'a str);

/// Returns the path of a group and version, such as `apis/apps/v1`.
pub(super) fn base(group: &str, version: &str) -> String {
    let root = if group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", group_version(group, version))
}

/// Adds the operations of a resource and the schemas that they use.
pub(super) fn add(resource: &Resource, paths: &mut Map<String, Value>, schemas: &mut Schemas) {
    let (name, list) = schemas::add(resource, schemas);
    schemas.entry(PATCH.to_owned()).or_insert_with(|| json!({"type": "object"}));
    let kind = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
    let base = base(kind.0, kind.1);
    let (whole, all) = (reference(&name), reference(&list));
    let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{base}/{scope}{}", resource.plural);
    let verbs = discovery::verbs(resource);
    let mut item = Map::new();
    item.insert("get".into(), operation("list", kind, LIST, &all));
    item.insert("post".into(), with_body(operation("post", kind, WRITE, &whole), &whole));
    if verbs.contains(&"deletecollection") {
        item.insert("delete".into(), operation("deletecollection", kind, DELETE, &json!({})));
    }
    paths.insert(collection.clone(), placed(item, resource.namespaced, false));
    if resource.namespaced {
        let mut everywhere = Map::new();
        everywhere.insert("get".into(), operation("list", kind, LIST, &all));
        paths.insert(format!("/{base}/{}", resource.plural), placed(everywhere, false, false));
    }
    let mut one = changed(kind, &whole, resource.custom);
    one.insert("delete".into(), operation("delete", kind, DELETE, &json!({})));
    paths.insert(format!("{collection}/{{name}}"), placed(one, resource.namespaced, true));
    for (part, kind, verbs) in discovery::parts(resource) {
        let whole = match kind {
            _ if kind.2 == resource.kind => whole.clone(),
            _ => reference(&schemas::add_kind(kind, schemas)),
        };
        let below = if verbs.contains(&"create") {
            let made = with_body(operation("post", kind, WRITE, &whole), &whole);
            Map::from_iter([("post".to_owned(), made)])
        } else {
            let mut below = changed(kind, &whole, resource.custom);
            below.retain(|verb, _| verbs.contains(&if verb == "put" { "update" } else { verb }));
            below
        };
        let path = format!("{collection}/{{name}}/{part}");
        paths.insert(path, placed(below, resource.namespaced, true));
    }
}

/// Adds the operation of a review and the schemas that it uses.
pub(super) fn add_review(review: &Review, paths: &mut Map<String, Value>, schemas: &mut Schemas) {
    let kind = (review.group, "v1", review.kind);
    let whole = reference(&schemas::add_kind(kind, schemas));
    let scope = if review.namespaced { "namespaces/{namespace}/" } else { "" };
    let path = format!("/{}/{scope}{}", base(review.group, "v1"), review.plural);
    let asked = with_body(operation("post", kind, WRITE, &whole), &whole);
    let item = Map::from_iter([("post".to_owned(), asked)]);
    paths.insert(path, placed(item, review.namespaced, false));
}

/// Returns the operations that read and change an object or a part of it.
fn changed(kind: Kind<'_>, whole: &Value, is_custom: bool) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("get".into(), operation("get", kind, &[], whole));
    out.insert("put".into(), with_body(operation("put", kind, WRITE, whole), whole));
    let mut patch = operation("patch", kind, WRITE_PATCH, whole);
    let is_accepted = |media: &&&str| !(is_custom && media.contains("strategic"));
    let content: Map<String, Value> = PATCHES
        .iter()
        .filter(is_accepted)
        .map(|media| ((*media).to_owned(), json!({"schema": reference(PATCH)})))
        .collect();
    if let Some(map) = patch.as_object_mut() {
        map.insert("requestBody".into(), json!({"content": content, "required": true}));
    }
    out.insert("patch".into(), patch);
    out
}

fn operation(action: &str, kind: Kind<'_>, options: &[(&str, &str)], answer: &Value) -> Value {
    let parameters: Vec<Value> = options
        .iter()
        .map(|(name, kind)| {
            json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
        })
        .collect();
    json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(kind),
        "parameters": parameters, "responses": {"200": {"description": "OK",
        "content": {"application/json": {"schema": answer}}}}})
}

fn with_body(mut operation: Value, body: &Value) -> Value {
    if let Some(map) = operation.as_object_mut() {
        let content = json!({"*/*": {"schema": body}});
        map.insert("requestBody".into(), json!({"content": content, "required": true}));
    }
    operation
}

/// Adds the parameters of a path.
fn placed(mut item: Map<String, Value>, in_namespace: bool, by_name: bool) -> Value {
    let given = [("namespace", in_namespace), ("name", by_name)];
    let parameters: Vec<Value> = given
        .iter()
        .filter(|(_, is_given)| *is_given)
        .map(|(name, _)| {
            json!({"name": name, "in": "path", "required": true,
                "schema": {"type": "string", "uniqueItems": true}})
        })
        .collect();
    if !parameters.is_empty() {
        item.insert("parameters".into(), parameters.into());
    }
    item.into()
}
