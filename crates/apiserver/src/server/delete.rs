//! Deletes: removes objects immediately, or sets the `deletionTimestamp` while finalizers or a
//! kubelet hold them.

use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{
    Body, Call, Server, answer,
    dependents::{self, FOREGROUND, ORPHAN},
    steps::{Step, Steps},
};
use crate::{
    budget, clock,
    failure::{Failure, Fault},
    object,
    query::{Query, unknown_dry_run},
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
        check_options(options, &call.query)?;
        let dry = call.query.dry_run || is_dry_run(options);
        let options = with_query(options, &call.query);
        match self.remove(&call.resource, &key, &options, dry).await? {
            Deleted::Held(object) => Ok(self.show(call, StatusCode::OK, &object)),
            // Compat: the answer to the delete of a pod or a ServiceAccount is the object.
            Deleted::Gone(object) if &*call.resource.collection == PODS => {
                let shown = stamped(self.marked(object.whole(), 0, &[]), object.version);
                Ok(self.show(call, StatusCode::OK, &shown))
            }
            Deleted::Gone(object) if &*call.resource.collection == "serviceaccounts" => {
                Ok(self.show(call, StatusCode::OK, &object))
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
        check_options(options, query)?;
        let selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        let namespace = call.namespace.as_deref();
        let (objects, _) = self.store.list(&call.resource.collection, namespace, None);
        let dry = query.dry_run || is_dry_run(options);
        let options = &with_query(options, query);
        let mut touched = Vec::new();
        for object in objects.iter().filter(|one| selector.selects(one)) {
            self.check_write(call, "DELETE", None, Some(&object.value()))?;
            match self.remove(&call.resource, &object.key(), options, dry).await {
                // Compat: the answer has the objects as they were.
                Ok(Deleted::Gone(_) | Deleted::Held(_)) => touched.push(Arc::clone(object)),
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

    /// Removes an object, or marks it as being deleted if finalizers or its kubelet hold it. What
    /// follows from it is done when this returns.
    pub(super) async fn remove(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
        options: &Value,
        dry: bool,
    ) -> Result<Deleted, Failure> {
        let mut steps = Steps::default();
        let deleted = self.remove_one(resource, key, options, dry, &mut steps).await;
        self.run(steps).await;
        deleted
    }

    /// Removes an object, or marks it as being deleted. Adds what follows from it.
    pub(super) async fn remove_one(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
        options: &Value,
        dry: bool,
        steps: &mut Steps,
    ) -> Result<Deleted, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let old = self.store.get(&resource.collection, key);
            let old = old.ok_or_else(|| Failure::not_found(resource, &key.name))?;
            check_preconditions(resource, &old, options)?;
            let ended = match &*resource.collection {
                builtin::NAMESPACES => {
                    check_protected(resource, &key.name)?;
                    Some(self.terminate(key, &old, dry, steps).await)
                }
                builtin::CRDS => Some(self.terminate_definition(key, &old, dry, steps).await),
                _ => None,
            };
            match ended {
                Some(Err(WriteError::Stale)) => continue,
                Some(Err(error)) => {
                    return Err(Self::commit_failure(resource, &key.name, &error));
                }
                Some(Ok(left)) => return Ok(Deleted::Held(left)),
                None => {}
            }
            let value = old.whole();
            let grace = self.grace(resource, &value, options);
            let finalizers = dependents::finalizers_for(&value, options);
            let held = grace > 0 || !finalizers.is_empty();
            let is_same = old.head.finalizers().eq(finalizers.iter().map(String::as_str));
            if held && is_same && is_marked(&value, grace) {
                return Ok(Deleted::Held(old));
            }
            let put = if held {
                Put::Keep(self.marked(value, grace, &finalizers))
            } else {
                Put::Remove(value)
            };
            if let (true, Put::Keep(value)) = (dry, &put) {
                return Ok(Deleted::Held(Arc::new(stamped(value.clone(), old.version))));
            }
            if dry {
                return Ok(Deleted::Gone(old));
            }
            let collection = Arc::clone(&resource.collection);
            let expect = Some(old.version);
            match self.store.commit(Write { collection, key: key.clone(), expect, put }).await {
                Ok(left) if held => {
                    self.recount(resource, &left, None).await;
                    if finalizers.iter().any(|one| matches!(one.as_str(), FOREGROUND | ORPHAN)) {
                        steps.add(Step::Finalize(Arc::clone(resource), key.clone()));
                    }
                    return Ok(Deleted::Held(left));
                }
                Ok(left) => {
                    self.recount(resource, &left, None).await;
                    self.removed(resource, &left, steps);
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

    /// Returns the object with a `deletionTimestamp` after the grace period, and these finalizers.
    fn marked(&self, mut value: Value, grace: i64, finalizers: &[String]) -> Value {
        if !finalizers.is_empty() {
            object::set_meta(&mut value, "finalizers", json!(finalizers));
        }
        let now = self.clock.now();
        let end = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        // A delete changes what an object is to become, as a change of its spec does.
        let generation = object::at(&value, &["metadata", "generation"]).and_then(Value::as_i64);
        if let Some(generation) = generation.filter(|it| *it > 0 && !object::is_deleting(&value)) {
            // Clients choose the generation of kinds whose changes are not counted.
            object::set_meta(&mut value, "generation", generation.wrapping_add(1));
        }
        let before = object::meta(&value, "deletionTimestamp").parse::<Timestamp>();
        let end = before.map_or(end, |before| before.min(end));
        object::set_meta(&mut value, "deletionTimestamp", clock::rfc3339(end));
        object::set_meta(&mut value, "deletionGracePeriodSeconds", grace);
        value
    }
}

/// Adds the options that the query gives and the body does not.
fn with_query(options: &Value, query: &Query) -> Value {
    let mut options = options.clone();
    let map = object::map_of(&mut options);
    if let Some(grace) = query.grace_period {
        map.entry("gracePeriodSeconds").or_insert(grace.into());
    }
    if !query.propagation.is_empty() && !map.contains_key("orphanDependents") {
        map.entry("propagationPolicy").or_insert(query.propagation.clone().into());
    }
    if let Some(orphans) = query.orphans.filter(|_| !map.contains_key("propagationPolicy")) {
        map.entry("orphanDependents").or_insert(orphans.into());
    }
    options
}

/// Validates the options of a delete request.
fn check_options(options: &Value, query: &Query) -> Result<(), Failure> {
    const PLACE: &str = "propagationPolicy";
    let policy = match object::text(options, &[PLACE]) {
        "" => query.propagation.as_str(),
        policy => policy,
    };
    let dry = options.get("dryRun").and_then(Value::as_array).into_iter().flatten();
    let bad = dry.filter_map(Value::as_str).find(|value| *value != "All");
    let invalid = |fault: &Fault| Err(Failure::invalid_options("DeleteOptions", fault));
    if let Some(bad) = bad {
        return invalid(&unknown_dry_run(bad));
    }
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

/// Fails if every cluster needs the namespace.
fn check_protected(resource: &Resource, name: &str) -> Result<(), Failure> {
    if PROTECTED.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Failure::forbidden(resource, name, why));
    }
    Ok(())
}

fn is_dry_run(options: &Value) -> bool {
    options.get("dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

fn check_preconditions(resource: &Resource, old: &Object, options: &Value) -> Result<(), Failure> {
    let version = old.version.to_string();
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = object::text(options, &["preconditions", field]);
        let (name, have): (&str, &str) = match field {
            "uid" => (&old.head.name, &old.head.uid),
            _ => (&old.head.name, &version),
        };
        let is_met = wanted.is_empty() || wanted == have;
        if !is_met && matches!(&*resource.collection, builtin::NAMESPACES | builtin::CRDS) {
            let why = format!(
                "Precondition failed: {label} in precondition: {wanted}, {label} in object meta: \
                 {have}"
            );
            return Err(Failure::conflict(resource, name, &why));
        }
        if !is_met {
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
    let mut details = json!({"name": &*object.head.name, "kind": call.resource.plural,
        "uid": &*object.head.uid});
    if !call.resource.group.is_empty() {
        object::map_of(&mut details).insert("group".into(), call.resource.group.clone().into());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details})
}
