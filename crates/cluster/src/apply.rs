//! Writes that touch only the fields which the caller owns.
//!
//! Nearly all of them are merge patches with just those fields, so that fields of other writers are
//! never touched and writers of different fields never conflict. A patch carries a resource version
//! only if it would be wrong on any other state of the object. Where the API server must record the
//! owner of a field, the write is a server-side apply.

use std::collections::BTreeMap;

use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Api, CallError, Object, error::Rejection};

/// Changes to annotations or labels: the value to set, or `None` to remove the key.
pub type Changes = BTreeMap<String, Option<String>>;

/// The precondition of a write.
#[derive(Clone, Copy, Debug)]
pub enum Precondition<'a> {
    /// Valid for any state of the object.
    Any,
    /// Valid only while the object has this resource version.
    Unchanged(&'a str),
}

/// Sets and removes annotations.
pub async fn patch_annotations<K: Object>(
    api: &Api<K>,
    name: &str,
    changes: &Changes,
) -> Result<K, CallError> {
    merge(api, name, json!({"metadata": {"annotations": changes}}), Precondition::Any).await
}

/// Merges `members` into the object.
pub async fn merge<K: Object>(
    api: &Api<K>,
    name: &str,
    members: Value,
    guard: Precondition<'_>,
) -> Result<K, CallError> {
    let patch = Patch::Merge(guarded(members, guard));
    Ok(api.patch(name, &PatchParams::default(), &patch).await?)
}

/// Merges `status` into the object's status.
pub async fn merge_status<K: Object>(
    api: &Api<K>,
    name: &str,
    status: impl Serialize,
    guard: Precondition<'_>,
) -> Result<K, CallError> {
    let patch = Patch::Merge(guarded(json!({"status": status}), guard));
    Ok(api.patch_status(name, &PatchParams::default(), &patch).await?)
}

/// Applies `object` to the status with `manager` as the field manager.
pub async fn apply_status<K: Object>(
    api: &Api<K>,
    name: &str,
    manager: &str,
    object: Value,
    guard: Precondition<'_>,
) -> Result<K, CallError> {
    let patch = Patch::Apply(guarded(object, guard));
    Ok(api.patch_status(name, &PatchParams::apply(manager).force(), &patch).await?)
}

/// The result of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created<K> {
    /// The object did not exist; this is the created one.
    Now(Box<K>),
    /// The object existed and was not changed.
    Before,
}

/// Creates the object unless one of that name exists.
pub async fn create<K: Object>(api: &Api<K>, object: &K) -> Result<Created<K>, CallError> {
    match api.create(&PostParams::default(), object).await.map_err(CallError::from) {
        Ok(made) => Ok(Created::Now(Box::new(made))),
        Err(error) if error.rejection() == Some(Rejection::AlreadyExists) => Ok(Created::Before),
        Err(error) => Err(error),
    }
}

/// Creates the object unless one of that name exists, and returns the stored object.
pub async fn ensure<K: Object>(api: &Api<K>, name: &str, object: &K) -> Result<K, CallError> {
    match create(api, object).await? {
        Created::Now(made) => Ok(*made),
        Created::Before => Ok(api.get(name).await?),
    }
}

fn guarded(mut members: Value, guard: Precondition<'_>) -> Value {
    if let (Precondition::Unchanged(version), Some(object)) = (guard, members.as_object_mut()) {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), Value::from(version));
        }
    }
    members
}
