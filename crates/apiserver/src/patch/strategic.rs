//! Strategic merge patches of the built-in kinds: list items are merged by their merge key.

use serde_json::{Map, Value};

use crate::object;

/// Merge keys of lists, by the list's field name.
///
/// Lists that are missing here are replaced as a whole, as Kubernetes does with taints and
/// tolerations.
const MERGE_KEYS: [(&str, &str); 19] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("resourceClaims", "name"),
    ("imagePullSecrets", "name"),
    ("secrets", "name"),
    ("conditions", "type"),
    ("addresses", "type"),
    ("hostAliases", "ip"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("schedulingGates", "name"),
    ("ownerReferences", "uid"),
];

/// Lists of scalars that are merged as sets.
const SETS: [&str; 1] = ["finalizers"];

/// Returns the merge key of a list.
pub(crate) fn merge_key(field: &str) -> Option<&'static str> {
    MERGE_KEYS.iter().find(|(name, _)| *name == field).map(|(_, key)| *key)
}

/// Returns true if a list of scalars is merged as a set.
pub(crate) fn is_set(field: &str) -> bool {
    SETS.contains(&field)
}

/// Merges a patch into an object.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    merge_map(object::map_of(target), patch);
}

fn merge_map(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        *target = without_directives(patch);
        return;
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        target.retain(|key, _| kept.iter().any(|one| one.as_str() == Some(key)));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_values(target, field, value);
        } else if !key.starts_with('$') {
            merge_entry(target, key, value);
        }
    }
    for (key, order) in patch {
        if let Some(field) = key.strip_prefix("$setElementOrder/") {
            reorder(target, field, order);
        }
    }
}

fn merge_entry(target: &mut Map<String, Value>, key: &str, value: &Value) {
    match value {
        Value::Null => {
            target.remove(key);
        }
        Value::Object(map) if map.get("$patch").and_then(Value::as_str) == Some("delete") => {
            target.remove(key);
        }
        Value::Object(map) => merge_map(object::map_mut(target, key), map),
        Value::Array(list) => {
            let have = target.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(have, key, list);
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            target.insert(key.to_owned(), value.clone());
        }
    }
}

fn merge_list(have: &mut Value, field: &str, list: &[Value]) {
    let directive =
        |item: &Value, wanted: &str| item.get("$patch").and_then(Value::as_str) == Some(wanted);
    let key = merge_key(field).filter(|_| list.iter().all(Value::is_object));
    let replace = list.iter().any(|item| directive(item, "replace"));
    match (key, have.as_array_mut()) {
        (Some(key), Some(items)) if !replace => {
            for item in list {
                let same = |one: &Value| one.get(key) == item.get(key);
                if directive(item, "delete") {
                    items.retain(|one| !same(one));
                } else if let Some(found) = items.iter_mut().find(|one| same(one)) {
                    merge(found, item);
                } else {
                    items.push(Value::Object(without_directives(
                        item.as_object().unwrap_or(&Map::new()),
                    )));
                }
            }
        }
        (None, Some(items)) if is_set(field) => {
            // Compat: the values of the patch come first.
            let mut merged = list.to_vec();
            merged.extend(items.iter().filter(|item| !list.contains(item)).cloned());
            *items = merged;
        }
        _ => {
            let kept = list.iter().filter(|item| !directive(item, "replace"));
            *have = Value::Array(kept.cloned().collect());
        }
    }
}

fn delete_values(target: &mut Map<String, Value>, field: &str, gone: &Value) {
    let (Some(Value::Array(items)), Some(gone)) = (target.get_mut(field), gone.as_array()) else {
        return;
    };
    items.retain(|item| !gone.contains(item));
}

/// Sorts the items that `order` names into that order. The other items follow.
fn reorder(target: &mut Map<String, Value>, field: &str, order: &Value) {
    let (Some(Value::Array(items)), Some(order)) = (target.get_mut(field), order.as_array()) else {
        return;
    };
    let key = merge_key(field);
    let place = |item: &Value| {
        let same = |wanted: &Value| match key {
            Some(key) => wanted.get(key).is_some() && wanted.get(key) == item.get(key),
            None => wanted == item,
        };
        order.iter().position(same).unwrap_or(usize::MAX)
    };
    items.sort_by_key(place);
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let kept = map.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches_merge_as_in_kubernetes() {
        for (claim, before, patch, after) in [
            ("null deletes", json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
            (
                "named items are merged",
                json!({"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "image": "y"}, {"name": "c"}]}),
                json!({"containers": [{"name": "a", "image": "y"}, {"name": "b"}, {"name": "c"}]}),
            ),
            (
                "conditions are merged by type",
                json!({"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}),
                json!({"conditions": [{"type": "Ready", "status": "True"}]}),
                json!({"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}),
            ),
            (
                "an item can be deleted",
                json!({"volumes": [{"name": "a"}, {"name": "b"}]}),
                json!({"volumes": [{"name": "a", "$patch": "delete"}]}),
                json!({"volumes": [{"name": "b"}]}),
            ),
            (
                "a list can be replaced",
                json!({"volumes": [{"name": "a"}]}),
                json!({"volumes": [{"name": "b"}, {"$patch": "replace"}]}),
                json!({"volumes": [{"name": "b"}]}),
            ),
            (
                "taints are replaced",
                json!({"taints": [{"key": "a"}]}),
                json!({"taints": [{"key": "b"}]}),
                json!({"taints": [{"key": "b"}]}),
            ),
            (
                "finalizers are a set",
                json!({"finalizers": ["a", "b"]}),
                json!({"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}),
                json!({"finalizers": ["b", "c"]}),
            ),
            (
                "items are reordered as requested",
                json!({"env": [{"name": "a"}, {"name": "b"}]}),
                json!({"$setElementOrder/env": [{"name": "b"}, {"name": "a"}]}),
                json!({"env": [{"name": "b"}, {"name": "a"}]}),
            ),
            (
                "only retained keys stay",
                json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}),
                json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
                json!({"strategy": {"type": "Recreate"}}),
            ),
            (
                "a map can be replaced",
                json!({"a": {"b": 1}}),
                json!({"a": {"c": 2, "$patch": "replace"}}),
                json!({"a": {"c": 2}}),
            ),
        ] {
            let mut object = before;
            merge(&mut object, &patch);
            let sets = |value: &Value| {
                let mut value = value.clone();
                if let Some(Value::Array(list)) = value.get_mut("finalizers") {
                    list.sort_by_key(Value::to_string);
                }
                value
            };
            assert_eq!(sets(&object), after, "{claim}");
        }
    }
}
