//! The `Table` format, which `kubectl get` prints.

mod age;
mod builtin;
mod columns;
mod jsonpath;
mod network;
mod pod;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    admit::defaults::TEMPLATE_GENERATION,
    object,
    resource::{Column, Resource},
};

/// Builds a table of the given rows.
pub(crate) fn table(resource: &Resource, rows: &[Value], meta: &Value) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
        "columnDefinitions": columns(resource), "rows": rows})
}

/// Builds the row of one object. `include` is the `includeObject` option: how much of the object to
/// embed.
pub(crate) fn row(resource: &Resource, object: &Value, now: Timestamp, include: &str) -> Value {
    let cells = if resource.custom {
        custom_cells(resource, object, now)
    } else {
        builtin::cells(&resource.kind, object, now)
    };
    let mut row = match include {
        "None" => json!({"cells": cells, "object": null}),
        "Object" => json!({"cells": cells, "object": object}),
        _ => json!({"cells": cells, "object": {"kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1", "metadata": metadata(resource, object)}}),
    };
    let is_pod = resource.kind == "Pod" && !resource.custom;
    if let Some(conditions) = is_pod.then(|| pod::conditions(object)).flatten() {
        object::map_of(&mut row).insert("conditions".into(), conditions);
    }
    row
}

/// Returns the metadata of an object without the annotation that DaemonSets have only as a whole.
fn metadata(resource: &Resource, object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_default();
    if resource.kind == "DaemonSet" && !resource.custom {
        let map = object::map_of(&mut metadata);
        let annotations = object::map_mut(map, "annotations");
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty() {
            map.remove("annotations");
        }
    }
    metadata
}

fn columns(resource: &Resource) -> Vec<Value> {
    if !resource.custom {
        return columns::of_kind(&resource.kind);
    }
    let mut out = vec![column("Name", "string", "name", 0)];
    for one in custom_columns(resource) {
        out.push(json!({"name": one.name, "type": one.kind, "format": one.format,
            "description": one.description, "priority": one.priority}));
    }
    out
}

fn column(name: &str, kind: &str, format: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}

/// Returns the columns of a custom resource. A resource without columns gets its age.
fn custom_columns(resource: &Resource) -> Vec<Column> {
    if !resource.columns.is_empty() {
        return resource.columns.clone();
    }
    vec![Column {
        name: "Age".into(),
        kind: "date".into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        path: ".metadata.creationTimestamp".into(),
    }]
}

fn custom_cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![Value::from(object::name(object))];
    for column in custom_columns(resource) {
        let found = jsonpath::find(&column.path, object);
        let cell = match (found.first(), column.kind.as_str()) {
            (None, _) => Value::Null,
            (Some(first), "date") => age::since(first.as_str().unwrap_or(""), now).into(),
            (Some(first), "integer" | "number" | "boolean") => (*first).clone(),
            (Some(_), _) => {
                let texts: Vec<String> = found.iter().map(|one| plain(one)).collect();
                texts.join(" ").into()
            }
        };
        cells.push(cell);
    }
    cells
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::crd;

    #[test]
    fn a_custom_resource_has_its_printer_columns() {
        let crd = json!({"spec": {"group": "g", "names": {"kind": "Pool", "plural": "pools"},
            "scope": "Cluster", "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "additionalPrinterColumns": [
                {"name": "Config", "type": "string", "jsonPath": ".status.configuration.name"},
                {"name": "Updated", "type": "string",
                 "jsonPath": ".status.conditions[?(@.type==\"Updated\")].status"},
                {"name": "Count", "type": "number", "jsonPath": ".status.machineCount"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}});
        let resource = crd::resources(&crd).remove(0);
        let pool = json!({"metadata": {"name": "worker",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"machineCount": 3, "conditions": [
                {"type": "Degraded", "status": "False"}, {"type": "Updated", "status": "True"}]}});
        let now = "2026-01-01T00:05:30Z".parse().unwrap();
        let row = row(&resource, &pool, now, "None");
        assert_eq!(row["cells"], json!(["worker", null, "True", 3, "5m30s"]));
    }
}
