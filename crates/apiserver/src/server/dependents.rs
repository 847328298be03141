//! Cascading deletes: the objects of a deleted namespace, of a deleted definition, and those that a
//! deleted object owns.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use crate::{
    object,
    resource::{Form, Resource, builtin, crd},
    store::{Key, Object, Put, Write, WriteError, owners::owners},
};

/// The treatment of objects that a deleted object owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependents {
    Delete,
    Release,
}

impl Dependents {
    /// Returns the treatment that the options of a delete request ask for.
    pub(super) fn requested(options: &Value) -> Self {
        let release = object::text(options, &["propagationPolicy"]) == "Orphan"
            || options.get("orphanDependents").and_then(Value::as_bool) == Some(true);
        if release { Self::Release } else { Self::Delete }
    }
}

impl Server {
    /// Deletes or releases the objects that depend on a removed object.
    pub(super) async fn clean_up(&self, resource: &Resource, gone: &Value, treatment: Dependents) {
        if resource.namespaced {
            self.finish_namespace(object::namespace(gone)).await;
        }
        if &*resource.collection == builtin::CRDS {
            let (group, plural) = crd::identity(gone);
            let defined =
                |other: &Resource| other.custom && other.group == group && other.plural == plural;
            self.delete_all(None, defined).await;
            self.register(gone, false);
        }
        // Events own nothing, and there are many of them.
        if &*resource.collection != "events" {
            self.release_owned(object::meta(gone, "uid"), treatment).await;
        }
    }

    /// Deletes the content of a namespace that is being deleted, then the namespace.
    pub(super) async fn empty_namespace(&self, namespace: &str) {
        Box::pin(self.delete_all(Some(namespace), |other| other.namespaced)).await;
        self.finish_namespace(namespace).await;
    }

    /// Removes a namespace that is being deleted, if it is empty and no finalizer holds it.
    async fn finish_namespace(&self, namespace: &str) {
        let key = Key::new("", namespace);
        let Some(found) = self.store.get(builtin::NAMESPACES, &key) else { return };
        let finalizers = object::at(&found.value, &["spec", "finalizers"]);
        let is_held = finalizers
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|one| one != "kubernetes"));
        let is_held = is_held || object::finalizers(&found.value).next().is_some();
        if !object::is_deleting(&found.value) || is_held {
            return;
        }
        let served = self.catalog.served();
        let has_objects = |other: &Resource| {
            other.namespaced
                && !self.store.list(&other.collection, Some(namespace), None).0.is_empty()
        };
        if served.values().any(|other| has_objects(other)) {
            return;
        }
        let (collection, put) = (builtin::NAMESPACES.into(), Put::Remove(found.value.clone()));
        let write = Write { collection, key, expect: Some(found.version), put };
        // A conflict is another writer, whose change finishes the namespace.
        let _ = self.store.commit(write).await;
    }

    async fn delete_all(&self, namespace: Option<&str>, concerned: impl Fn(&Resource) -> bool) {
        for other in self.catalog.served().values().filter(|other| concerned(other)) {
            for object in self.store.list(&other.collection, namespace, None).0 {
                // An object that another request removed meanwhile is as good as deleted.
                let _ = self.remove(other, &key(&object.value), &json!({}), false).await;
            }
        }
    }

    async fn release_owned(&self, owner: &str, treatment: Dependents) {
        let served = self.catalog.served();
        for (collection, place) in self.store.dependents(owner) {
            let holds =
                |other: &&Arc<Resource>| other.form == Form::Same && other.collection == collection;
            let (Some(other), Some(object)) =
                (served.values().find(holds), self.store.get(&collection, &place))
            else {
                continue;
            };
            let shared = owners(&object.value).any(|one| one != owner);
            if shared || treatment == Dependents::Release {
                self.remove_owner(other, &object, owner).await;
            } else {
                let _ = self.remove(other, &place, &json!({}), false).await;
            }
        }
    }

    /// Removes one owner reference from an object.
    async fn remove_owner(&self, resource: &Resource, object: &Arc<Object>, owner: &str) {
        let mut object = Arc::clone(object);
        for _ in 0..8 {
            let mut value = object.value.clone();
            let references = object::meta_mut(&mut value).get_mut("ownerReferences");
            if let Some(list) = references.and_then(Value::as_array_mut) {
                list.retain(|one| object::text(one, &["uid"]) != owner);
            }
            let (key, collection) = (key(&value), Arc::clone(&resource.collection));
            let (expect, put) = (Some(object.version), Put::Keep(value));
            let write = Write { collection, key: key.clone(), expect, put };
            match self.store.commit(write).await {
                Err(WriteError::Stale) => match self.store.get(&resource.collection, &key) {
                    Some(now) => object = now,
                    None => return,
                },
                Ok(_) | Err(WriteError::Disk(_)) => return,
            }
        }
    }
}

fn key(object: &Value) -> Key {
    Key::new(object::namespace(object), object::name(object))
}
