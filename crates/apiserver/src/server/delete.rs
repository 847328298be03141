//! Deletes: removes objects immediately, or sets the `deletionTimestamp` while finalizers or a
//! kubelet hold them.

use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::{Body, Call, Server, answer, dependents::Dependents};
use crate::{
    budget, clock,
    failure::Failure,
    object,
    resource::Resource,
    select::Selector,
    service::PodDeletion,
    store::{Key, Object, Put, Write, WriteError},
};

/// Maximum number of attempts when a delete conflicts with other writes.
const MAX_ATTEMPTS: usize = 32;

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
        let dry = call.query.dry_run || is_dry_run(options);
        let mut options = options.clone();
        if let Some(grace) = call.query.grace_period {
            object::map_of(&mut options).entry("gracePeriodSeconds").or_insert(grace.into());
        }
        match self.remove(&call.resource, &key, &options, dry).await? {
            Deleted::Held(object) => Ok(self.show(call, StatusCode::OK, &object)),
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

    /// Returns the grace period of a delete in seconds. Zero unless the object is a running pod
    /// that a kubelet handles.
    fn grace(&self, resource: &Resource, old: &Value, options: &Value) -> i64 {
        let runs = &*resource.collection == "pods"
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
        object::set_meta(&mut value, "deletionTimestamp", clock::rfc3339(end));
        object::set_meta(&mut value, "deletionGracePeriodSeconds", grace);
        value
    }
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
            let why = format!(
                "Precondition failed: {label} in precondition: {wanted}, {label} in object meta: \
                 {have}"
            );
            return Err(Failure::conflict(resource, name, &why));
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
