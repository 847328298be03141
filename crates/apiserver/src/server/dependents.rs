//! Garbage collection: the objects that a deleted object owns.
//!
//! As in Kubernetes, the finalizer `foregroundDeletion` holds an object until the dependents that block
//! its deletion are gone, the finalizer `orphan` until its dependents do not name it any more. The
//! dependents of an object that was removed are deleted. All of it is continued at the next start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Server,
    steps::{Step, Steps},
};
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
fn waits(object: &Object) -> bool {
    object.head.is_deleting
        && object.head.finalizers().any(|one| matches!(one, ORPHAN | FOREGROUND))
}

impl Server {
    /// Adds what follows from the removal of an object: its dependents are collected, and the owners
    /// that waited for it go on.
    pub(super) fn removed(&self, resource: &Resource, gone: &Object, steps: &mut Steps) {
        if resource.custom {
            steps.add(Step::FinishDefinition(resource.collection.to_string()));
        }
        if &*resource.collection == builtin::CRDS {
            self.register(&gone.value(), false);
        }
        if self.controllers == Controllers::Off {
            return;
        }
        let namespace = &gone.head.namespace;
        if resource.namespaced {
            steps.add(Step::FinishNamespace(namespace.to_string()));
        }
        // Events own nothing and are owned by nothing, and there are many of them.
        if &*resource.collection == "events" {
            return;
        }
        for (other, object) in self.dependents(&gone.head.uid) {
            steps.add(Step::Collect(other, object.key()));
        }
        if gone.head.owners().next().is_none() {
            return;
        }
        for reference in references(&gone.value()) {
            if let Some((owner, object)) = self.owner(reference, namespace)
                && waits(&object)
            {
                steps.add(Step::Finalize(owner, object.key()));
            }
        }
    }

    /// Deletes a stored object if all its owners are gone, else removes the references to those that
    /// are.
    pub(super) async fn collect(
        &self,
        resource: &Arc<Resource>,
        object: &Object,
        steps: &mut Steps,
    ) {
        if self.controllers == Controllers::Off || object.head.owners().next().is_none() {
            return;
        }
        let value = object.value();
        let namespace = &object.head.namespace;
        let gone: Vec<&str> =
            references(&value).filter(|one| self.is_gone(one, namespace)).map(uid_of).collect();
        if gone.is_empty() {
            return;
        }
        if gone.len() == references(&value).count() {
            let same = json!({"preconditions": {"uid": &*object.head.uid}});
            steps.add(Step::Delete(Arc::clone(resource), object.key(), same));
        } else {
            self.remove_owners(resource, object, &gone, steps).await;
        }
    }

    /// Continues the deletion of an object that a finalizer of the garbage collection holds.
    pub(super) async fn finalize(&self, resource: &Arc<Resource>, place: &Key, steps: &mut Steps) {
        if self.controllers == Controllers::Off {
            return;
        }
        let Some(object) = self.store.get(&resource.collection, place) else { return };
        if !waits(&object) {
            return;
        }
        let uid = &*object.head.uid;
        let dependents = self.dependents(uid);
        if object.head.finalizers().any(|one| one == ORPHAN) {
            for (other, dependent) in dependents {
                self.remove_owners(&other, &dependent, &[uid], steps).await;
            }
            self.remove_finalizer(resource, place, ORPHAN, steps).await;
            return;
        }
        let is_blocked = dependents.iter().any(|(_, one)| is_blocking(&one.value(), uid));
        for (other, dependent) in dependents.into_iter().filter(|(_, it)| !it.head.is_deleting) {
            // The dependents of a dependent are deleted in the foreground too.
            let own = &*dependent.head.uid;
            let has_own = !self.store.dependents(own).is_empty();
            let policy = if has_own { "Foreground" } else { "Background" };
            let options = json!({"propagationPolicy": policy, "preconditions": {"uid": own}});
            steps.add(Step::Delete(other, dependent.key(), options));
        }
        if !is_blocked {
            self.remove_finalizer(resource, place, FOREGROUND, steps).await;
        }
    }

    /// Continues what an earlier process began: deletions, and the collection of dependents.
    pub(super) async fn resume(&self) {
        let mut steps = Steps::default();
        let served = self.catalog.served();
        for resource in served.values().filter(|one| one.form == Form::Same) {
            for object in self.store.list(&resource.collection, None, None).0 {
                if self.is_homeless(resource, &object) {
                    steps.add(Step::Delete(Arc::clone(resource), object.key(), json!({})));
                } else if waits(&object) {
                    steps.add(Step::Finalize(Arc::clone(resource), object.key()));
                } else if object.head.owners().next().is_some() {
                    steps.add(Step::Collect(Arc::clone(resource), object.key()));
                }
            }
        }
        for definition in self.store.list(builtin::CRDS, None, None).0 {
            if definition.head.is_deleting {
                self.delete_instances(&definition.head.name, &mut steps);
            }
        }
        for namespace in self.store.list(builtin::NAMESPACES, None, None).0 {
            if namespace.head.is_deleting {
                self.empty_namespace(&namespace.head.name, &mut steps);
            }
        }
        self.run(steps).await;
    }

    /// Returns true if the namespace of an object does not exist.
    fn is_homeless(&self, resource: &Resource, object: &Object) -> bool {
        let namespace = Key::new("", &object.head.namespace);
        self.controllers != Controllers::Off
            && resource.namespaced
            && self.store.get(builtin::NAMESPACES, &namespace).is_none()
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
        (*object.head.uid == *uid_of(reference)).then_some((resource, object))
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
    async fn remove_owners(
        &self,
        resource: &Arc<Resource>,
        object: &Object,
        owners: &[&str],
        steps: &mut Steps,
    ) {
        let change = |metadata: &mut serde_json::Map<String, Value>| {
            let references = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
            if let Some(list) = references {
                list.retain(|one| !owners.contains(&uid_of(one)));
                if list.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
        };
        self.rewrite(resource, &object.key(), change, steps).await;
    }

    /// Removes a finalizer from an object, and the object if it was the last one.
    pub(super) async fn remove_finalizer(
        &self,
        resource: &Arc<Resource>,
        at: &Key,
        gone: &str,
        steps: &mut Steps,
    ) {
        let change = |metadata: &mut serde_json::Map<String, Value>| {
            if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
                list.retain(|one| one != gone);
                if list.is_empty() {
                    metadata.remove("finalizers");
                }
            }
        };
        self.rewrite(resource, at, change, steps).await;
    }

    /// Changes the metadata of an object. Removes the object if nothing holds its deletion any more.
    async fn rewrite(
        &self,
        resource: &Arc<Resource>,
        at: &Key,
        change: impl Fn(&mut serde_json::Map<String, Value>) + Send + Sync,
        steps: &mut Steps,
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
                    self.recount(resource, &left, None).await;
                    self.removed(resource, &left, steps);
                    return;
                }
                Ok(_) => return,
                Err(WriteError::Stale) => {}
                Err(error) => {
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
