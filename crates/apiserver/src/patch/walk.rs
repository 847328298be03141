//! Walks through values by their types: compares and merges them, and collects and removes fields.
//!
//! The results are those of Kubernetes' structured merge, because `managedFields` and the conflicts
//! of server-side apply show them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    fields::{Set, Step},
    place::{Place, Shape},
};
use crate::schema::ListType;

/// The differences between two values.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Paths that the new value adds or changes.
    pub(crate) changed: Set,
    /// Paths that the new value lacks.
    pub(crate) removed: Set,
}

/// The change of one value, without what is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    Same,
    Changed,
    Removed,
}

impl Comparison {
    fn attach(&mut self, step: Step, here: Here, below: Comparison) {
        if here == Here::Removed || !below.removed.is_empty() {
            self.removed.attach(step.clone(), here == Here::Removed, below.removed);
        }
        if here == Here::Changed || !below.changed.is_empty() {
            self.changed.attach(step, here == Here::Changed, below.changed);
        }
    }
}

/// Compares two objects.
pub(crate) fn compare(place: Place<'_>, old: &Value, new: &Value) -> Comparison {
    difference(place, Some(old), Some(new)).1
}

fn difference(place: Place<'_>, old: Option<&Value>, new: Option<&Value>) -> (Here, Comparison) {
    let mut below = Comparison::default();
    match common_shape(place, old, new) {
        Shape::Leaf => {
            let here = match (old, new) {
                (Some(_), None) => Here::Removed,
                _ if old == new => Here::Same,
                _ => Here::Changed,
            };
            return (here, below);
        }
        Shape::Map => {
            for key in keys(old, new) {
                let (old, new) = (entry(old, key), entry(new, key));
                let (here, inner) = difference(place.field(key).0, old, new);
                below.attach(Step::Field(key.clone()), here, inner);
            }
        }
        Shape::List(list) => {
            let (old, new) = (grouped(place, list, old), grouped(place, list, new));
            let steps: BTreeSet<&Step> = old.keys().chain(new.keys()).collect();
            for step in steps {
                let none = Vec::new();
                let [old, new] = [&old, &new].map(|side| side.get(step).unwrap_or(&none));
                let (here, inner) = match (old.as_slice(), new.as_slice()) {
                    ([_, _, ..], []) => (Here::Removed, Comparison::default()),
                    ([_, _, ..], _) | (_, [_, _, ..]) => {
                        let here = if old == new { Here::Same } else { Here::Changed };
                        (here, Comparison::default())
                    }
                    (old, new) => {
                        difference(place.items(), old.first().copied(), new.first().copied())
                    }
                };
                below.attach(step.clone(), here, inner);
            }
        }
    }
    let here = match (old, new) {
        (None, _) => Here::Changed,
        (_, None) => Here::Removed,
        (Some(_), Some(_)) => Here::Same,
    };
    (here, below)
}

/// Returns the way in which two values are compared. Two empty maps or lists, and values of different
/// types, are compared as a whole.
fn common_shape<'a>(place: Place<'a>, old: Option<&Value>, new: Option<&Value>) -> Shape<'a> {
    let given = |value: Option<&Value>| -> Option<Shape<'a>> {
        value.filter(|value| !value.is_null()).map(|value| place.shape(value))
    };
    let is_empty = |value: Option<&Value>| match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Null) | None => true,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
    };
    if is_empty(old) && is_empty(new) {
        return Shape::Leaf;
    }
    match (given(old), given(new)) {
        (Some(old), Some(new)) if old != new => Shape::Leaf,
        (Some(shape), _) | (None, Some(shape)) => shape,
        (None, None) => Shape::Leaf,
    }
}

fn entry<'v>(value: Option<&'v Value>, key: &str) -> Option<&'v Value> {
    value.and_then(|map| map.get(key))
}

/// Returns the keys of two maps, each once.
fn keys<'v>(
    old: Option<&'v Value>,
    new: Option<&'v Value>,
) -> impl Iterator<Item = &'v String> + 'v {
    let map = |value: Option<&'v Value>| value.and_then(Value::as_object);
    let (old, new) = (map(old), map(new));
    let only_old = old.into_iter().flat_map(Map::keys);
    let only_old = only_old.filter(move |key| new.is_none_or(|new| !new.contains_key(*key)));
    new.into_iter().flat_map(Map::keys).chain(only_old)
}

fn grouped<'v>(
    place: Place<'_>,
    list: &ListType,
    value: Option<&'v Value>,
) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut out: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        out.entry(place.step(list, item)).or_default().push(item);
    }
    out
}

/// Returns the paths of an object that an apply of it owns.
pub(crate) fn field_set(place: Place<'_>, value: &Value) -> Set {
    collect(place, value).1
}

/// Returns true if the value itself is owned, and the paths below it.
fn collect(place: Place<'_>, value: &Value) -> (bool, Set) {
    let mut below = Set::default();
    match place.shape(value) {
        Shape::Leaf => return (true, below),
        Shape::Map => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let (place, is_named) = place.field(key);
                let (here, inner) = collect(place, value);
                let is_empty = value.as_object().is_some_and(Map::is_empty);
                below.attach(Step::Field(key.clone()), here || is_empty || !is_named, inner);
            }
        }
        Shape::List(list) => {
            for (step, items) in grouped(place, list, Some(value)) {
                let inner = match items.as_slice() {
                    [only] => collect(place.items(), only).1,
                    _ => Set::default(),
                };
                below.attach(step, true, inner);
            }
        }
    }
    (false, below)
}

/// Merges an applied value into the current one.
pub(crate) fn merge(place: Place<'_>, have: &Value, wish: &Value) -> Value {
    match common_shape(place, Some(have), Some(wish)) {
        Shape::Leaf => wish.clone(),
        Shape::Map => {
            let both = keys(Some(have), Some(wish)).filter_map(|key| {
                let merged = match (have.get(key), wish.get(key)) {
                    (Some(have), Some(wish)) => merge(place.field(key).0, have, wish),
                    (have, wish) => wish.or(have)?.clone(),
                };
                Some((key.clone(), merged))
            });
            Value::Object(both.collect())
        }
        Shape::List(list) => Value::Array(merge_lists(place, list, have, wish)),
    }
}

/// Merges two lists: the order of the applied items is kept, and the other items stay where they are
/// among those that both lists have.
fn merge_lists(place: Place<'_>, list: &ListType, have: &Value, wish: &Value) -> Vec<Value> {
    let steps = |value: &'_ Value| -> Vec<Step> {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| place.step(list, item)).collect()
    };
    let (old, new) = (steps(have), steps(wish));
    let indexed = |steps: &'_ [Step]| -> BTreeMap<Step, usize> {
        steps.iter().cloned().enumerate().map(|(at, step)| (step, at)).collect()
    };
    let (in_old, in_new) = (indexed(&old), indexed(&new));
    let merged = |step: &Step| {
        let have = in_old.get(step).and_then(|at| have.get(*at));
        match (have, in_new.get(step).and_then(|at| wish.get(*at))) {
            (Some(have), Some(wish)) => Some(merge(place.items(), have, wish)),
            (have, wish) => wish.or(have).cloned(),
        }
    };
    let mut shared = new.iter().filter(|step| in_old.contains_key(*step)).peekable();
    let mut done: BTreeSet<&Step> = BTreeSet::new();
    let (mut left, mut right) = (old.iter().enumerate().peekable(), new.iter().peekable());
    let mut out = Vec::new();
    while left.peek().is_some() || right.peek().is_some() {
        if let (Some((_, a)), Some(b)) = (left.peek(), right.peek()) {
            if a == b {
                out.extend(merged(b));
                done.insert(*b);
                left.next();
                right.next();
                shared.next();
                continue;
            }
            if in_new.contains_key(*a) && shared.peek().is_some_and(|next| next != a) {
                left.next();
                continue;
            }
        }
        if let Some((at, step)) = left.peek().copied() {
            if !in_new.contains_key(step) {
                out.extend(have.get(at).cloned());
                left.next();
                continue;
            }
            if done.contains(step) {
                left.next();
            }
        }
        if let Some(step) = right.next() {
            out.extend(merged(step));
            done.insert(step);
            if shared.peek() == Some(&step) {
                shared.next();
            }
        }
    }
    out
}

/// Returns the value without these paths and what is below them. A value that loses everything becomes
/// null.
pub(crate) fn remove(place: Place<'_>, value: &Value, gone: &Set) -> Value {
    match place.shape(value) {
        Shape::Leaf if value.is_object() || value.is_array() => Value::Null,
        Shape::Leaf => value.clone(),
        Shape::Map => {
            let kept = value.as_object().into_iter().flatten().filter_map(|(key, below)| {
                let step = Step::Field(key.clone());
                if gone.members.contains(&step) {
                    return None;
                }
                let left = match gone.below.get(&step) {
                    Some(gone) => remove(place.field(key).0, below, gone),
                    None => below.clone(),
                };
                Some((key.clone(), left))
            });
            let kept: Map<String, Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        Shape::List(list) => {
            let items = value.as_array().into_iter().flatten().filter_map(|item| {
                let step = place.step(list, item);
                if gone.members.contains(&step) {
                    return None;
                }
                Some(match gone.below.get(&step) {
                    Some(gone) => remove(place.items(), item, gone),
                    None => item.clone(),
                })
            });
            let items: Vec<Value> = items.collect();
            if items.is_empty() { Value::Null } else { Value::Array(items) }
        }
    }
}

/// Adds the fields on the way to the paths of a set, where the type names them.
pub(crate) fn with_parents(place: Place<'_>, set: &Set) -> Set {
    let mut out = Set { members: set.members.clone(), below: BTreeMap::new() };
    for (step, below) in &set.below {
        let inner = match step {
            Step::Field(key) => {
                let (place, is_named) = place.field(key);
                if is_named {
                    out.members.insert(step.clone());
                }
                place
            }
            Step::Item(_) | Step::Member(_) => place.items(),
        };
        out.below.insert(step.clone(), with_parents(inner, below));
    }
    out
}
