//! Create, update and patch requests.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;

use super::{Body, Call, Server, answer, dependents::Dependents, route};
use crate::{
    admit::{self, Admitted, Part},
    failure::Failure,
    form, object,
    patch::{self, ssa},
    resource::builtin,
    store::{Key, Object, Put, Write, WriteError, stamped},
};

/// Maximum number of attempts when a write without resourceVersion conflicts with other writes.
const MAX_ATTEMPTS: usize = 32;

/// Tells if a change already records the owners of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owners {
    Written,
    Note,
}

impl Server {
    /// Creates an object.
    pub(super) async fn create(
        &self,
        call: &Call,
        mut new: Value,
    ) -> Result<Response<Body>, Failure> {
        check_kind(call, &mut new)?;
        self.store_new(call, new).await
    }

    async fn store_new(&self, call: &Call, mut new: Value) -> Result<Response<Body>, Failure> {
        let resource = &call.resource;
        place(call, &mut new)?;
        self.check_namespace(call, object::name(&new))?;
        let generated = object::name(&new).is_empty();
        for _ in 0..MAX_ATTEMPTS {
            let new = form::stored(resource, new.clone());
            let admitted = admit::create(resource, new, self.clock.now(), (self.entropy)())?;
            strict(call, &admitted)?;
            let name = object::name(&admitted.object).to_owned();
            let key = Key::new(object::namespace(&admitted.object), &name);
            let collection = Arc::clone(&resource.collection);
            let unknown = admitted.unknown.clone();
            let put = Put::Keep(admitted.object);
            let stored = if call.query.dry_run {
                self.dry_run(&collection, &key, put)
            } else {
                self.commit(Write { collection, key, expect: None, put }).await
            };
            match stored {
                Ok(stored) => {
                    self.recount(resource, &stored.value).await;
                    if &*resource.collection == "events" {
                        self.expire_events().await;
                    }
                    let mut response = self.show(call, StatusCode::CREATED, &stored);
                    warn_unknown(call, &unknown, &mut response);
                    return Ok(response);
                }
                // The generated name is in use: the next attempt generates another.
                Err(WriteError::Stale) if generated => {}
                Err(WriteError::Stale) => return Err(Failure::exists(resource, &name)),
                Err(error) => return Err(Self::commit_failure(resource, &name, &error)),
            }
        }
        Err(Failure::internal("no free name was found"))
    }

    fn dry_run(&self, collection: &str, key: &Key, put: Put) -> Result<Arc<Object>, WriteError> {
        if self.store.get(collection, key).is_some() {
            return Err(WriteError::Stale);
        }
        let (Put::Keep(value) | Put::Remove(value)) = put;
        Ok(Arc::new(stamped(value, self.store.version())))
    }

    /// Replaces an object or its status.
    pub(super) async fn update(
        &self,
        call: &Call,
        mut new: Value,
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        check_kind(call, &mut new)?;
        place(call, &mut new)?;
        let named = call.name.as_deref().unwrap_or("");
        if object::name(&new) != named {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({named})",
                object::name(&new)
            )));
        }
        if call.resource.custom && object::meta(&new, "resourceVersion").is_empty() {
            let rule = "must be specified for an update";
            let fault =
                crate::failure::Fault::invalid("metadata.resourceVersion", &Value::from(0), rule);
            return Err(Failure::invalid(&call.resource, named, &[fault]));
        }
        self.change(call, part, Owners::Note, |_| Ok(new.clone())).await
    }

    /// Applies a patch of any format.
    pub(super) async fn patch(
        &self,
        call: &Call,
        media: &str,
        body: &[u8],
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        let patch = patch::read(media, body, &call.resource)?;
        if let patch::Patch::Apply(applied) = &patch {
            return self.apply(call, applied, part).await;
        }
        self.change(call, part, Owners::Note, |current| {
            patch::apply(&patch, &call.resource, current)
        })
        .await
    }

    /// Handles a server-side apply. Creates the object if it is missing.
    async fn apply(
        &self,
        call: &Call,
        applied: &Value,
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        if call.query.field_manager.is_none() {
            return Err(Failure::bad_request(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is \
                 required for apply patch",
            ));
        }
        let mut applied = applied.clone();
        check_kind(call, &mut applied)?;
        place(call, &mut applied)?;
        let manager = ssa::Manager {
            name: &call.manager,
            api_version: call.resource.api_version(),
            part,
            now: self.clock.now(),
        };
        let resource = &call.resource;
        let absent = self.store.get(&resource.collection, &call.key()).is_none();
        if absent && part == Part::Main {
            object::set_meta(&mut applied, "name", call.name.clone().unwrap_or_default());
            let new = ssa::create(resource, applied, &manager);
            return self.store_new(call, new).await;
        }
        self.change(call, part, Owners::Written, |current| {
            ssa::apply(resource, current, &applied, &manager, call.query.force)
        })
        .await
    }

    /// Updates an object by a function of its current state. Retries on conflict.
    async fn change(
        &self,
        call: &Call,
        part: Part,
        owners: Owners,
        change: impl Fn(&Value) -> Result<Value, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let resource = &call.resource;
        let key = call.key();
        for _ in 0..MAX_ATTEMPTS {
            let old = self.store.get(&resource.collection, &key);
            let old = old.ok_or_else(|| Failure::not_found(resource, &key.name))?;
            let shown = form::shown(resource, &old.value);
            let new = form::stored(resource, change(&shown)?);
            let mut admitted = admit::update(resource, &old.value, new, part, self.clock.now())?;
            strict(call, &admitted)?;
            if admitted.object == old.value {
                return Ok(self.show(call, StatusCode::OK, &old));
            }
            if owners == Owners::Note {
                self.record_owner(call, &old.value, &mut admitted.object, part);
            }
            let gone = object::is_deleting(&admitted.object)
                && object::finalizers(&admitted.object).next().is_none();
            let unknown = std::mem::take(&mut admitted.unknown);
            if call.query.dry_run {
                let shown = stamped(admitted.object, old.version);
                return Ok(self.show(call, StatusCode::OK, &shown));
            }
            let put = if gone { Put::Remove(admitted.object) } else { Put::Keep(admitted.object) };
            let collection = Arc::clone(&resource.collection);
            let expect = Some(old.version);
            match self.commit(Write { collection, key: key.clone(), expect, put }).await {
                Ok(stored) => {
                    self.recount(resource, &stored.value).await;
                    if gone {
                        self.clean_up(resource, &stored.value, Dependents::Delete).await;
                    }
                    let mut response = self.show(call, StatusCode::OK, &stored);
                    warn_unknown(call, &unknown, &mut response);
                    return Ok(response);
                }
                Err(WriteError::Stale) => {}
                Err(error) => return Err(Self::commit_failure(resource, &key.name, &error)),
            }
        }
        Err(Failure::modified(resource, &key.name))
    }

    /// Records the owner of the changed fields, on objects that were applied before.
    fn record_owner(&self, call: &Call, old: &Value, new: &mut Value, part: Part) {
        let manager = ssa::Manager {
            name: &call.manager,
            api_version: call.resource.api_version(),
            part,
            now: self.clock.now(),
        };
        ssa::note_update(&call.resource, old, new, &manager);
    }

    /// Commits a write. The resources of a definition are served before the definition becomes
    /// visible, so that a client that sees the definition finds its kind served.
    async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        let (Put::Keep(new), builtin::CRDS) = (&write.put, &*write.collection) else {
            return self.store.commit(write).await;
        };
        let _turn = self.definitions.lock().await;
        let before = self.store.get(&write.collection, &write.key);
        if before.as_ref().map(|before| before.version) != write.expect {
            return Err(WriteError::Stale);
        }
        let new = new.clone();
        self.register(&new, true);
        let stored = self.store.commit(write).await;
        if stored.is_err() {
            match before {
                Some(before) => self.register(&before.value, true),
                None => self.register(&new, false),
            }
        }
        stored
    }
}

/// Checks that kind and version in the body match the path.
fn check_kind(call: &Call, new: &mut Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let expected = [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())];
    for (field, expected) in expected {
        let map = object::map_of(new);
        let given = map.entry(field).or_insert_with(|| expected.clone().into());
        if given.as_str() != Some(expected.as_str()) {
            let what = if field == "kind" { "kind" } else { "API version" };
            let given = given.as_str().unwrap_or("").to_owned();
            return Err(Failure::bad_request(format!(
                "the {what} in the data ({given}) does not match the expected {what} ({expected})"
            )));
        }
    }
    Ok(())
}

/// Sets the object's namespace from the path.
fn place(call: &Call, new: &mut Value) -> Result<(), Failure> {
    let given = object::namespace(new).to_owned();
    match &call.namespace {
        Some(namespace) if given.is_empty() || given == *namespace => {
            object::set_meta(new, "namespace", namespace.clone());
            Ok(())
        }
        None if !call.resource.namespaced => {
            object::drop_meta(new, "namespace");
            Ok(())
        }
        Some(_) => Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        None => Err(Failure::bad_request("an empty namespace may not be set during creation")),
    }
}

fn unknown_fields(unknown: &[String]) -> String {
    let listed: Vec<String> =
        unknown.iter().map(|one| format!("unknown field \"{one}\"")).collect();
    listed.join(", ")
}

fn strict(call: &Call, admitted: &Admitted) -> Result<(), Failure> {
    if call.query.field_validation == "Strict" && !admitted.unknown.is_empty() {
        return Err(Failure::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            call.resource.kind,
            call.resource.version,
            call.resource.kind,
            unknown_fields(&admitted.unknown)
        )));
    }
    Ok(())
}

fn warn_unknown(call: &Call, unknown: &[String], response: &mut Response<Body>) {
    if matches!(call.query.field_validation.as_str(), "Warn" | "") && !unknown.is_empty() {
        for one in unknown {
            answer::warn(response, &format!("unknown field \"{one}\""));
        }
    }
}

/// Parses the body of a subresource request.
pub(super) fn body(bytes: &[u8]) -> Result<Value, Failure> {
    route::parse(bytes)
}
