//! Server-side apply: collections field ownership and detects conflicts.
//!
//! Ownership is tracked from an object's first apply on, as Kubernetes does for objects that were
//! never applied. Fields set before that belong to the manager `before-first-apply`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fields::{self, Path, Place, Set, Step};
use crate::{admit::Part, clock, failure::Failure, object, resource::Resource, schema::ListType};

/// A field manager, with the context of its request.
pub(crate) struct Manager<'a> {
    pub(crate) name: &'a str,
    pub(crate) api_version: String,
    pub(crate) part: Part,
    pub(crate) now: Timestamp,
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    set: Set,
}

impl Entry {
    fn read(value: &Value) -> Self {
        let text = |key| object::text(value, &[key]).to_owned();
        Self {
            name: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            set: value.get("fieldsV1").map(fields::decode).unwrap_or_default(),
        }
    }

    fn write(&self) -> Value {
        let mut value = json!({"manager": self.name, "operation": self.operation,
            "apiVersion": self.api_version, "time": self.time, "fieldsType": "FieldsV1",
            "fieldsV1": fields::encode(&self.set)});
        if !self.subresource.is_empty() {
            object::map_of(&mut value)
                .insert("subresource".into(), self.subresource.clone().into());
        }
        value
    }

    fn is(&self, manager: &Manager<'_>, operation: &str) -> bool {
        self.name == manager.name
            && self.operation == operation
            && self.subresource == subresource(manager.part)
    }

    fn of(manager: &Manager<'_>, operation: &str, set: Set) -> Self {
        Self {
            name: manager.name.to_owned(),
            operation: operation.to_owned(),
            api_version: manager.api_version.clone(),
            subresource: subresource(manager.part).to_owned(),
            time: clock::rfc3339(manager.now),
            set,
        }
    }
}

fn subresource(part: Part) -> &'static str {
    match part {
        Part::Main => "",
        Part::Status => "status",
    }
}

fn entries(object: &Value) -> Vec<Entry> {
    let list = object::at(object, &["metadata", "managedFields"]).and_then(Value::as_array);
    list.into_iter().flatten().map(Entry::read).collect()
}

fn write_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.set.is_empty());
    let list = entries.iter().map(Entry::write).collect();
    object::set_meta(object, "managedFields", Value::Array(list));
}

/// Returns the applied fields that concern the part the request is for.
fn wanted(resource: &Resource, applied: &Value, part: Part) -> Value {
    let mut applied = applied.clone();
    let map = object::map_of(&mut applied);
    match part {
        Part::Main if resource.status => {
            map.remove("status");
        }
        Part::Main => {}
        Part::Status => {
            let status = map.remove("status");
            map.clear();
            map.extend(status.map(|status| ("status".to_owned(), status)));
        }
    }
    applied
}

/// Builds a new object from an apply request.
pub(crate) fn create(resource: &Resource, applied: Value, manager: &Manager<'_>) -> Value {
    let set = fields::leaves(resource, &wanted(resource, &applied, manager.part));
    let mut new = applied;
    write_entries(&mut new, vec![Entry::of(manager, "Apply", set)]);
    new
}

/// Returns the object after an apply, or a failure that lists the conflicts with other managers.
pub(crate) fn apply(
    resource: &Resource,
    current: &Value,
    applied: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let wish = wanted(resource, applied, manager.part);
    let set = fields::leaves(resource, &wish);
    let mut all = entries(current);
    if all.is_empty() {
        let mut before = fields::leaves(resource, current);
        before.retain(|path| path.first() != Some(&Step::Field("status".into())));
        let first = Manager {
            name: "before-first-apply",
            api_version: manager.api_version.clone(),
            part: Part::Main,
            now: manager.now,
        };
        all.push(Entry::of(&first, "Update", before));
    }
    let conflicts = conflicts(&all, &set, current, &wish, manager);
    if !conflicts.is_empty() && !force {
        return Err(Failure::apply_conflict(&named(&all, &conflicts)));
    }
    for (at, path) in &conflicts {
        if let Some(entry) = all.get_mut(*at) {
            entry.set.remove(path);
        }
    }
    let mut new = current.clone();
    merge_root(resource, &mut new, &wish);
    if let Some(version) = object::at(applied, &["metadata", "resourceVersion"]) {
        object::set_meta(&mut new, "resourceVersion", version.clone());
    }
    let mine = all.iter().position(|entry| entry.is(manager, "Apply"));
    let before = mine.map(|at| all.remove(at));
    for path in before.iter().flat_map(|entry| entry.set.difference(&set)) {
        if !all.iter().any(|entry| entry.set.contains(path)) {
            fields::remove(&mut new, path);
        }
    }
    let mut entry = Entry::of(manager, "Apply", set);
    if let Some(before) = before.filter(|before| before.set == entry.set) {
        entry.time = before.time;
    }
    all.push(entry);
    write_entries(&mut new, all);
    Ok(new)
}

type Conflict = (usize, Path);

fn conflicts(
    all: &[Entry],
    set: &Set,
    current: &Value,
    wish: &Value,
    manager: &Manager<'_>,
) -> Vec<Conflict> {
    let mut out = Vec::new();
    for (at, entry) in all.iter().enumerate() {
        if entry.is(manager, "Apply") {
            continue;
        }
        for path in set.intersection(&entry.set) {
            // Two managers may both require a list item to exist: the item itself has no value.
            if matches!(path.last(), Some(Step::Item(_) | Step::Member(_))) {
                continue;
            }
            if fields::get(current, path) != fields::get(wish, path) {
                out.push((at, path.clone()));
            }
        }
    }
    out
}

fn named(all: &[Entry], conflicts: &[Conflict]) -> Vec<(String, String)> {
    let name = |at: &usize| {
        all.get(*at)
            .map(|entry| match entry.operation.as_str() {
                "Apply" => format!("\"{}\"", entry.name),
                _ => format!("\"{}\" using {}", entry.name, entry.api_version),
            })
            .unwrap_or_default()
    };
    conflicts.iter().map(|(at, path)| (name(at), fields::shown(path))).collect()
}

fn merge_root(resource: &Resource, target: &mut Value, wish: &Value) {
    let root = Place::root(resource);
    let map = object::map_of(target);
    for (key, value) in wish.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                let meta = object::map_mut(map, "metadata");
                for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                    if let Some(value) = value.get(field) {
                        let have = meta.entry(field).or_insert(Value::Null);
                        merge(Place::Builtin, field, have, value);
                    }
                }
            }
            _ => {
                let have = map.entry(key.clone()).or_insert(Value::Null);
                merge(root.below(key, true), key, have, value);
            }
        }
    }
}

fn merge(place: Place<'_>, field: &str, have: &mut Value, wish: &Value) {
    match (wish, &mut *have) {
        (Value::Object(wish), Value::Object(have)) if !place.is_atomic_map() => {
            for (key, value) in wish {
                let have = have.entry(key.clone()).or_insert(Value::Null);
                merge(place.below(key, false), key, have, value);
            }
        }
        (Value::Array(wish), Value::Array(have)) => {
            let kind = place.list(field);
            if kind == ListType::Atomic {
                have.clone_from(wish);
                return;
            }
            for item in wish {
                let step = fields::step(&kind, item);
                let same = |one: &&mut Value| fields::step(&kind, one) == step;
                match have.iter_mut().find(same) {
                    Some(found) => merge(place.items(), "", found, item),
                    None => have.push(item.clone()),
                }
            }
        }
        _ => *have = wish.clone(),
    }
}

/// Records the manager as owner of the fields that its update changed. Only for objects that were
/// applied before.
pub(crate) fn note_update(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    manager: &Manager<'_>,
) {
    let mut all = entries(old);
    if all.is_empty() {
        object::drop_meta(new, "managedFields");
        return;
    }
    let now = fields::leaves(resource, new);
    let changed: Set = now
        .iter()
        .filter(|path| fields::get(old, path) != fields::get(new, path))
        .cloned()
        .collect();
    for entry in &mut all {
        entry.set.retain(|path| now.contains(path) && !changed.contains(path));
    }
    if !changed.is_empty() {
        if let Some(mine) = all.iter_mut().find(|entry| entry.is(manager, "Update")) {
            mine.set.extend(changed);
            mine.time = clock::rfc3339(manager.now);
        } else {
            all.push(Entry::of(manager, "Update", changed));
        }
    }
    write_entries(new, all);
}

#[cfg(test)]
mod tests;
