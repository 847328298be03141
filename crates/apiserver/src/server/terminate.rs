//! Deletions of namespaces and of `CustomResourceDefinition`s: their content goes first.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    Server,
    steps::{Step, Steps},
};
use crate::{
    clock,
    failure::Failure,
    object,
    resource::{Form, Resource, builtin, crd},
    service::Controllers,
    store::{Key, Object, Put, Write, WriteError, stamped},
};

/// Finalizer of a definition whose objects still exist.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Plural of the definitions.
const CRD_PLURAL: &str = "customresourcedefinitions";

/// Maximum number of attempts when the end of a deletion conflicts with other writes.
const MAX_ATTEMPTS: usize = 32;

/// The conditions of a namespace that is being deleted: type, and reason and message if all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// The objects and finalizers that a namespace still has while it is deleted.
#[derive(Debug, Default)]
struct Remains {
    /// Number of objects, by resource.
    objects: BTreeMap<String, usize>,
    /// Number of objects, by finalizer.
    finalizers: BTreeMap<String, usize>,
}

impl Remains {
    /// Returns the conditions that say so.
    fn conditions(&self, old: &Value, now: &str) -> Vec<Value> {
        let counted = |counts: &BTreeMap<String, usize>, verb: &str| -> String {
            let each = counts
                .iter()
                .map(|(name, count)| format!("{name} {verb} {count} resource instances"));
            each.collect::<Vec<_>>().join(", ")
        };
        let bad = |kind: &str| match kind {
            "NamespaceContentRemaining" if !self.objects.is_empty() => Some((
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", counted(&self.objects, "has")),
            )),
            "NamespaceFinalizersRemaining" if !self.finalizers.is_empty() => Some((
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    counted(&self.finalizers, "in")
                ),
            )),
            _ => None,
        };
        let had = object::at(old, &["status", "conditions"]).and_then(Value::as_array);
        let mut out: Vec<Value> = had.cloned().unwrap_or_default();
        for (kind, reason, message) in CONDITIONS {
            let (status, reason, message) = match bad(kind) {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", reason, message.to_owned()),
            };
            let before = out.iter().position(|one| one["type"] == kind);
            let same = before.and_then(|at| out.get(at)).filter(|one| one["status"] == status);
            let since = same.map_or(now, |one| object::text(one, &["lastTransitionTime"]));
            let new = json!({"type": kind, "status": status, "reason": reason,
                "message": message, "lastTransitionTime": since});
            match before.and_then(|at| out.get_mut(at)) {
                Some(place) => *place = new,
                None => out.push(new),
            }
        }
        out
    }
}

impl Server {
    /// Marks a namespace as being deleted, deletes its content, and removes it when it is empty.
    pub(super) async fn terminate(
        &self,
        key: &Key,
        old: &Arc<Object>,
        dry: bool,
        steps: &mut Steps,
    ) -> Result<Arc<Object>, WriteError> {
        let mut left = Arc::clone(old);
        if !old.head.is_deleting {
            let mut value = old.whole();
            let now = clock::rfc3339(self.clock.now());
            object::set_meta(&mut value, "deletionTimestamp", now);
            object::map_mut(object::map_of(&mut value), "status")
                .insert("phase".into(), "Terminating".into());
            left = self.mark(builtin::NAMESPACES, key, old.version, value, dry).await?;
        }
        if !dry {
            self.empty_namespace(&key.name, steps);
        }
        Ok(left)
    }

    /// Writes an object that is marked as being deleted, unless the request is a dry run.
    async fn mark(
        &self,
        collection: &str,
        key: &Key,
        version: u64,
        value: Value,
        dry: bool,
    ) -> Result<Arc<Object>, WriteError> {
        if dry {
            return Ok(Arc::new(stamped(value, version)));
        }
        let (collection, put) = (collection.into(), Put::Keep(value));
        let write = Write { collection, key: key.clone(), expect: Some(version), put };
        self.store.commit(write).await
    }

    /// Adds the deletion of the content of a namespace that is being deleted, then of the namespace.
    pub(super) fn empty_namespace(&self, namespace: &str, steps: &mut Steps) {
        if self.controllers == Controllers::Off {
            return;
        }
        let served = self.catalog.served();
        for other in served.values().filter(|other| other.namespaced && other.form == Form::Same) {
            for object in self.store.list(&other.collection, Some(namespace), None).0 {
                steps.add(Step::Delete(Arc::clone(other), object.key(), json!({})));
            }
        }
        steps.add(Step::FinishNamespace(namespace.to_owned()));
    }

    /// Removes a namespace that is being deleted, if it is empty and no finalizer holds it. Else its
    /// conditions say what is left. Objects that were created while the namespace was marked are
    /// deleted first.
    pub(super) async fn finish_namespace(&self, namespace: &str, steps: &mut Steps) {
        if self.controllers == Controllers::Off {
            return;
        }
        let key = Key::new("", namespace);
        let is_deleting = || {
            let found = self.store.get(builtin::NAMESPACES, &key);
            found.is_some_and(|found| found.head.is_deleting)
        };
        for _ in 0..MAX_ATTEMPTS {
            if !is_deleting() {
                return;
            }
            let turn = self.removals.write().await;
            let late = self.undeleted(namespace);
            if late.is_empty() {
                match self.finish_empty_namespace(&key).await {
                    Err(WriteError::Stale) => continue,
                    Ok(()) => return,
                    Err(error) => {
                        tracing::warn!(namespace, %error, "Failed to continue a deletion");
                        return;
                    }
                }
            }
            drop(turn);
            for (resource, key) in late {
                // An object that another request removed meanwhile is as good as deleted.
                let _ = self.remove_one(&resource, &key, &json!({}), false, steps).await;
            }
        }
    }

    /// Returns the objects of a namespace that are not being deleted.
    fn undeleted(&self, namespace: &str) -> Vec<(Arc<Resource>, Key)> {
        let mut out = Vec::new();
        let served = self.catalog.served();
        for other in served.values().filter(|one| one.namespaced && one.form == Form::Same) {
            let objects = self.store.list(&other.collection, Some(namespace), None).0;
            let late = objects.iter().filter(|object| !object.head.is_deleting);
            out.extend(late.map(|object| (Arc::clone(other), object.key())));
        }
        out
    }

    /// Removes a namespace that nothing holds, or writes its conditions.
    async fn finish_empty_namespace(&self, key: &Key) -> Result<(), WriteError> {
        let Some(found) = self.store.get(builtin::NAMESPACES, key) else { return Ok(()) };
        let remains = self.remains(&key.name);
        let old = found.value();
        let own = object::at(&old, &["spec", "finalizers"]).and_then(Value::as_array);
        let is_held = own.is_some_and(|list| list.iter().any(|one| one != "kubernetes"))
            || found.head.finalizers().next().is_some();
        let put = if remains.objects.is_empty() && !is_held {
            Put::Remove(found.whole())
        } else {
            let now = clock::rfc3339(self.clock.now());
            let conditions = Value::Array(remains.conditions(&old, &now));
            if object::at(&old, &["status", "conditions"]) == Some(&conditions) {
                return Ok(());
            }
            let mut value = found.whole();
            object::map_mut(object::map_of(&mut value), "status")
                .insert("conditions".into(), conditions);
            Put::Keep(value)
        };
        let collection = builtin::NAMESPACES.into();
        let write = Write { collection, key: key.clone(), expect: Some(found.version), put };
        self.store.commit(write).await.map(drop)
    }

    fn remains(&self, namespace: &str) -> Remains {
        let mut out = Remains::default();
        let served = self.catalog.served();
        for other in served.values().filter(|one| one.namespaced && one.form == Form::Same) {
            let (left, _) = self.store.list(&other.collection, Some(namespace), None);
            if !left.is_empty() {
                let name = format!("{}.{}", other.plural, other.group);
                out.objects.insert(name, left.len());
            }
            for one in left.iter().flat_map(|object| object.head.finalizers()) {
                *out.finalizers.entry(one.to_owned()).or_default() += 1;
            }
        }
        out
    }

    /// Marks a definition as being deleted, deletes its objects, and removes it when they are gone.
    pub(super) async fn terminate_definition(
        &self,
        key: &Key,
        old: &Arc<Object>,
        dry: bool,
        steps: &mut Steps,
    ) -> Result<Arc<Object>, WriteError> {
        let mut left = Arc::clone(old);
        if !old.head.is_deleting {
            let mut value = old.whole();
            let now = clock::rfc3339(self.clock.now());
            object::set_meta(&mut value, "deletionTimestamp", now.clone());
            let finalizers = object::meta_mut(&mut value).entry("finalizers");
            let finalizers = finalizers.or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut().filter(|it| !it.contains(&json!(CLEANUP)))
            {
                list.push(CLEANUP.into());
            }
            let status = object::map_mut(object::map_of(&mut value), "status");
            let conditions = status.entry("conditions").or_insert_with(|| json!([]));
            if let Some(list) = conditions.as_array_mut() {
                list.push(json!({"type": "Terminating", "status": "True",
                    "lastTransitionTime": now, "reason": "InstanceDeletionPending",
                    "message": "CustomResourceDefinition marked for deletion; CustomResource \
                        deletion will begin soon"}));
            }
            left = self.mark(builtin::CRDS, key, old.version, value, dry).await?;
        }
        if !dry {
            self.delete_instances(&key.name, steps);
        }
        Ok(left)
    }

    /// Adds the deletion of the objects of a definition that is being deleted, then of the definition.
    pub(super) fn delete_instances(&self, definition: &str, steps: &mut Steps) {
        let served = self.catalog.served();
        let is_its = |one: &&Arc<Resource>| one.custom && *one.collection == *definition;
        if let Some(resource) = served.values().find(is_its) {
            for object in self.store.list(&resource.collection, None, None).0 {
                steps.add(Step::Delete(Arc::clone(resource), object.key(), json!({})));
            }
        }
        steps.add(Step::FinishDefinition(definition.to_owned()));
    }

    /// Removes a definition that is being deleted, if it has no objects left. Those that were created
    /// while the definition was marked are deleted first.
    pub(super) async fn finish_definition(&self, name: &str, steps: &mut Steps) {
        let key = Key::new("", name);
        for _ in 0..MAX_ATTEMPTS {
            let Some(found) = self.store.get(builtin::CRDS, &key) else { return };
            if !found.head.is_deleting {
                return;
            }
            let turn = self.removals.write().await;
            // The objects of a built-in kind are not those of a definition.
            let is_its = !builtin::has_group(crd::identity(&found.value()).0);
            if !is_its || self.store.is_empty(name) {
                let crds = self.catalog.find("apiextensions.k8s.io", "v1", CRD_PLURAL);
                if let Some(crds) = crds {
                    self.remove_finalizer(&crds, &key, CLEANUP, steps).await;
                }
                return;
            }
            drop(turn);
            let served = self.catalog.served();
            let Some(resource) = served.values().find(|one| one.custom && *one.collection == *name)
            else {
                return;
            };
            let objects = self.store.list(name, None, None).0;
            let late: Vec<_> = objects.iter().filter(|object| !object.head.is_deleting).collect();
            if late.is_empty() {
                return;
            }
            for object in late {
                let _ = self.remove_one(resource, &object.key(), &json!({}), false, steps).await;
            }
        }
    }

    /// Fails if the definition of a new custom object is being deleted, or was removed.
    pub(super) fn check_definition(&self, resource: &Resource, name: &str) -> Result<(), Failure> {
        if !resource.custom {
            return Ok(());
        }
        let found = self.store.get(builtin::CRDS, &Key::new("", &resource.collection));
        let Some(found) = found else { return Err(Failure::no_page()) };
        if found.head.is_deleting {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(resource, name, why));
        }
        Ok(())
    }
}
