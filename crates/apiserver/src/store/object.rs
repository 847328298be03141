//! Objects as the store keeps them: their JSON text, and the fields that most requests read.
//!
//! A tree of an object needs several times the memory of its text, so there is one only while a
//! request reads or writes the object.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

use super::Key;
use crate::object;

/// Collections whose objects the server reads to answer requests for others: few objects, read
/// often. Their trees are kept.
const READ_BY_SERVER: [&str; 9] = [
    "namespaces",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "poddisruptionbudgets.policy",
];

/// Separates keys and values in a packed list. No label, finalizer or UID contains it.
const SEPARATOR: char = '\0';

/// An object at one version.
#[derive(Debug)]
pub(crate) struct Object {
    /// JSON text, which all readers share.
    pub(crate) bytes: Bytes,
    pub(crate) version: u64,
    pub(crate) head: Head,
    tree: Option<Value>,
}

impl Object {
    /// Builds an object of a collection from its tree and its text.
    pub(crate) fn new(collection: &str, value: Value, text: Vec<u8>, version: u64) -> Self {
        let head = Head::of(&value);
        // The text stays in memory for as long as the object: without spare capacity.
        let bytes = Bytes::from(text.into_boxed_slice());
        let tree = READ_BY_SERVER.contains(&collection).then_some(value);
        Self { bytes, version, head, tree }
    }

    /// Returns the key of the object in its collection.
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.head.namespace, &self.head.name)
    }

    /// Returns the object as a tree.
    pub(crate) fn value(&self) -> Cow<'_, Value> {
        if let Some(tree) = &self.tree {
            return Cow::Borrowed(tree);
        }
        let read = serde_json::from_slice(&self.bytes);
        Cow::Owned(read.expect("the store encoded this text"))
    }

    /// Returns the object as a tree of its own.
    pub(crate) fn whole(&self) -> Value {
        self.value().into_owned()
    }
}

/// The fields of an object that selectors, deletions and authentication read.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    /// `spec.nodeName`.
    pub(crate) node: Box<str>,
    /// `status.phase`.
    pub(crate) phase: Box<str>,
    pub(crate) is_deleting: bool,
    /// Keys and values in turn.
    labels: Box<str>,
    finalizers: Box<str>,
    /// UIDs of the owners.
    owners: Box<str>,
}

impl Head {
    pub(super) fn of(value: &Value) -> Self {
        let text = |path: &[&str]| Box::from(object::text(value, path));
        let labels = object::at(value, &["metadata", "labels"]).and_then(Value::as_object);
        let pairs = labels.into_iter().flatten();
        let pairs = pairs.filter_map(|(key, value)| Some([key.as_str(), value.as_str()?]));
        Self {
            namespace: text(&["metadata", "namespace"]),
            name: text(&["metadata", "name"]),
            uid: text(&["metadata", "uid"]),
            node: text(&["spec", "nodeName"]),
            phase: text(&["status", "phase"]),
            is_deleting: object::is_deleting(value),
            labels: packed(pairs.flatten()),
            finalizers: packed(object::finalizers(value)),
            owners: packed(super::owners::owners(value)),
        }
    }

    /// Returns the value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let mut words = unpacked(&self.labels);
        while let (Some(found), Some(value)) = (words.next(), words.next()) {
            if found == key {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        unpacked(&self.finalizers)
    }

    /// Returns the UIDs of the owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &str> {
        unpacked(&self.owners)
    }
}

fn packed<'a>(words: impl Iterator<Item = &'a str>) -> Box<str> {
    let mut out = String::new();
    for word in words {
        out.push_str(word);
        out.push(SEPARATOR);
    }
    out.into_boxed_str()
}

fn unpacked(text: &str) -> impl Iterator<Item = &str> {
    text.split_terminator(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_head_has_what_selectors_and_deletions_read() {
        let value = json!({"metadata": {"name": "n", "namespace": "s", "uid": "u",
            "labels": {"a": "b", "empty": "", "z": "y"}, "finalizers": ["f/g", "h"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "o"}, {"uid": "p"}]},
            "spec": {"nodeName": "node"}, "status": {"phase": "Running"}});
        let text = serde_json::to_vec(&value).unwrap();
        let object = Object::new("pods", value.clone(), text, 1);
        let head = &object.head;
        let found = [&head.name, &head.namespace, &head.uid, &head.node, &head.phase];
        assert_eq!(found.map(|it| &**it), ["n", "s", "u", "node", "Running"]);
        assert!(head.is_deleting);
        let labels = ["a", "empty", "z", "b", "y"].map(|key| head.label(key));
        assert_eq!(labels, [Some("b"), Some(""), Some("y"), None, None]);
        assert_eq!(head.finalizers().collect::<Vec<_>>(), ["f/g", "h"]);
        assert_eq!(head.owners().collect::<Vec<_>>(), ["o", "p"]);
        assert_eq!(*object.value(), value);
    }
}
