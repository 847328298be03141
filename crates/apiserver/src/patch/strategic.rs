//! Strategic merge patches of the built-in kinds: list items are merged by the merge key of their
//! list.

use serde_json::{Map, Value};

use super::place::Place;
use crate::{failure::Failure, object};

/// Merges a patch into an object. Fails if the patch has an unknown directive, or an item without its
/// merge key.
pub(crate) fn merge(place: Place<'_>, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    merge_map(place, object::map_of(target), patch)
}

/// Returns the directive of a map of a patch.
fn directive(map: &Map<String, Value>) -> Option<&str> {
    map.get("$patch").and_then(Value::as_str)
}

fn merge_map(
    place: Place<'_>,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Failure> {
    match directive(patch) {
        None | Some("merge") => {}
        Some("replace") => {
            *target = without_directives(patch);
            return Ok(());
        }
        Some(other) => {
            let why = format!("unknown patch type: {other} in map: {}", shown_map(patch));
            return Err(Failure::unexplained(why));
        }
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        target.retain(|key, _| kept.iter().any(|one| one.as_str() == Some(key)));
    }
    let ordered = patch.iter().filter_map(|(key, order)| {
        let field = key.strip_prefix("$setElementOrder/")?;
        Some((field, order.as_array()?, list_of(target, field)))
    });
    let ordered: Vec<(&str, &Vec<Value>, Vec<Value>)> = ordered.collect();
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_values(target, field, value);
        } else if !key.starts_with('$') {
            merge_entry(place.field(key).0, target, key, value)?;
        }
    }
    for (field, order, original) in ordered {
        let key = place.field(field).0.rules().and_then(|rules| rules.key);
        if let Some(Value::Array(items)) = target.get_mut(field) {
            reorder(items, order, &original, key);
        }
    }
    Ok(())
}

fn list_of(target: &Map<String, Value>, field: &str) -> Vec<Value> {
    target.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn merge_entry(
    place: Place<'_>,
    target: &mut Map<String, Value>,
    key: &str,
    value: &Value,
) -> Result<(), Failure> {
    match value {
        Value::Null => {
            target.remove(key);
        }
        Value::Object(map) if directive(map) == Some("delete") => {
            target.remove(key);
        }
        Value::Object(map) => merge_map(place, object::map_mut(target, key), map)?,
        Value::Array(list) => {
            let have = target.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(place, have, list)?;
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            target.insert(key.to_owned(), value.clone());
        }
    }
    Ok(())
}

fn merge_list(place: Place<'_>, have: &mut Value, list: &[Value]) -> Result<(), Failure> {
    let rules = place.rules().filter(|rules| rules.is_merged);
    let maps: Option<Vec<&Map<String, Value>>> = list.iter().map(Value::as_object).collect();
    let maps = maps.unwrap_or_default();
    let replaces = |map: &&&Map<String, Value>| directive(map) == Some("replace");
    let (Some(rules), None, Value::Array(items)) = (rules, maps.iter().find(replaces), &mut *have)
    else {
        let is_plain = |item: &&Value| item.as_object().and_then(directive) != Some("replace");
        *have = Value::Array(list.iter().filter(is_plain).cloned().collect());
        return Ok(());
    };
    let original = items.clone();
    if let Some(key) = rules.key {
        for map in maps {
            merge_item(place.items(), items, key, map)?;
        }
    } else {
        items.extend(list.iter().filter(|item| !original.contains(item)).cloned());
    }
    reorder(items, list, &original, rules.key);
    Ok(())
}

/// Merges one item of a patch into a list.
fn merge_item(
    place: Place<'_>,
    items: &mut Vec<Value>,
    key: &str,
    item: &Map<String, Value>,
) -> Result<(), Failure> {
    let Some(wanted) = item.get(key) else {
        let map = shown_map(item);
        let why = format!("map: {map} does not contain declared merge key: {key}");
        return Err(Failure::unexplained(why));
    };
    let same = |one: &Value| one.get(key) == Some(wanted);
    if directive(item) == Some("delete") {
        items.retain(|one| !same(one));
    } else if let Some(found) = items.iter_mut().find(|one| same(one)) {
        merge_map(place, object::map_of(found), item)?;
    } else {
        items.push(Value::Object(without_directives(item)));
    }
    Ok(())
}

fn delete_values(target: &mut Map<String, Value>, field: &str, gone: &Value) {
    let (Some(Value::Array(items)), Some(gone)) = (target.get_mut(field), gone.as_array()) else {
        return;
    };
    items.retain(|item| !gone.contains(item));
}

/// Sorts the items that `order` names into that order. The others keep theirs, and stay before the
/// named items that they were before.
fn reorder(items: &mut Vec<Value>, order: &[Value], original: &[Value], key: Option<&str>) {
    let is_same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|one| is_same(one, item));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        items.drain(..).partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(original, item));
    let mut others = others.into_iter().peekable();
    for item in named {
        while let Some(other) = others.peek() {
            let is_before = match (place(original, other), place(original, &item)) {
                (Some(other), Some(item)) => other < item,
                _ => false,
            };
            if !is_before {
                break;
            }
            items.extend(others.next());
        }
        items.push(item);
    }
    items.extend(others);
}

/// Formats a map in the notation of Go, as messages do.
fn shown_map(map: &Map<String, Value>) -> String {
    let entries: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
    format!("map[{}]", entries.join(" "))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => shown_map(map),
    }
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let kept = map.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;
    use serde_json::json;

    fn merged(plural: &str, before: &Value, patch: &Value) -> Value {
        let resource = builtin::by_plural(plural);
        let mut object = before.clone();
        merge(Place::root(&resource), &mut object, patch).unwrap();
        object
    }

    #[test]
    fn maps_are_merged_and_directives_followed() {
        for (claim, before, patch, after) in [
            (
                "null deletes",
                json!({"data": {"a": "1", "b": "2"}}),
                json!({"data": {"a": null}}),
                json!({"data": {"b": "2"}}),
            ),
            (
                "a map can be replaced",
                json!({"data": {"b": "1"}}),
                json!({"data": {"c": "2", "$patch": "replace"}}),
                json!({"data": {"c": "2"}}),
            ),
            (
                "only retained keys stay",
                json!({"data": {"a": "1", "b": "2"}}),
                json!({"data": {"$retainKeys": ["a"], "a": "3"}}),
                json!({"data": {"a": "3"}}),
            ),
            (
                "finalizers are a set",
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"finalizers": ["c"],
                    "$deleteFromPrimitiveList/finalizers": ["a"]}}),
                json!({"metadata": {"finalizers": ["c", "b"]}}),
            ),
        ] {
            assert_eq!(merged("configmaps", &before, &patch), after, "{claim}");
        }
    }

    #[test]
    fn items_are_merged_by_the_key_of_their_list() {
        for (claim, plural, before, patch, after) in [
            (
                "containers by name",
                "pods",
                json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}),
                json!({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "c"}]}}),
                json!({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "c"},
                    {"name": "b"}]}}),
            ),
            (
                "conditions by type",
                "nodes",
                json!({"status": {"conditions": [{"type": "Ready", "status": "False",
                    "reason": "x"}]}}),
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
                json!({"status": {"conditions": [{"type": "Ready", "status": "True",
                    "reason": "x"}]}}),
            ),
            (
                "an item can be deleted",
                "pods",
                json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}),
                json!({"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}}),
                json!({"spec": {"volumes": [{"name": "b"}]}}),
            ),
            (
                "a list can be replaced",
                "pods",
                json!({"spec": {"volumes": [{"name": "a"}]}}),
                json!({"spec": {"volumes": [{"name": "b"}, {"$patch": "replace"}]}}),
                json!({"spec": {"volumes": [{"name": "b"}]}}),
            ),
            (
                "taints have no merge key",
                "nodes",
                json!({"spec": {"taints": [{"key": "a"}]}}),
                json!({"spec": {"taints": [{"key": "b"}]}}),
                json!({"spec": {"taints": [{"key": "b"}]}}),
            ),
            (
                "the claims of a container have none, unlike those of a pod",
                "pods",
                json!({"spec": {"resources": {"claims": [{"name": "a"}]}}}),
                json!({"spec": {"resources": {"claims": [{"name": "b"}]}}}),
                json!({"spec": {"resources": {"claims": [{"name": "b"}]}}}),
            ),
            (
                "items are reordered as requested",
                "pods",
                json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}),
                json!({"spec": {"$setElementOrder/volumes": [{"name": "b"}, {"name": "a"}]}}),
                json!({"spec": {"volumes": [{"name": "b"}, {"name": "a"}]}}),
            ),
        ] {
            assert_eq!(merged(plural, &before, &patch), after, "{claim}");
        }
    }

    #[test]
    fn malformed_patches_are_refused() {
        let pods = builtin::by_plural("pods");
        for (patch, expected) in [
            (
                json!({"spec": {"containers": [{"image": "j"}]}}),
                "map: map[image:j] does not contain declared merge key: name",
            ),
            (
                json!({"metadata": {"labels": {"$patch": "x"}}}),
                "unknown patch type: x in map: map[$patch:x]",
            ),
        ] {
            let mut pod = json!({"spec": {"containers": [{"name": "c"}]}});
            let refused = merge(Place::root(&pods), &mut pod, &patch).unwrap_err();
            assert_eq!(refused.message, expected);
        }
    }
}
