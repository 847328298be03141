//! Deletes: at once, or by asking the holders of finalizers.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{Body, Call, Server, answer};
use crate::{
    clock,
    failure::Failure,
    object,
    resource::{Resource, builtin, crd},
    select::Selector,
    store::{Key, Object, Put, Write, WriteError},
};

/// What became of a delete.
pub(super) enum Deleted {
    Gone(Arc<Object>),
    /// Finalizers hold it.
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
        match self.remove(&call.resource, &key, options, dry).await? {
            Deleted::Held(object) => Ok(self.show(call, StatusCode::OK, &object)),
            Deleted::Gone(object) => Ok(answer::json(StatusCode::OK, &success(call, &object))),
        }
    }

    /// Deletes what a selector chooses.
    pub(super) async fn delete_collection(
        &self,
        call: &Call,
        options: &Value,
    ) -> Result<Response<Body>, Failure> {
        let query = &call.query;
        let selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        let namespace = call.namespace.as_deref();
        let (objects, _) = self.store.list(&call.resource.track, namespace, None);
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

    /// Deletes an object, or marks it when finalizers hold it.
    ///
    /// Pods go at once: the kubelet that would confirm the end of their processes is not there.
    pub(super) async fn remove(
        &self,
        resource: &Arc<Resource>,
        key: &Key,
        options: &Value,
        dry: bool,
    ) -> Result<Deleted, Failure> {
        for _ in 0..32 {
            let old = self.store.get(&resource.track, key);
            let old = old.ok_or_else(|| Failure::not_found(resource, &key.name))?;
            check_preconditions(resource, &old, options)?;
            let held = object::finalizers(&old.value).next().is_some();
            if dry || (held && object::is_deleting(&old.value)) {
                return Ok(if held { Deleted::Held(old) } else { Deleted::Gone(old) });
            }
            let mut value = old.value.clone();
            let put = if held {
                object::set_meta(&mut value, "deletionTimestamp", clock::rfc3339(self.clock.now()));
                object::set_meta(&mut value, "deletionGracePeriodSeconds", 0);
                Put::Keep(value)
            } else {
                Put::Remove(value)
            };
            let track = Arc::clone(&resource.track);
            let expect = Some(old.version);
            match self.store.commit(Write { track, key: key.clone(), expect, put }).await {
                Ok(left) if held => return Ok(Deleted::Held(left)),
                Ok(left) => {
                    Box::pin(self.clean_up(resource, &left.value)).await;
                    return Ok(Deleted::Gone(left));
                }
                Err(WriteError::Stale) => {}
                Err(error) => return Err(Self::commit_failure(resource, &key.name, &error)),
            }
        }
        Err(Failure::modified(resource, &key.name))
    }

    /// Deletes what cannot be without the object: a namespace's content, a definition's objects.
    async fn clean_up(&self, resource: &Resource, gone: &Value) {
        let (is_namespace, is_definition) =
            (&*resource.track == builtin::NAMESPACES, &*resource.track == builtin::CRDS);
        if !is_namespace && !is_definition {
            return;
        }
        let (group, plural) = crd::identity(gone);
        let namespace = is_namespace.then(|| object::name(gone).to_owned());
        let served = self.catalog.served();
        for other in served.values() {
            let concerned = match &namespace {
                Some(_) => other.namespaced,
                None => other.custom && other.group == group && other.plural == plural,
            };
            if !concerned {
                continue;
            }
            let (objects, _) = self.store.list(&other.track, namespace.as_deref(), None);
            for object in objects {
                let key = Key::new(object::namespace(&object.value), object::name(&object.value));
                // One that vanished meanwhile is as good as deleted.
                let _ = self.remove(other, &key, &json!({}), false).await;
            }
        }
        if is_definition {
            self.register(gone, false);
        }
    }
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
