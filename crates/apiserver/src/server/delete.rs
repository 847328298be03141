//! Deletes: removes objects immediately, or sets the `deletionTimestamp` while finalizers or a
//! kubelet hold them.

use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::{Body, Call, Server, answer, dependents::Dependents};
use crate::{
    budget, clock,
    failure::{Failure, Fault},
    object,
    query::Query,
    resource::{Resource, builtin},
    select::Selector,
    service::PodDeletion,
    store::{Key, Object, Put, Write, WriteError, stamped},
};

/// Name of the collection of pods.
const PODS: &str = "pods";

/// Maximum number of attempts when a delete conflicts with other writes.
const MAX_ATTEMPTS: usize = 32;

/// The namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-public", "kube-system"];

/// The result of a delete.
pub(super) enum Deleted {
    Gone(Arc<Object>),
    /// The object stays: finalizers or its kubelet hold it.
    Held(Arc<Object>),
}

impl Server {
    /// Deletes one object.
    pub(super) async fn delete(
        &self,
        call: &Call,
        options: &Value,
    ) -> Result<Response<Body>, Failure> {
        let key = call.key();
        let is_namespace = &*call.resource.collection == builtin::NAMESPACES;
        if is_namespace && PROTECTED.contains(&key.name.as_str()) {
            let why = "this namespace may not be deleted";
            return Err(Failure::forbidden(&call.resource, &key.name, why));
        }
        check_propagation(options, &call.query)?;
        let dry = call.query.dry_run || is_dry_run(options);
        let mut options = options.clone();
        if let Some(grace) = call.query.grace_period {
            object::map_of(&mut options).entry("gracePeriodSeconds").or_insert(grace.into());
        }
        match self.remove(&call.resource, &key, &options, dry).await? {
            Deleted::Held(object) => Ok(self.show(call, StatusCode::OK, &object)),
            // Compat: the answer to the delete of a pod is the pod.
            Deleted::Gone(object) if &*call.resource.collection == PODS => {
                let shown = stamped(self.marked(&object.value, 0), object.version);
                Ok(self.show(call, StatusCode::OK, &shown))
            }
            Deleted::Gone(object) => Ok(answer::json(StatusCode::OK, &success(call, &object))),
        }
    }

    /// Deletes the objects that a selector selects.
    pub(super) async fn delete_collection(
        &self,
        call: &Call,
        options: &Value,
    ) -> Result<Response<Body>, Failure> {
        let query = &call.query;
        let selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        let namespace = call.namespace.as_deref();
        let (objects, _) = self.store.list(&call.resource.collection, namespace, None);
        let dry = query.dry_run || is_dry_run(options);
        let mut touched = Vec::new();
        for object in objects.iter().filter(|one| selector.matches(&one.value)) {
            let key = Key::new(object::namespace(&object.value), object::name(&object.value));
            match self.remove(&call.resource, &key, options, dry).await {
                Ok(Deleted::Gone(object) | Deleted::Held(object)) => touched.push(object),
                Err(failure) if failure.code == StatusCode::NOT_FOUND => {}
                Err(failure) => return Err(failure),
            }
        }
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), self.store.version().to_string().into());
        let now = self.clock.now();
        let include = &query.include_object;
        let body = answer::list(&call.resource, &touched, meta, call.shape, now, include);
        Ok(answer::bytes(StatusCode::OK, body))
    }

    /// Removes an object, or marks it as being deleted if finalizers or its kubelet hold it.
    pub(super) async fn remove(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
        options: &Value,
        dry: bool,
    ) -> Result<Deleted, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let old = self.store.get(&resource.collection, key);
            let old = old.ok_or_else(|| Failure::not_found(resource, &key.name))?;
            check_preconditions(resource, &old, options)?;
            if &*resource.collection == builtin::NAMESPACES {
                if dry {
                    return Ok(Deleted::Held(old));
                }
                match self.terminate(key, &old).await {
                    Err(WriteError::Stale) => continue,
                    Err(error) => return Err(Self::commit_failure(resource, &key.name, &error)),
                    Ok(left) => return Ok(Deleted::Held(left)),
                }
            }
            let grace = self.grace(resource, &old.value, options);
            let held = grace > 0 || object::finalizers(&old.value).next().is_some();
            if dry || (held && is_marked(&old.value, grace)) {
                return Ok(if held { Deleted::Held(old) } else { Deleted::Gone(old) });
            }
            let put = if held {
                Put::Keep(self.marked(&old.value, grace))
            } else {
                Put::Remove(old.value.clone())
            };
            let collection = Arc::clone(&resource.collection);
            let expect = Some(old.version);
            match self.store.commit(Write { collection, key: key.clone(), expect, put }).await {
                Ok(left) => {
                    self.recount(resource, &left.value).await;
                    if held {
                        return Ok(Deleted::Held(left));
                    }
                    let treatment = Dependents::requested(options);
                    Box::pin(self.clean_up(resource, &left.value, treatment)).await;
                    return Ok(Deleted::Gone(left));
                }
                Err(WriteError::Stale) => {}
                Err(error) => return Err(Self::commit_failure(resource, &key.name, &error)),
            }
        }
        Err(Failure::modified(resource, &key.name))
    }

    /// Marks a namespace as being deleted, deletes its content, and removes it when it is empty.
    async fn terminate(&self, key: &Key, old: &Arc<Object>) -> Result<Arc<Object>, WriteError> {
        let mut left = Arc::clone(old);
        if !object::is_deleting(&old.value) {
            let mut value = old.value.clone();
            let now = clock::rfc3339(self.clock.now());
            object::set_meta(&mut value, "deletionTimestamp", now);
            object::map_mut(object::map_of(&mut value), "status")
                .insert("phase".into(), "Terminating".into());
            let (collection, put) = (builtin::NAMESPACES.into(), Put::Keep(value));
            let write = Write { collection, key: key.clone(), expect: Some(old.version), put };
            left = self.store.commit(write).await?;
        }
        self.empty_namespace(&key.name).await;
        Ok(left)
    }

    /// Returns the grace period of a delete in seconds. Zero unless the object is a running pod
    /// that a kubelet handles.
    fn grace(&self, resource: &Resource, old: &Value, options: &Value) -> i64 {
        let runs = &*resource.collection == PODS
            && self.pods == PodDeletion::ByKubelet
            && !object::text(old, &["spec", "nodeName"]).is_empty()
            && !budget::is_finished(old);
        if !runs {
            return 0;
        }
        let given = options.get("gracePeriodSeconds").and_then(Value::as_i64);
        let own = object::at(old, &["spec", "terminationGracePeriodSeconds"]);
        given.or_else(|| own.and_then(Value::as_i64)).unwrap_or(30).max(0)
    }

    /// Returns the object with a `deletionTimestamp` after the grace period.
    fn marked(&self, old: &Value, grace: i64) -> Value {
        let mut value = old.clone();
        let now = self.clock.now();
        let end = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        // A delete changes what an object is to become, as a change of its spec does.
        let generation = object::at(&value, &["metadata", "generation"]).and_then(Value::as_i64);
        if let Some(generation) = generation.filter(|it| *it > 0 && !object::is_deleting(old)) {
            object::set_meta(&mut value, "generation", generation + 1);
        }
        object::set_meta(&mut value, "deletionTimestamp", clock::rfc3339(end));
        object::set_meta(&mut value, "deletionGracePeriodSeconds", grace);
        value
    }
}

/// Validates the propagation policy of a delete request.
fn check_propagation(options: &Value, query: &Query) -> Result<(), Failure> {
    const PLACE: &str = "propagationPolicy";
    let policy = match object::text(options, &[PLACE]) {
        "" => query.propagation.as_str(),
        policy => policy,
    };
    let invalid = |fault: &Fault| Err(Failure::invalid_options("DeleteOptions", fault));
    let orphans = options.get("orphanDependents").and_then(Value::as_bool).or(query.orphans);
    if !policy.is_empty() && orphans.is_some() {
        let rule = "orphanDependents and deletionPropagation cannot be both set";
        return invalid(&Fault::invalid(PLACE, &json!(policy), rule));
    }
    if !matches!(policy, "" | "Foreground" | "Background" | "Orphan") {
        let known = ["Foreground", "Background", "Orphan", "nil"];
        return invalid(&Fault::not_supported(PLACE, policy, &known));
    }
    Ok(())
}

/// Returns true if the object is already being deleted, with a grace period that is not longer.
fn is_marked(object: &Value, grace: i64) -> bool {
    let left = object::at(object, &["metadata", "deletionGracePeriodSeconds"]);
    object::is_deleting(object) && left.and_then(Value::as_i64).is_none_or(|left| left <= grace)
}

fn is_dry_run(options: &Value) -> bool {
    options.get("dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

fn check_preconditions(resource: &Resource, old: &Object, options: &Value) -> Result<(), Failure> {
    let name = object::name(&old.value);
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = object::text(options, &["preconditions", field]);
        let have = object::meta(&old.value, field);
        if !wanted.is_empty() && wanted != have {
            let end = if field == "uid" { "deleted and then recreated" } else { "modified" };
            let why = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record \
                 ({have}). The object might have been {end}"
            );
            return Err(Failure::conflict_of_kind(resource, name, &why));
        }
    }
    Ok(())
}

fn success(call: &Call, object: &Object) -> Value {
    let mut details = json!({"name": object::name(&object.value), "kind": call.resource.plural,
        "uid": object::meta(&object.value, "uid")});
    if !call.resource.group.is_empty() {
        object::map_of(&mut details).insert("group".into(), call.resource.group.clone().into());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details})
}
