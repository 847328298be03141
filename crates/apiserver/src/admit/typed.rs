//! Type validation of the built-in kinds. A stored object with a field of the wrong type would
//! break every client that lists its kind.

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        coordination::v1::Lease,
        core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount},
        policy::v1::PodDisruptionBudget,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{resource::Resource, schema::prune::join};

/// Drops the fields that the kind does not have and returns their paths. Fails on values of the
/// wrong type.
pub(super) fn check(
    resource: &Resource,
    object: &mut Value,
) -> Result<Vec<String>, serde_json::Error> {
    let known = match resource.kind.as_str() {
        "Namespace" => known::<Namespace>(object)?,
        "Node" => known::<Node>(object)?,
        "Pod" => known::<Pod>(object)?,
        "ConfigMap" => known::<ConfigMap>(object)?,
        "Secret" => known::<Secret>(object)?,
        "ServiceAccount" => known::<ServiceAccount>(object)?,
        "Event" => known::<Event>(object)?,
        "Lease" => known::<Lease>(object)?,
        "PodDisruptionBudget" => known::<PodDisruptionBudget>(object)?,
        "Deployment" => known::<Deployment>(object)?,
        "DaemonSet" => known::<DaemonSet>(object)?,
        "CustomResourceDefinition" => known::<CustomResourceDefinition>(object)?,
        _ => return Ok(Vec::new()),
    };
    let mut unknown = Vec::new();
    prune(object, &known, "", &mut unknown);
    Ok(unknown)
}

/// Returns the object as the Rust type of its kind serializes it.
fn known<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    let typed = T::deserialize(object)?;
    serde_json::to_value(typed)
}

fn prune(object: &mut Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (object, known) {
        (Value::Object(map), Value::Object(known)) => map.retain(|key, below| {
            // Null stands for an absent field, which the typed object leaves out.
            if below.is_null() {
                return true;
            }
            let place = join(path, key);
            let Some(known) = known.get(key) else {
                unknown.push(place);
                return false;
            };
            prune(below, known, &place, unknown);
            true
        }),
        (Value::Array(list), Value::Array(known)) => {
            for (at, (item, known)) in list.iter_mut().zip(known).enumerate() {
                prune(item, known, &format!("{path}[{at}]"), unknown);
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
