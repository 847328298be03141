//! Type validation of the built-in kinds. A stored object with a field of the wrong type would
//! break every client that lists its kind.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    field_path::{FieldPath, FieldPaths},
    object,
    resource::{Form, Resource},
    types::{self, canonical},
};

/// Brings an object into the form of its kind and returns the paths of its unknown fields, which
/// are dropped. Fails on values of the wrong type.
pub(super) fn check(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    if resource.custom {
        let metadata = object::map_of(object).entry("metadata").or_insert(Value::Null);
        return canonical::read_metadata(metadata);
    }
    if resource.kind == "CustomResourceDefinition" {
        return definition(object).map_err(|error| error.to_string());
    }
    let group = if resource.form == Form::NewEvent { "" } else { resource.group.as_str() };
    let Some(found) = types::of_kind(group, &resource.version, &resource.kind) else {
        return Ok(Vec::new());
    };
    canonical::read(found, object)
}

/// Drops the unknown fields of a definition.
fn definition(object: &mut Value) -> Result<Vec<String>, serde_json::Error> {
    let known = serde_json::to_value(CustomResourceDefinition::deserialize(&*object)?)?;
    let mut unknown = FieldPaths::default();
    prune(object, &known, FieldPath::Root, &mut unknown);
    Ok(unknown.into_vec())
}

fn prune(object: &mut Value, known: &Value, path: FieldPath<'_>, unknown: &mut FieldPaths) {
    match (object, known) {
        (Value::Object(map), Value::Object(known)) => map.retain(|key, below| {
            // Null stands for an absent field, which the typed object leaves out.
            if below.is_null() {
                return true;
            }
            let Some(known) = known.get(key) else {
                unknown.add(path.key(key));
                return false;
            };
            prune(below, known, path.key(key), unknown);
            true
        }),
        (Value::Array(list), Value::Array(known)) => {
            for (at, (item, known)) in list.iter_mut().zip(known).enumerate() {
                prune(item, known, path.index(at), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;
    use serde_json::json;

    #[test]
    fn fields_a_kind_does_not_have_are_dropped() {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"unschedulabel": true, "taints": [{"key": "k", "effect": "E", "x": 1}],
                "podCIDR": null}});
        let unknown = check(&builtin::by_plural("nodes"), &mut node).unwrap();
        assert_eq!(unknown, ["spec.taints[0].x", "spec.unschedulabel"]);
        assert_eq!(node["spec"]["taints"], json!([{"key": "k", "effect": "E"}]));
    }

    #[test]
    fn values_of_the_wrong_type_are_refused() {
        for (plural, kind, field, value) in [
            ("configmaps", "ConfigMap", "data", json!(1)),
            ("configmaps", "ConfigMap", "data", json!({"a": 1})),
            ("nodes", "Node", "spec", json!({"unschedulable": "yes"})),
            ("pods", "Pod", "spec", json!({"containers": {}})),
        ] {
            let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {}});
            object[field] = value;
            assert!(check(&builtin::by_plural(plural), &mut object).is_err(), "{object}");
        }
    }
}
