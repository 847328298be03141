//! Create, update and patch requests.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;

use super::{Body, Call, Server, answer, dependents::Dependents};
use crate::{
    admit::{self, Admitted, Part},
    body::{self, Decoded},
    failure::{Failure, type_name},
    form, object,
    patch::{self, ssa},
    resource::{Resource, builtin},
    store::{Key, Object, Put, Write, WriteError, stamped},
    types,
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
        read: Decoded,
    ) -> Result<Response<Body>, Failure> {
        let mut new = read.value;
        check_kind(call, &mut new)?;
        self.store_new(call, new, &read.duplicates).await
    }

    async fn store_new(
        &self,
        call: &Call,
        mut new: Value,
        duplicates: &[String],
    ) -> Result<Response<Body>, Failure> {
        let resource = &call.resource;
        place(call, &mut new)?;
        self.check_namespace(call, object::name(&new))?;
        let generated = object::name(&new).is_empty();
        for _ in 0..MAX_ATTEMPTS {
            let new = form::stored(resource, new.clone());
            let admitted = admit::create(resource, new, self.clock.now(), (self.entropy)())?;
            let notes = notes(duplicates, &admitted);
            strict(call, &notes)?;
            let name = object::name(&admitted.object).to_owned();
            let key = Key::new(object::namespace(&admitted.object), &name);
            let collection = Arc::clone(&resource.collection);
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
                    warn(call, &notes, &mut response);
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
        let bytes = serde_json::to_vec(&value).expect("a JSON value can be encoded").into();
        Ok(Arc::new(Object { value, bytes, version: 0 }))
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
        if call.resource.custom && object::meta(&new, "resourceVersion").is_empty() {
            let rule = "must be specified for an update";
            let fault =
                crate::failure::Fault::invalid("metadata.resourceVersion", &Value::from(0), rule);
            return Err(Failure::invalid(&call.resource, named, &[fault]));
        }
        self.change(call, part, Owners::Note, &read.duplicates, |_| Ok(new.clone())).await
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
        self.change(call, part, Owners::Note, &[], |current| {
            let new = patch::apply(&patch, current)?;
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
        part: Part,
    ) -> Result<Response<Body>, Failure> {
        let mut applied = applied.clone();
        check_applied(call, &applied)?;
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
            return self.store_new(call, new, &[]).await;
        }
        self.change(call, part, Owners::Written, &[], |current| {
            ssa::apply(resource, current, &applied, &manager, call.query.force)
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
        self.change(call, Part::Main, Owners::Note, &[], change).await.map(drop)
    }

    /// Updates an object by a function of its current state. Retries on conflict.
    async fn change(
        &self,
        call: &Call,
        part: Part,
        owners: Owners,
        duplicates: &[String],
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
            let notes = notes(duplicates, &admitted);
            strict(call, &notes)?;
            if admitted.object == old.value {
                let mut response = self.show(call, StatusCode::OK, &old);
                warn(call, &notes, &mut response);
                return Ok(response);
            }
            if owners == Owners::Note {
                self.record_owner(call, &old.value, &mut admitted.object, part);
            }
            let gone = object::is_deleting(&admitted.object)
                && object::finalizers(&admitted.object).next().is_none();
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
                    warn(call, &notes, &mut response);
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

/// Checks that kind and version in the body match the path, and fills them in.
fn check_kind(call: &Call, new: &mut Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let (expected, kind) = (resource.api_version(), &resource.kind);
    let given = |field| object::text(new, &[field]).to_owned();
    let (version, found) = (given("apiVersion"), given("kind"));
    let raw = new.to_string();
    let unrecognized = |why: &str| body::unrecognized(kind, why, raw.as_bytes());
    for field in ["apiVersion", "kind"] {
        let value = new.get(field).unwrap_or(&Value::Null);
        if !value.is_null() && !value.is_string() {
            return Err(unrecognized(&format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go \
                 struct field .{field} of type string",
                if value.is_number() { "number" } else { type_name(value) }
            )));
        }
    }
    let metadata = new.get("metadata").filter(|it| !it.is_null() && !it.is_object());
    if let Some(why) = metadata.and_then(|_| admit::unreadable(resource, new)) {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {kind}: {why}",
            resource.version
        )));
    }
    if resource.custom && found.is_empty() {
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{raw}'")));
    }
    if version.split('/').count() > 2 {
        return Err(unrecognized(&format!("unexpected GroupVersion string: {version}")));
    }
    let wanted = |given: &str, expected: &str| given.is_empty() || given == expected;
    if !wanted(&version, &expected) || !wanted(&found, kind) {
        return Err(other_kind(call, &version, &found));
    }
    let map = object::map_of(new);
    map.insert("apiVersion".into(), expected.into());
    map.insert("kind".into(), kind.clone().into());
    Ok(())
}

/// 400: the body has the kind `found` instead of the kind of the path.
fn other_kind(call: &Call, version: &str, found: &str) -> Failure {
    let resource = &call.resource;
    let (group, only) = version.split_once('/').unwrap_or(("", version));
    let only = if only.is_empty() { resource.version.as_str() } else { only };
    if resource.custom {
        let (what, given, expected) = if found == resource.kind {
            ("API version", version.to_owned(), resource.api_version())
        } else {
            ("kind", found.to_owned(), resource.kind.clone())
        };
        return Failure::bad_request(format!(
            "the {what} in the data ({given}) does not match the expected {what} ({expected})"
        ));
    }
    let is_known = types::of_kind(group, only, found).is_some();
    let package = resource.group.split('.').next().filter(|it| !it.is_empty()).unwrap_or("core");
    let why = if is_known {
        format!("converting ({only}.{found}) to ({package}.{}): unknown conversion", resource.kind)
    } else {
        format!(
            "no kind \"{found}\" is registered for version \"{version}\" in scheme \
             \"pkg/runtime/scheme.go:111\""
        )
    };
    let kind = &resource.kind;
    Failure::bad_request(format!(
        "{found} in version \"{only}\" cannot be handled as a {kind}: {why}"
    ))
}

/// Checks that an applied object is of the kind of the path.
fn check_applied(call: &Call, applied: &Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let of = |field| object::text(applied, &[field]);
    let (group, version) = of("apiVersion").split_once('/').unwrap_or(("", of("apiVersion")));
    if of("kind") != resource.kind || of("apiVersion") != resource.api_version() {
        let kind = of("kind");
        let message = format!("invalid object type: {group}/{version}, Kind={kind}");
        return Err(Failure::bad_request(message));
    }
    let is_given = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    if object::at(applied, &["metadata", "managedFields"]).is_some_and(is_given) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(why) = admit::unreadable(resource, applied) {
        let place = format!("{}/{}", object::namespace(applied), object::name(applied));
        return Err(Failure::unexplained(format!(
            "failed to create typed patch object ({place}; {group}/{version}, Kind={}): {why}",
            resource.kind
        )));
    }
    let (name, named) = (object::name(applied), call.name.as_deref().unwrap_or(""));
    if !name.is_empty() && name != named {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({named})"
        )));
    }
    Ok(())
}

/// 400: the object has no name.
fn undeterminable(named: &str) -> Failure {
    Failure::bad_request(format!(
        "the name of the object ({named} based on URL) was undeterminable: name must be provided"
    ))
}

/// Returns the failure of a patch whose result cannot be read.
fn as_patch(failure: Failure, call: &Call) -> Failure {
    let Resource { kind, version, .. } = &*call.resource;
    let prefix = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: ");
    match failure.message.strip_prefix(&prefix) {
        Some(why) => Failure::invalid_patch(why),
        None => failure,
    }
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

/// Returns what strict decoding objects to.
fn notes(duplicates: &[String], admitted: &Admitted) -> Vec<String> {
    let duplicates = duplicates.iter().map(|one| format!("duplicate field \"{one}\""));
    let unknown = admitted.unknown.iter().map(|one| format!("unknown field \"{one}\""));
    duplicates.chain(unknown).collect()
}

fn strict(call: &Call, notes: &[String]) -> Result<(), Failure> {
    if call.query.field_validation == "Strict" && !notes.is_empty() {
        return Err(Failure::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            call.resource.kind,
            call.resource.version,
            call.resource.kind,
            notes.join(", ")
        )));
    }
    Ok(())
}

fn warn(call: &Call, notes: &[String], response: &mut Response<Body>) {
    if matches!(call.query.field_validation.as_str(), "Warn" | "") {
        for note in notes {
            answer::warn(response, note);
        }
    }
}
