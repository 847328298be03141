//! Server-side apply: merges an applied object into the stored one and detects conflicts.

use std::sync::Arc;

use serde_json::Value;

use super::{
    fields::{self, Path, Set},
    managed::{self, Entry, Manager, Operation},
    place::Place,
    walk,
};
use crate::{failure::Failure, object, resource::Resource};

/// Manager of the fields that an object had before its owners were recorded.
const BEFORE: &str = "before-first-apply";

/// Manager of `kubectl apply --server-side`, which takes over what `kubectl apply` applied before.
const KUBECTL: &str = "kubectl";

/// Annotation with the object that `kubectl apply` applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A conflict: the manager that owns the field, as messages name it, and the field.
type Conflict = (Arc<str>, Path);

/// Builds a new object from an apply request.
pub(crate) fn create(resource: &Resource, applied: Value, manager: &Manager<'_>) -> Value {
    let set = owned(resource, &applied, manager);
    let mut new = applied;
    managed::write(&mut new, vec![Entry::of(manager, Operation::Apply, set)]);
    new
}

/// Returns the fields that an apply of this object owns.
fn owned(resource: &Resource, applied: &Value, manager: &Manager<'_>) -> Set {
    let mut set = walk::field_set(Place::root(resource), applied);
    managed::filter(resource, manager, &mut set);
    managed::strip(&mut set);
    set
}

/// Returns the object after an apply, or a failure that lists the conflicts with other managers.
pub(crate) fn apply(
    resource: &Resource,
    current: &Value,
    applied: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let live = managed::bare(current);
    let mut entries = managed::entries(current);
    if entries.is_empty() {
        let first = Manager { name: BEFORE, ..manager.clone() };
        let mut before = live.clone().into_owned();
        managed::created(resource, &mut before, &first);
        entries = managed::entries(&before);
    }
    let mut new = match merged(resource, &live, applied, entries.clone(), manager, force) {
        Ok(new) => new,
        Err(conflicts) => {
            let allowed = allowed(resource, &live, manager);
            let left: Vec<Conflict> =
                conflicts.into_iter().filter(|(_, path)| !allowed.contains(path)).collect();
            if !left.is_empty() {
                return Err(Failure::apply_conflict(&named(&left)));
            }
            merged(resource, &live, applied, entries, manager, true).unwrap_or_default()
        }
    };
    if manager.name == KUBECTL {
        renew_last_applied(&mut new, applied);
    }
    if let Some(version) = object::at(applied, &["metadata", "resourceVersion"]) {
        object::set_meta(&mut new, "resourceVersion", version.clone());
    }
    Ok(new)
}

/// Merges the applied object and records the owners, or returns the conflicts.
fn merged(
    resource: &Resource,
    live: &Value,
    applied: &Value,
    mut entries: Vec<Entry>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, Vec<Conflict>> {
    let place = Place::root(resource);
    managed::keep_readable(&mut entries, manager);
    let mine = entries.iter().position(|entry| entry.is(manager, Operation::Apply));
    let last = mine.map(|at| entries.remove(at));
    let mut entry = Entry::of(manager, Operation::Apply, owned(resource, applied, manager));
    let mut new = walk::merge(place, live, applied);
    if let Some(last) = &last {
        let everyone = entries.iter().chain([&entry]);
        new = pruned(place, &new, &last.set, everyone);
    }
    let found = managed::compare(resource, manager, live, &new);
    let conflicts: Vec<Conflict> = entries
        .iter()
        .flat_map(|entry| {
            let owner: Arc<str> = owner(entry).into();
            let paths = entry.set.intersection(&found.changed).paths();
            paths.into_iter().map(move |path| (Arc::clone(&owner), path))
        })
        .collect();
    if !conflicts.is_empty() && !force {
        return Err(conflicts);
    }
    for entry in &mut entries {
        entry.set.subtract(&found.changed);
        entry.set.subtract(&found.removed);
    }
    // Compat: an apply that changes nothing keeps its time, and its first one has none.
    if new == *live {
        entry.time = last.map(|last| last.time).unwrap_or_default();
    }
    entries.push(entry);
    managed::write(&mut new, entries);
    Ok(new)
}

/// Removes the fields that the manager applied last time, unless a manager owns them now.
fn pruned<'a>(
    place: Place<'_>,
    merged: &Value,
    last: &Set,
    owners: impl Iterator<Item = &'a Entry>,
) -> Value {
    let last = walk::with_parents(place, last);
    let set_of = |value: &Value| walk::with_parents(place, &walk::field_set(place, value));
    let all = set_of(merged);
    let mut gone = all.clone();
    gone.subtract(&set_of(&walk::remove(place, merged, &last)));
    for owner in owners {
        gone.subtract(&walk::with_parents(place, &owner.set));
    }
    let left = walk::remove(place, merged, &gone);
    let mut gone = all;
    gone.subtract(&set_of(&left));
    walk::remove(place, merged, &gone.intersection(&last))
}

/// Returns the fields of the last `kubectl apply` whose values have not changed since.
fn allowed(resource: &Resource, live: &Value, manager: &Manager<'_>) -> Set {
    let text = object::text(live, &["metadata", "annotations", LAST_APPLIED]);
    let Ok(last) = serde_json::from_str::<Value>(text) else { return Set::default() };
    if manager.name != KUBECTL || object::text(&last, &["apiVersion"]) != resource.api_version() {
        return Set::default();
    }
    let place = Place::root(resource);
    let mut set = walk::field_set(place, &last);
    let found = walk::compare(place, &last, live);
    set.subtract(&found.changed);
    set.subtract(&found.removed);
    set
}

/// Updates the annotation of `kubectl apply`, so that it can be used again.
fn renew_last_applied(new: &mut Value, applied: &Value) {
    if object::text(new, &["metadata", "annotations", LAST_APPLIED]).is_empty() {
        return;
    }
    let mut applied = applied.clone();
    let annotations = object::meta_mut(&mut applied).get_mut("annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    object::map_mut(object::meta_mut(new), "annotations")
        .insert(LAST_APPLIED.into(), format!("{applied}\n").into());
}

/// Returns the manager of an entry, as messages name it.
fn owner(entry: &Entry) -> String {
    let mut name = format!("\"{}\"", entry.name);
    if !entry.subresource.is_empty() {
        name = format!("{name} with subresource \"{}\"", entry.subresource);
    }
    match entry.operation {
        Operation::Apply => name,
        Operation::Update => format!("{name} using {}", entry.api_version),
    }
}

/// Returns manager and field of each conflict, as messages name them.
fn named(conflicts: &[Conflict]) -> Vec<(String, String)> {
    conflicts.iter().map(|(owner, path)| (owner.to_string(), fields::shown(path))).collect()
}

#[cfg(test)]
mod tests;
