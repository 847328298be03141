//! An index of objects by the UIDs of their owners.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{Head, Key};
use crate::object;

/// The place of an object: its collection and its key.
pub(crate) type Place = (Arc<str>, Key);

/// The index.
#[derive(Debug, Default)]
pub(super) struct Owners {
    dependents: HashMap<String, BTreeSet<Place>>,
}

impl Owners {
    /// Returns the places of the objects that name this UID as an owner.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Replaces the entries of an object.
    pub(super) fn replace(&mut self, place: &Place, before: Option<&Head>, after: Option<&Head>) {
        for uid in before.into_iter().flat_map(Head::owners) {
            if let Some(places) = self.dependents.get_mut(uid) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        for uid in after.into_iter().flat_map(Head::owners) {
            self.dependents.entry(uid.to_owned()).or_default().insert(place.clone());
        }
    }
}

/// Returns the UIDs of an object's owners.
pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let references = object::at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    references.into_iter().flatten().map(|one| object::text(one, &["uid"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_found_by_their_owners() {
        let mut index = Owners::default();
        let place: Place = ("pods".into(), Key::new("a", "b"));
        let owned = |owner: &str| {
            Head::of(&json!({"metadata": {"uid": "me", "ownerReferences": [{"uid": owner}]}}))
        };
        index.replace(&place, None, Some(&owned("x")));
        assert_eq!(index.dependents("x"), vec![place.clone()]);
        index.replace(&place, Some(&owned("x")), Some(&owned("y")));
        assert_eq!((index.dependents("x"), index.dependents("y")), (vec![], vec![place.clone()]));
        index.replace(&place, Some(&owned("y")), None);
        assert_eq!(index.dependents("y"), vec![]);
    }
}
