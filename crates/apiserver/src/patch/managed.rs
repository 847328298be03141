//! `managedFields`: the owners of the fields of an object.

use std::{borrow::Cow, collections::HashMap};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    fields::{self, Set},
    place::Place,
    walk::{self, Comparison},
};
use crate::{admit::Part, clock, form, object, resource::Resource};

const FIELD: &str = "managedFields";

/// Number of entries of updates that an object keeps. The oldest are merged.
const MAX_UPDATES: usize = 10;

/// Manager of the merged entries.
const MERGED: &str = "ancient-changes";

/// Metadata that no manager owns.
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", FIELD],
    &["metadata", "resourceVersion"],
];

/// A field manager, with the context of its request.
#[derive(Clone, Debug)]
pub(crate) struct Manager<'a> {
    pub(crate) name: &'a str,
    pub(crate) api_version: String,
    pub(crate) subresource: &'static str,
    pub(crate) part: Part,
    pub(crate) now: Timestamp,
}

impl Manager<'_> {
    /// Returns the time of its entries. Compat: those of the scale have none.
    fn time(&self) -> String {
        if self.subresource == "scale" { String::new() } else { clock::rfc3339(self.now) }
    }
}

/// The operation by which a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    /// Time of the last change, empty if there was none.
    pub(crate) time: String,
    pub(crate) set: Set,
}

impl Entry {
    fn read(value: &Value) -> Option<Self> {
        let text = |key| object::text(value, &[key]).to_owned();
        let operation = match object::text(value, &["operation"]) {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("fieldsType") != "FieldsV1" || text("apiVersion").is_empty() {
            return None;
        }
        Some(Self {
            name: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            set: value.get("fieldsV1").map(fields::decode).unwrap_or_default(),
        })
    }

    fn write(&self) -> Value {
        let mut value = json!({"manager": self.name, "operation": self.operation.name(),
            "apiVersion": self.api_version, "fieldsType": "FieldsV1",
            "fieldsV1": fields::encode(&self.set)});
        let map = object::map_of(&mut value);
        for (key, text) in [("time", &self.time), ("subresource", &self.subresource)] {
            if !text.is_empty() {
                map.insert(key.into(), text.clone().into());
            }
        }
        value
    }

    /// Returns true if the entry is the manager's, for this operation.
    pub(crate) fn is(&self, manager: &Manager<'_>, operation: Operation) -> bool {
        self.name == manager.name
            && self.operation == operation
            && self.subresource == manager.subresource
            && (operation == Operation::Apply || self.api_version == manager.api_version)
    }

    /// Builds the entry of a manager.
    pub(crate) fn of(manager: &Manager<'_>, operation: Operation, set: Set) -> Self {
        Self {
            name: manager.name.to_owned(),
            operation,
            api_version: manager.api_version.clone(),
            subresource: manager.subresource.to_owned(),
            time: manager.time(),
            set,
        }
    }

    /// Returns the order of entries in an object.
    fn order(&self) -> (Operation, &str, &str, &str, &str) {
        (self.operation, &self.time, &self.name, &self.api_version, &self.subresource)
    }
}

/// Returns the entries of an object, none if one of them is malformed.
pub(crate) fn entries(object: &Value) -> Vec<Entry> {
    let list = object::at(object, &["metadata", FIELD]).and_then(Value::as_array);
    let read: Option<Vec<Entry>> = list.into_iter().flatten().map(Entry::read).collect();
    read.unwrap_or_default()
}

/// Writes the entries into an object.
pub(crate) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.set.is_empty());
    if entries.is_empty() {
        object::drop_meta(object, FIELD);
        return;
    }
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    let list = entries.iter().map(Entry::write).collect();
    object::set_meta(object, FIELD, Value::Array(list));
}

/// Returns the entries that an update starts from: those of its body, if it has any, else those of
/// the stored object. An empty list in the body resets them.
pub(crate) fn given(old: &Value, new: &Value, part: Part) -> Vec<Entry> {
    let list = object::at(new, &["metadata", FIELD]).and_then(Value::as_array);
    let Some(list) = list.filter(|_| part == Part::Main) else { return entries(old) };
    let is_empty = |one: &Value| one.as_object().is_some_and(serde_json::Map::is_empty);
    if list.is_empty() || (list.len() == 1 && list.first().is_some_and(is_empty)) {
        return Vec::new();
    }
    let found = entries(new);
    if found.is_empty() { entries(old) } else { found }
}

/// Removes what requests for this part do not change.
pub(super) fn filter(resource: &Resource, manager: &Manager<'_>, set: &mut Set) {
    match manager.part {
        Part::Main => {
            if resource.status {
                set.cut(&["status"]);
            }
            match resource.kind.as_str() {
                _ if resource.custom => {}
                // The spec of a certificate request never changes.
                "CertificateSigningRequest" => set.cut(&["spec"]),
                // The server sets them, by the class of the pod.
                "Pod" => {
                    set.cut(&["spec", "priority"]);
                    set.cut(&["spec", "preemptionPolicy"]);
                }
                _ => {}
            }
        }
        Part::Status => {
            set.cut(&["spec"]);
            match resource.kind.as_str() {
                _ if resource.custom => set.cut(&["metadata"]),
                "Deployment" => set.cut(&["metadata", "labels"]),
                // Compat: only the certificate is owned through the status.
                "CertificateSigningRequest" if manager.subresource == "approval" => {
                    set.cut(&["status", "certificate"]);
                }
                "CertificateSigningRequest" => set.cut(&["status", "conditions"]),
                "Pod" => {
                    set.cut(&["metadata", "deletionTimestamp"]);
                    set.cut(&["metadata", "ownerReferences"]);
                }
                _ => {}
            }
        }
    }
}

/// Removes the metadata that no manager owns.
pub(super) fn strip(set: &mut Set) {
    for path in UNOWNED {
        set.strip(path);
    }
}

/// Compares two objects, as far as requests for this part may change them.
pub(super) fn compare(
    resource: &Resource,
    manager: &Manager<'_>,
    old: &Value,
    new: &Value,
) -> Comparison {
    let mut found = walk::compare(Place::root(resource), old, new);
    for set in [&mut found.changed, &mut found.removed] {
        filter(resource, manager, set);
        for (core, other) in form::renamed(resource) {
            set.rename(core, other);
        }
    }
    found
}

/// Records the owner of a new object's fields.
pub(crate) fn created(resource: &Resource, new: &mut Value, manager: &Manager<'_>) {
    let entries = entries(new);
    record(resource, &Place::root(resource).empty(), new, entries, manager);
}

/// Records the manager as owner of the fields that its update changed.
///
/// An object without entries stays without them until its first apply.
pub(crate) fn updated(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    entries: Vec<Entry>,
    manager: &Manager<'_>,
) {
    if entries.is_empty() {
        object::drop_meta(new, FIELD);
    } else {
        record(resource, old, new, entries, manager);
    }
}

/// Moves the fields that differ between two objects to the manager.
fn record(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    mut entries: Vec<Entry>,
    manager: &Manager<'_>,
) {
    object::drop_meta(new, FIELD);
    keep_readable(&mut entries, manager);
    let mut found = compare(resource, manager, old, new);
    for entry in &mut entries {
        entry.set.subtract(&found.changed);
        entry.set.subtract(&found.removed);
    }
    strip(&mut found.changed);
    if !found.changed.is_empty() {
        match entries.iter_mut().find(|entry| entry.is(manager, Operation::Update)) {
            Some(mine) => {
                mine.set.extend(found.changed);
                mine.time = manager.time();
            }
            None => entries.push(Entry::of(manager, Operation::Update, found.changed)),
        }
    }
    entries.retain(|entry| !entry.set.is_empty());
    limit(&mut entries);
    write(new, entries);
}

/// Drops the entries of other groups. Compat: their field names are not known, as those of an event that
/// was written through the other group.
pub(super) fn keep_readable(entries: &mut Vec<Entry>, manager: &Manager<'_>) {
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    let own = group(&manager.api_version);
    entries.retain(|entry| group(&entry.api_version) == own);
}

/// Merges the oldest entries of updates until few enough are left.
fn limit(entries: &mut Vec<Entry>) {
    let is_update = |entry: &Entry| entry.operation == Operation::Update;
    let mut surplus = entries.iter().filter(|it| is_update(it)).count().saturating_sub(MAX_UPDATES);
    if surplus == 0 {
        return;
    }
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    // The entries that the later ones of their version are merged into.
    let mut buckets: HashMap<String, usize> = HashMap::new();
    let mut left: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        if surplus == 0 || !is_update(&entry) {
            left.push(entry);
            continue;
        }
        let bucket = buckets.get(&entry.api_version).and_then(|at| left.get_mut(*at));
        if let Some(bucket) = bucket {
            MERGED.clone_into(&mut bucket.name);
            bucket.subresource = String::new();
            bucket.set.extend(entry.set);
            bucket.time = entry.time;
            surplus -= 1;
        } else {
            buckets.insert(entry.api_version.clone(), left.len());
            left.push(entry);
        }
    }
    *entries = left;
}

/// Keeps the times of the entries, if nothing but them would change.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let Some(had) = object::at(old, &["metadata", FIELD]) else { return };
    if is_same_but_times(old, new) {
        object::set_meta(new, FIELD, had.clone());
    }
}

fn is_same_but_times(old: &Value, new: &Value) -> bool {
    let owners = [old, new].map(|it| object::at(it, &["metadata", FIELD])?.as_array());
    let [Some(had), Some(now)] = owners else { return false };
    let [Some(before), Some(after)] = [old, new].map(|it| it.get("metadata")) else {
        return false;
    };
    had.len() == now.len()
        && had.iter().zip(now).all(|(had, now)| is_equal(had, now, |key| key == "time"))
        && is_equal(old, new, |key| key == "metadata")
        && is_equal(before, after, |key| key == FIELD)
}

/// Returns true if two maps are equal but for some keys.
fn is_equal(a: &Value, b: &Value, is_ignored: impl Fn(&str) -> bool) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let is_kept = |entry: &(&String, &Value)| !is_ignored(entry.0);
    a.iter().filter(is_kept).eq(b.iter().filter(is_kept))
}

/// Returns an object without its entries.
pub(super) fn bare(object: &Value) -> Cow<'_, Value> {
    if object::at(object, &["metadata", FIELD]).is_none() {
        return Cow::Borrowed(object);
    }
    let mut bare = object.clone();
    object::drop_meta(&mut bare, FIELD);
    Cow::Owned(bare)
}

#[cfg(test)]
mod tests;
