//! Field sets, as `managedFields` stores them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Map, Value};

/// One step of a path into an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// An entry of a map.
    Field(String),
    /// A list item, by its key fields as JSON.
    Item(String),
    /// A member of a set, as JSON.
    Member(String),
}

impl Step {
    fn encode(&self) -> String {
        match self {
            Self::Field(key) => format!("f:{key}"),
            Self::Item(text) => format!("k:{text}"),
            Self::Member(text) => format!("v:{text}"),
        }
    }

    fn decode(key: &str) -> Option<Self> {
        match key.split_once(':')? {
            ("f", name) => Some(Self::Field(name.to_owned())),
            ("k", text) => Some(Self::Item(text.to_owned())),
            ("v", text) => Some(Self::Member(text.to_owned())),
            _ => None,
        }
    }
}

/// A path into an object.
pub(crate) type Path = Vec<Step>;

/// A set of paths, as a tree.
///
/// Invariant: no set below is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// Last steps of the paths that end here.
    pub(super) members: BTreeSet<Step>,
    /// The longer paths, by their next step.
    pub(super) below: BTreeMap<Step, Set>,
}

impl Set {
    /// Returns true if the set has no path.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.below.is_empty()
    }

    /// Adds a path of one step, if `here`, and the paths below it.
    pub(super) fn attach(&mut self, step: Step, here: bool, below: Set) {
        if !below.is_empty() {
            self.below.entry(step.clone()).or_default().extend(below);
        }
        if here {
            self.members.insert(step);
        }
    }

    /// Adds the paths of another set.
    pub(crate) fn extend(&mut self, other: Set) {
        self.members.extend(other.members);
        for (step, below) in other.below {
            self.below.entry(step).or_default().extend(below);
        }
    }

    /// Removes the paths of another set.
    pub(crate) fn subtract(&mut self, other: &Set) {
        self.members.retain(|step| !other.members.contains(step));
        self.below.retain(|step, below| {
            if let Some(gone) = other.below.get(step) {
                below.subtract(gone);
            }
            !below.is_empty()
        });
    }

    /// Returns the paths that both sets have.
    pub(crate) fn intersection(&self, other: &Set) -> Set {
        let members = self.members.intersection(&other.members).cloned().collect();
        let below = self.below.iter().filter_map(|(step, below)| {
            let both = below.intersection(other.below.get(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        });
        Set { members, below: below.collect() }
    }

    /// Removes the path of these map keys and all paths below it.
    pub(crate) fn cut(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let step = Step::Field((*first).to_owned());
        if rest.is_empty() {
            self.members.remove(&step);
            self.below.remove(&step);
            return;
        }
        if let Some(below) = self.below.get_mut(&step) {
            below.cut(rest);
            if below.is_empty() {
                self.below.remove(&step);
            }
        }
    }

    /// Removes the path of these map keys alone.
    pub(crate) fn strip(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let step = Step::Field((*first).to_owned());
        if rest.is_empty() {
            self.members.remove(&step);
        } else if let Some(below) = self.below.get_mut(&step) {
            below.strip(rest);
            if below.is_empty() {
                self.below.remove(&step);
            }
        }
    }

    /// Renames a field at the root.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let [old, new] = [from, to].map(|name| Step::Field(name.to_owned()));
        let here = self.members.remove(&old);
        let below = self.below.remove(&old).unwrap_or_default();
        self.attach(new, here, below);
    }

    /// Returns all paths: those that end at a step before the longer ones.
    pub(crate) fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, path: &mut Path, out: &mut Vec<Path>) {
        for step in &self.members {
            out.push(path.iter().chain([step]).cloned().collect());
        }
        for (step, below) in &self.below {
            path.push(step.clone());
            below.collect(path, out);
            path.pop();
        }
    }

    /// Returns true if the set has this path.
    pub(crate) fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.below.get(first).is_some_and(|below| below.contains(rest)),
        }
    }
}

/// Formats a path as conflict messages do: `.spec.list[name="a"].field`.
pub(crate) fn shown(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Field(key) => {
                out.push('.');
                out.push_str(key);
            }
            Step::Member(text) => {
                let _ = write!(out, "[={text}]");
            }
            Step::Item(text) => {
                let keys: Value = serde_json::from_str(text).unwrap_or_default();
                let keys = keys.as_object().cloned().unwrap_or_default();
                let keys: Vec<String> =
                    keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let _ = write!(out, "[{}]", keys.join(","));
            }
        }
    }
    out
}

/// Encodes a set in the `FieldsV1` format.
pub(crate) fn encode(set: &Set) -> Value {
    let mut out = Map::new();
    for step in &set.members {
        out.insert(step.encode(), Value::Object(Map::new()));
    }
    for (step, below) in &set.below {
        let mut inner = encode(below);
        if let (true, Some(map)) = (set.members.contains(step), inner.as_object_mut()) {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        out.insert(step.encode(), inner);
    }
    Value::Object(out)
}

/// Decodes the `FieldsV1` format.
pub(crate) fn decode(fields: &Value) -> Set {
    let mut out = Set::default();
    for (key, below) in fields.as_object().into_iter().flatten() {
        let Some(step) = Step::decode(key) else { continue };
        let is_end = below.as_object().is_none_or(|map| map.is_empty() || map.contains_key("."));
        out.attach(step, is_end, decode(below));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: &Value) -> Set {
        decode(fields)
    }

    #[test]
    fn a_set_survives_encoding_and_decoding() {
        let fields = json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers":
            {"v:\"x/y\"": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"c\"}":
            {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}}}});
        assert_eq!(encode(&set(&fields)), fields);
    }

    #[test]
    fn sets_are_subtracted_and_intersected_by_exact_paths() {
        let both = set(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let parent = set(&json!({"f:a": {}}));
        let mut left = both.clone();
        left.subtract(&parent);
        assert_eq!(encode(&left), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        assert_eq!(both.intersection(&parent), parent);
        let mut cut = both;
        cut.cut(&["a"]);
        assert_eq!(encode(&cut), json!({"f:c": {}}));
    }

    #[test]
    fn paths_are_shown_as_in_conflicts() {
        let fields = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}});
        let paths: Vec<String> = set(&fields).paths().iter().map(|path| shown(path)).collect();
        assert_eq!(paths, [".spec.containers[name=\"c\"].image"]);
    }
}
