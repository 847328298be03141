//! Garbage collection: the objects that a deleted object owns.
//!
//! As in Kubernetes, the finalizer `foregroundDeletion` holds an object until the dependents that block
//! its deletion are gone, the finalizer `orphan` until its dependents do not name it any more. The
//! dependents of an object that was removed are deleted. All of it is continued at the next start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use crate::{
    clock, object,
    resource::{Form, Resource, builtin},
    service::Controllers,
    store::{Key, Object, Put, Write, WriteError},
};

/// Finalizer of an object that waits for its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Finalizer of an object whose dependents are released.
pub(super) const ORPHAN: &str = "orphan";

/// Maximum number of attempts when a write conflicts with other writes.
const MAX_ATTEMPTS: usize = 32;

/// Returns the finalizers of an object after a delete request with these options, in Kubernetes'
/// order.
pub(super) fn finalizers_for(old: &Value, options: &Value) -> Vec<String> {
    let orphans = options.get("orphanDependents").and_then(Value::as_bool);
    let had = |name: &str| object::finalizers(old).any(|one| one == name);
    let (orphan, foreground) = match (orphans, object::text(options, &["propagationPolicy"])) {
        (Some(orphan), _) => (orphan, false),
        (None, "Orphan") => (true, false),
        (None, "Foreground") => (false, true),
        (None, "Background") => (false, false),
        (None, _) => (had(ORPHAN), had(FOREGROUND) && !had(ORPHAN)),
    };
    let others = object::finalizers(old).filter(|one| !matches!(*one, ORPHAN | FOREGROUND));
    let mut out: Vec<String> = others.map(str::to_owned).collect();
    out.extend(orphan.then(|| ORPHAN.to_owned()));
    out.extend(foreground.then(|| FOREGROUND.to_owned()));
    let is_same = out.len() == object::finalizers(old).count()
        && object::finalizers(old).all(|one| out.iter().any(|it| it == one));
    if is_same { object::finalizers(old).map(str::to_owned).collect() } else { out }
}

/// Returns the owner references of an object.
fn references(object: &Value) -> impl Iterator<Item = &Value> {
    let list = object::at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn uid_of(reference: &Value) -> &str {
    object::text(reference, &["uid"])
}

/// Returns true if the object names this owner and blocks its deletion.
fn is_blocking(object: &Value, owner: &str) -> bool {
    references(object).any(|one| {
        uid_of(one) == owner
            && one.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false)
    })
}

/// Returns true if the object is being deleted and a finalizer of the garbage collection holds it.
fn waits(object: &Value) -> bool {
    object::is_deleting(object)
        && object::finalizers(object).any(|one| matches!(one, ORPHAN | FOREGROUND))
}

impl Server {
    /// Handles the objects that depend on a removed object, and the owners that waited for it.
    pub(super) async fn clean_up(&self, resource: &Resource, gone: &Value) {
        if resource.custom {
            self.finish_definition(&resource.collection).await;
        }
        if &*resource.collection == builtin::CRDS {
            self.register(gone, false);
        }
        if self.controllers == Controllers::Off {
            return;
        }
        if resource.namespaced {
            self.finish_namespace(object::namespace(gone)).await;
        }
        // Events own nothing and are owned by nothing, and there are many of them.
        if &*resource.collection == "events" {
            return;
        }
        for (other, object) in self.dependents(object::meta(gone, "uid")) {
            self.collect(&other, &object).await;
        }
        for reference in references(gone) {
            if let Some((owner, object)) = self.owner(reference, object::namespace(gone))
                && waits(&object.value)
            {
                self.finalize(&owner, &key(&object.value)).await;
            }
        }
    }

    /// Deletes an object if all its owners are gone, else removes the references to those that are.
    pub(super) async fn collect(&self, resource: &Arc<Resource>, object: &Arc<Object>) {
        if self.controllers == Controllers::Off {
            return;
        }
        let namespace = object::namespace(&object.value);
        let gone: Vec<&str> = references(&object.value)
            .filter(|one| self.is_gone(one, namespace))
            .map(uid_of)
            .collect();
        if gone.is_empty() {
            return;
        }
        if gone.len() == references(&object.value).count() {
            let same = json!({"preconditions": {"uid": object::meta(&object.value, "uid")}});
            // An object that another request removed meanwhile is as good as deleted.
            let _ = Box::pin(self.remove(resource, &key(&object.value), &same, false)).await;
        } else {
            self.remove_owners(resource, object, &gone).await;
        }
    }

    /// Continues the deletion of an object that a finalizer of the garbage collection holds.
    pub(super) async fn finalize(&self, resource: &Arc<Resource>, place: &Key) {
        if self.controllers == Controllers::Off {
            return;
        }
        let Some(object) = self.store.get(&resource.collection, place) else { return };
        if !waits(&object.value) {
            return;
        }
        let uid = object::meta(&object.value, "uid");
        if object::finalizers(&object.value).any(|one| one == ORPHAN) {
            for (other, dependent) in self.dependents(uid) {
                self.remove_owners(&other, &dependent, &[uid]).await;
            }
            self.remove_finalizer(resource, place, ORPHAN).await;
            return;
        }
        for (other, dependent) in self.dependents(uid) {
            if object::is_deleting(&dependent.value) {
                continue;
            }
            // The dependents of a dependent are deleted in the foreground too.
            let own = object::meta(&dependent.value, "uid");
            let has_own = !self.store.dependents(own).is_empty();
            let policy = if has_own { "Foreground" } else { "Background" };
            let options = json!({"propagationPolicy": policy, "preconditions": {"uid": own}});
            let _ = Box::pin(self.remove(&other, &key(&dependent.value), &options, false)).await;
        }
        if !self.dependents(uid).iter().any(|(_, one)| is_blocking(&one.value, uid)) {
            self.remove_finalizer(resource, place, FOREGROUND).await;
        }
    }

    /// Continues what an earlier process began: deletions, and the collection of dependents.
    pub(super) async fn resume(&self) {
        let served = self.catalog.served();
        for resource in served.values().filter(|one| one.form == Form::Same) {
            for object in self.store.list(&resource.collection, None, None).0 {
                if waits(&object.value) {
                    self.finalize(resource, &key(&object.value)).await;
                } else if references(&object.value).next().is_some() {
                    self.collect(resource, &object).await;
                }
            }
        }
        for definition in self.store.list(builtin::CRDS, None, None).0 {
            if object::is_deleting(&definition.value) {
                self.finish_definition(object::name(&definition.value)).await;
            }
        }
        for namespace in self.store.list(builtin::NAMESPACES, None, None).0 {
            if object::is_deleting(&namespace.value) {
                self.empty_namespace(object::name(&namespace.value)).await;
            }
        }
    }

    /// Returns the objects that name this UID as an owner.
    fn dependents(&self, uid: &str) -> Vec<(Arc<Resource>, Arc<Object>)> {
        let served = self.catalog.served();
        let places = self.store.dependents(uid).into_iter();
        places
            .filter_map(|(collection, place)| {
                let holds =
                    |one: &&Arc<Resource>| one.form == Form::Same && one.collection == collection;
                let resource = served.values().find(holds)?;
                Some((Arc::clone(resource), self.store.get(&collection, &place)?))
            })
            .collect()
    }

    /// Returns the object that a reference of an object in `namespace` names, if it exists.
    fn owner(&self, reference: &Value, namespace: &str) -> Option<(Arc<Resource>, Arc<Object>)> {
        let (resource, place) = self.place(reference, namespace)?;
        let object = self.store.get(&resource.collection, &place)?;
        (object::meta(&object.value, "uid") == uid_of(reference)).then_some((resource, object))
    }

    fn place(&self, reference: &Value, namespace: &str) -> Option<(Arc<Resource>, Key)> {
        let of = |field| object::text(reference, &[field]);
        let group = of("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        let served = self.catalog.served();
        let is_kind = |one: &&Arc<Resource>| {
            one.form == Form::Same && one.group == group && one.kind == of("kind")
        };
        let resource = served.values().find(is_kind)?;
        if resource.namespaced && namespace.is_empty() {
            return None;
        }
        let namespace = if resource.namespaced { namespace } else { "" };
        Some((Arc::clone(resource), Key::new(namespace, of("name"))))
    }

    /// Returns true if a reference names an owner that does not exist any more.
    ///
    /// An owner of a kind that is not served, or with a UID that no server assigns, may exist elsewhere.
    fn is_gone(&self, reference: &Value, namespace: &str) -> bool {
        clock::is_uuid(uid_of(reference))
            && self.place(reference, namespace).is_some()
            && self.owner(reference, namespace).is_none()
    }

    /// Removes references to owners from an object.
    async fn remove_owners(&self, resource: &Arc<Resource>, object: &Object, owners: &[&str]) {
        self.rewrite(resource, &key(&object.value), |metadata| {
            let references = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
            if let Some(list) = references {
                list.retain(|one| !owners.contains(&uid_of(one)));
                if list.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
        })
        .await;
    }

    /// Removes a finalizer from an object, and the object if it was the last one.
    pub(super) async fn remove_finalizer(&self, resource: &Arc<Resource>, at: &Key, gone: &str) {
        self.rewrite(resource, at, |metadata| {
            if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
                list.retain(|one| one != gone);
                if list.is_empty() {
                    metadata.remove("finalizers");
                }
            }
        })
        .await;
    }

    /// Changes the metadata of an object. Removes the object if nothing holds its deletion any more.
    async fn rewrite(
        &self,
        resource: &Arc<Resource>,
        at: &Key,
        change: impl Fn(&mut serde_json::Map<String, Value>) + Send + Sync,
    ) {
        for _ in 0..MAX_ATTEMPTS {
            let Some(old) = self.store.get(&resource.collection, at) else { return };
            let mut value = old.whole();
            change(object::meta_mut(&mut value));
            let removed = is_finished(resource, &value);
            let put = if removed { Put::Remove(value) } else { Put::Keep(value) };
            let (collection, expect) = (Arc::clone(&resource.collection), Some(old.version));
            match self.store.commit(Write { collection, key: at.clone(), expect, put }).await {
                Ok(left) if removed => {
                    self.recount(resource, &left.value).await;
                    return Box::pin(self.clean_up(resource, &left.value)).await;
                }
                Ok(_) => return,
                Err(WriteError::Stale) => {}
                Err(error @ (WriteError::Disk(_) | WriteError::TooLarge(_))) => {
                    let name = &at.name;
                    tracing::warn!(%name, %error, "Failed to continue a deletion");
                    return;
                }
            }
        }
    }
}

/// Returns true if the object is being deleted and nothing holds it.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let is_namespace = &*resource.collection == builtin::NAMESPACES;
    let own = object::at(object, &["spec", "finalizers"]).and_then(Value::as_array);
    let is_held = is_namespace && own.is_some_and(|list| !list.is_empty());
    let grace = object::at(object, &["metadata", "deletionGracePeriodSeconds"]);
    object::is_deleting(object)
        && object::finalizers(object).next().is_none()
        && grace.and_then(Value::as_i64).unwrap_or(0) == 0
        && !is_held
}

/// Returns the key of an object.
pub(super) fn key(object: &Value) -> Key {
    Key::new(object::namespace(object), object::name(object))
}
