//! Create, update and patch requests.

mod check;
mod notes;

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;

use super::{Body, Call, Server, dependents, steps::Steps};
use crate::{
    admit::{self, Part},
    body::Decoded,
    failure::{Failure, Fault},
    form, object,
    patch::{
        self,
        managed::{self, Manager},
        ssa,
    },
    resource::{Resource, builtin},
    store::{Key, Object, Put, Write, WriteError, unstored},
};
pub(super) use check::place;
use check::{as_patch, check_applied, check_kind, check_patched, undeterminable};
use notes::{notes, strict, warn};

/// Maximum number of attempts when a write without resourceVersion conflicts with other writes.
const MAX_ATTEMPTS: usize = 32;

/// The way in which the owners of changed fields are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owners {
    /// The change records them itself.
    Written,
    /// The manager of the request becomes the owner, through this subresource.
    Record(&'static str),
}

/// Returns the subresource through which a request writes a part.
fn subresource(call: &Call, part: Part) -> &'static str {
    match part {
        Part::Main if call.subresource == "finalize" => "finalize",
        Part::Main => "",
        Part::Status if call.subresource == "approval" => "approval",
        Part::Status => "status",
    }
}

impl Server {
    /// Creates an object.
    pub(super) async fn create(
        &self,
        call: &Call,
        read: Decoded,
    ) -> Result<Response<Body>, Failure> {
        let mut new = read.value;
        check_kind(call, &mut new)?;
        self.store_new(call, new, &read.notes, Owners::Record("")).await
    }

    async fn store_new(
        &self,
        call: &Call,
        mut new: Value,
        objections: &[String],
        owners: Owners,
    ) -> Result<Response<Body>, Failure> {
        let resource = &call.resource;
        place(call, &mut new)?;
        self.check_namespace(call, object::name(&new))?;
        self.check_definition(resource, object::name(&new))?;
        self.check_grant(call, &new, None)?;
        let generated = object::name(&new).is_empty();
        for _ in 0..MAX_ATTEMPTS {
            let new = if generated { new.clone() } else { std::mem::take(&mut new) };
            let new = form::stored(resource, new);
            let own = |object: &mut Value| {
                if let Owners::Record(subresource) = owners {
                    let manager = self.manager(call, Part::Main, subresource);
                    managed::created(resource, object, &manager);
                }
            };
            let admitted = admit::create(resource, new, self.clock.now(), (self.entropy)(), own)?;
            self.check_write(call, "CREATE", Some(&admitted.object), None)?;
            let notes = notes(objections, &admitted);
            strict(call, &notes)?;
            let name = object::name(&admitted.object).to_owned();
            let key = Key::new(object::namespace(&admitted.object), &name);
            let collection = Arc::clone(&resource.collection);
            let put = Put::Keep(admitted.object);
            let stored = if call.query.dry_run {
                self.dry_run(&collection, &key, put)
            } else {
                let write = Write { collection, key: key.clone(), expect: None, put };
                self.commit_new(call, write).await?
            };
            match stored {
                Ok(stored) => {
                    if &*resource.collection == "events" {
                        self.expire_events().await;
                    } else if !call.query.dry_run {
                        self.recount(resource, &stored, None).await;
                        self.follow(resource, &stored, false).await;
                    }
                    let mut response = self.show(call, StatusCode::CREATED, &stored);
                    warn(call, &notes, &mut response);
                    return Ok(response);
                }
                // The generated name is in use: the next attempt generates another.
                Err(WriteError::Stale) if generated => {}
                Err(WriteError::Stale) => return Err(self.exists(resource, &key)),
                Err(error) => return Err(Self::commit_failure(resource, &name, &error)),
            }
        }
        Err(Failure::internal("no free name was found"))
    }

    /// Commits a new object, unless its namespace or its definition was deleted since it was checked.
    async fn commit_new(
        &self,
        call: &Call,
        write: Write,
    ) -> Result<Result<Arc<Object>, WriteError>, Failure> {
        let _turn = self.removals.read().await;
        self.check_namespace(call, &write.key.name)?;
        self.check_definition(&call.resource, &write.key.name)?;
        Ok(self.commit(write).await)
    }

    /// Does what follows from a write: the removal of an object, or an owner that does not exist.
    async fn follow(&self, resource: &Arc<Resource>, written: &Object, is_gone: bool) {
        let mut steps = Steps::default();
        if is_gone {
            self.removed(resource, written, &mut steps);
        } else {
            self.collect(resource, written, &mut steps).await;
        }
        if &*resource.collection == builtin::NAMESPACES && written.head.is_deleting {
            self.empty_namespace(&written.head.name, &mut steps);
        }
        self.run(steps).await;
    }

    /// 409: an object of this name exists, perhaps not much longer.
    fn exists(&self, resource: &Resource, key: &Key) -> Failure {
        let mut failure = Failure::exists(resource, &key.name);
        let found = self.store.get(&resource.collection, key);
        if found.is_some_and(|found| found.head.is_deleting) {
            failure.message = format!("object is being deleted: {}", failure.message);
        }
        failure
    }

    fn dry_run(&self, collection: &str, key: &Key, put: Put) -> Result<Arc<Object>, WriteError> {
        if self.store.get(collection, key).is_some() {
            return Err(WriteError::Stale);
        }
        let (Put::Keep(value) | Put::Remove(value)) = put;
        unstored(value, 0).map(Arc::new)
    }

    /// Replaces an object or its status.
    pub(super) async fn update(
        &self,
        call: &Call,
        read: Decoded,
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        let mut new = read.value;
        check_kind(call, &mut new)?;
        place(call, &mut new)?;
        let named = call.name.as_deref().unwrap_or("");
        if object::name(&new).is_empty() {
            return Err(undeterminable(named));
        }
        if object::name(&new) != named {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({named})",
                object::name(&new)
            )));
        }
        if self.store.get(&call.resource.collection, &call.key()).is_none() {
            if call.resource.is_created_by_update()
                && object::meta(&new, "resourceVersion").is_empty()
            {
                let made = self.store_new(call, new.clone(), &read.notes, Owners::Record(""));
                match made.await {
                    // Another request has created the object meanwhile.
                    Err(failure) if failure.is_exists() => {}
                    made => return made,
                }
            } else {
                return Err(Failure::not_found(&call.resource, named));
            }
        }
        if call.resource.needs_version() && object::meta(&new, "resourceVersion").is_empty() {
            let rule = "must be specified for an update";
            let fault = Fault::invalid("metadata.resourceVersion", &Value::from(0), rule);
            let Resource { group, plural, .. } = &*call.resource;
            return Err(Failure::invalid_kind(group, plural, named, &[fault]));
        }
        let owners = Owners::Record(subresource(call, part));
        self.change(call, part, owners, &read.notes, |_| Ok(new.clone())).await
    }

    /// Applies a patch of any format.
    pub(super) async fn patch(
        &self,
        call: &Call,
        media: &str,
        body: &[u8],
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        let (patch, given) = patch::read(media, body, &call.resource)?;
        if let patch::Patch::Apply(applied) = &patch {
            let is_strict = call.query.field_validation == "Strict";
            if let Some(note) = given.first().filter(|_| is_strict) {
                let why = "error strict decoding YAML: error converting YAML to JSON";
                return Err(Failure::bad_request(format!("{why}: {note}")));
            }
            return self.apply(call, applied, &given, part).await;
        }
        let owners = Owners::Record(subresource(call, part));
        self.change(call, part, owners, &given, |current| {
            let new = patch::apply(&patch, current, &call.resource)?;
            check_patched(call, &new)?;
            let named = call.name.as_deref().unwrap_or("");
            match object::name(&new) {
                "" => Err(undeterminable(named)),
                name if name != named => Err(Failure::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({named})"
                ))),
                _ => Ok(new),
            }
        })
        .await
        .map_err(|failure| as_patch(failure, call))
    }

    /// Handles a server-side apply. Creates the object if it is missing.
    async fn apply(
        &self,
        call: &Call,
        applied: &Value,
        objections: &[String],
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        check_applied(call, applied)?;
        let mut placed = applied.clone();
        place(call, &mut placed)?;
        let manager = self.manager(call, part, subresource(call, part));
        let resource = &call.resource;
        let absent = self.store.get(&resource.collection, &call.key()).is_none();
        if absent && part == Part::Main && object::name(&placed).is_empty() {
            return Err(undeterminable(call.name.as_deref().unwrap_or("")));
        }
        if absent && part == Part::Main {
            object::set_meta(&mut placed, "name", call.name.clone().unwrap_or_default());
            let new = ssa::create(resource, placed, &manager);
            match self.store_new(call, new, objections, Owners::Written).await {
                // Another request has created the object meanwhile.
                Err(failure) if failure.is_exists() => {}
                made => return made,
            }
        }
        self.change(call, part, Owners::Written, objections, |current| {
            ssa::apply(resource, current, applied, &manager, call.query.force)
        })
        .await
    }

    /// Sets the number of replicas of an object.
    pub(super) async fn set_replicas(&self, call: &Call, replicas: &Value) -> Result<(), Failure> {
        let change = |current: &Value| {
            let mut new = current.clone();
            object::map_mut(object::map_of(&mut new), "spec")
                .insert("replicas".into(), replicas.clone());
            Ok(new)
        };
        self.change(call, Part::Main, Owners::Record("scale"), &[], change).await.map(drop)
    }

    /// Updates an object by a function of its current state. Retries on conflict.
    async fn change(
        &self,
        call: &Call,
        part: Part,
        owners: Owners,
        objections: &[String],
        change: impl Fn(&Value) -> Result<Value, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let resource = &call.resource;
        let key = call.key();
        for _ in 0..MAX_ATTEMPTS {
            let old = self.store.get(&resource.collection, &key);
            let old = old.ok_or_else(|| Failure::not_found(resource, &key.name))?;
            let before = old.whole();
            let shown = form::shown(resource, &before);
            let mut new = form::stored(resource, change(&shown)?);
            keep_finalizers(call, &before, &mut new);
            self.check_grant(call, &new, Some(&before))?;
            let own = |object: &mut Value, given| {
                if let Owners::Record(subresource) = owners {
                    let manager = self.manager(call, part, subresource);
                    managed::updated(resource, &before, object, given, &manager);
                }
            };
            let given = managed::given(&before, &new, part);
            let own = |object: &mut Value| own(object, given);
            let now = self.clock.now();
            let mut admitted = admit::update(resource, &before, new, part, now, own)?;
            managed::keep_times(&before, &mut admitted.object);
            self.check_write(call, "UPDATE", Some(&admitted.object), Some(&before))?;
            let notes = notes(objections, &admitted);
            strict(call, &notes)?;
            if admitted.object == before {
                let mut response = self.show(call, StatusCode::OK, &old);
                warn(call, &notes, &mut response);
                return Ok(response);
            }
            let gone = dependents::is_finished(resource, &admitted.object);
            if call.query.dry_run {
                let shown = unstored(admitted.object, old.version)
                    .map_err(|error| Self::commit_failure(resource, &key.name, &error))?;
                let mut response = self.show(call, StatusCode::OK, &shown);
                warn(call, &notes, &mut response);
                return Ok(response);
            }
            let put = if gone { Put::Remove(admitted.object) } else { Put::Keep(admitted.object) };
            let collection = Arc::clone(&resource.collection);
            let expect = Some(old.version);
            match self.commit(Write { collection, key: key.clone(), expect, put }).await {
                Ok(stored) => {
                    self.recount(resource, &stored, Some(&old)).await;
                    self.follow(resource, &stored, gone).await;
                    let mut response = self.show(call, StatusCode::OK, &stored);
                    warn(call, &notes, &mut response);
                    return Ok(response);
                }
                Err(WriteError::Stale) => {}
                Err(error) => return Err(Self::commit_failure(resource, &key.name, &error)),
            }
        }
        Err(Failure::modified(resource, &key.name))
    }

    /// Returns the field manager of a request.
    fn manager<'a>(&self, call: &'a Call, part: Part, subresource: &'static str) -> Manager<'a> {
        let api_version = call.resource.api_version();
        Manager { name: &call.manager, api_version, subresource, part, now: self.clock.now() }
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
                Some(before) => self.register(&before.value(), true),
                None => self.register(&new, false),
            }
        }
        stored
    }
}

/// Restores the finalizers in the spec of a namespace, which only its subresource `finalize` changes.
fn keep_finalizers(call: &Call, old: &Value, new: &mut Value) {
    if &*call.resource.collection != builtin::NAMESPACES || call.subresource == "finalize" {
        return;
    }
    let spec = object::map_mut(object::map_of(new), "spec");
    match object::at(old, &["spec", "finalizers"]) {
        Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers.clone()),
        None => spec.remove("finalizers"),
    };
}
