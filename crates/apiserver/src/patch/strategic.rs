//! Strategic merge patches of the built-in kinds: list items are merged by the merge key of their
//! list.

use std::collections::{HashMap, HashSet};

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
    match (patch.get("$patch"), directive(patch)) {
        (None, _) | (_, Some("merge")) => {}
        (_, Some("replace")) => {
            *target = without_directives(patch);
            return Ok(());
        }
        (Some(other), _) => {
            let other = shown(other);
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
        merge_items(place.items(), items, key, &maps)?;
    } else {
        let had: HashSet<&Value> = original.iter().collect();
        items.extend(list.iter().filter(|item| !had.contains(item)).cloned());
    }
    reorder(items, list, &original, rules.key);
    Ok(())
}

/// Merges the items of a patch into a list.
fn merge_items(
    place: Place<'_>,
    items: &mut Vec<Value>,
    key: &str,
    patch: &[&Map<String, Value>],
) -> Result<(), Failure> {
    let mut places: HashMap<Value, Vec<usize>> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(value.clone()).or_default().push(at);
        }
    }
    let mut slots: Vec<Option<Value>> = items.drain(..).map(Some).collect();
    for item in patch {
        let Some(wanted) = item.get(key) else {
            let map = shown_map(item);
            let why = format!("map: {map} does not contain declared merge key: {key}");
            return Err(Failure::unexplained(why));
        };
        let first = places.get(wanted).and_then(|places| places.first()).copied();
        if directive(item) == Some("delete") {
            for at in places.remove(wanted).into_iter().flatten() {
                slots.get_mut(at).map(Option::take);
            }
        } else if let Some(found) = first.and_then(|at| slots.get_mut(at)?.as_mut()) {
            merge_map(place, object::map_of(found), item)?;
        } else {
            places.insert(wanted.clone(), vec![slots.len()]);
            slots.push(Some(Value::Object(without_directives(item))));
        }
    }
    items.extend(slots.into_iter().flatten());
    Ok(())
}

fn delete_values(target: &mut Map<String, Value>, field: &str, gone: &Value) {
    let (Some(Value::Array(items)), Some(gone)) = (target.get_mut(field), gone.as_array()) else {
        return;
    };
    let gone: HashSet<&Value> = gone.iter().collect();
    items.retain(|item| !gone.contains(item));
}

/// Sorts the items that `order` names into that order. The others keep theirs, and stay before the
/// named items that they were before.
fn reorder(items: &mut Vec<Value>, order: &[Value], original: &[Value], key: Option<&str>) {
    let (ordered, had) = (places(order, key), places(original, key));
    let place =
        |places: &HashMap<&Value, usize>, item: &Value| places.get(identity(item, key)?).copied();
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        items.drain(..).partition(|item| place(&ordered, item).is_some());
    named.sort_by_key(|item| place(&ordered, item));
    others.sort_by_key(|item| place(&had, item));
    let mut others = others.into_iter().peekable();
    for item in named {
        while let Some(other) = others.peek() {
            let is_before = match (place(&had, other), place(&had, &item)) {
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

/// Returns the value that identifies an item of a list: that of its merge key, or the item itself.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    key.map_or(Some(item), |key| item.get(key))
}

/// Returns the first place of each item of a list.
fn places<'a>(list: &'a [Value], key: Option<&str>) -> HashMap<&'a Value, usize> {
    let mut out = HashMap::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        if let Some(identity) = identity(item, key) {
            out.entry(identity).or_insert(at);
        }
    }
    out
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
    fn long_lists_are_merged_in_a_short_time() {
        let items = |from: usize, to: usize| -> Value {
            (from..to).map(|number| json!({"type": number.to_string(), "status": "True"})).collect()
        };
        let before = json!({"status": {"conditions": items(0, 40_000)}});
        let patch = json!({"status": {"conditions": items(20_000, 80_000)}});
        let after = merged("nodes", &before, &patch);
        assert_eq!(after["status"]["conditions"].as_array().unwrap().len(), 80_000);
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
