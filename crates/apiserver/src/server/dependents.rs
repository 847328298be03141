//! Cascading deletes: the objects of a deleted namespace, of a deleted definition, and those that a
//! deleted object owns.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use crate::{
    object,
    resource::{Form, Resource, builtin, crd},
    store::{Key, Object, Put, Write, WriteError},
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
        if &*resource.collection == builtin::NAMESPACES {
            let namespace = object::name(gone);
            self.delete_all(Some(namespace), |other| other.namespaced).await;
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

    async fn delete_all(&self, namespace: Option<&str>, concerned: impl Fn(&Resource) -> bool) {
        for other in self.catalog.served().values().filter(|other| concerned(other)) {
            for object in self.store.list(&other.collection, namespace, None).0 {
                // An object that another request removed meanwhile is as good as deleted.
                let _ = self.remove(other, &key(&object.value), &json!({}), false).await;
            }
        }
    }

    async fn release_owned(&self, owner: &str, treatment: Dependents) {
        for other in self.catalog.served().values().filter(|other| other.form == Form::Same) {
            for object in self.store.list(&other.collection, None, None).0 {
                if !owners(&object.value).any(|one| one == owner) {
                    continue;
                }
                let shared = owners(&object.value).any(|one| one != owner);
                if shared || treatment == Dependents::Release {
                    self.remove_owner(other, &object, owner).await;
                } else {
                    let _ = self.remove(other, &key(&object.value), &json!({}), false).await;
                }
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

/// Returns the UIDs of an object's owners.
fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let references = object::at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    references.into_iter().flatten().map(|one| object::text(one, &["uid"]))
}
