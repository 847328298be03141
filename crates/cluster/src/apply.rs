//! Writes of what we own, and of nothing else.
//!
//! Nearly everything is a merge patch that names only our own members, so a member that somebody else
//! writes is never touched, and two writers of different members never meet. A resource version
//! goes along only where the write would be wrong on any other state of the object. Where the API is
//! to know whose a member is, the write is a server-side apply.

use std::{collections::BTreeMap, fmt::Debug};

use kube::{
    Api, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{CallError, error::Refused};

/// Changes to annotations or labels: a value to set, or `None` to take the key away.
pub type Changes = BTreeMap<String, Option<String>>;

/// Whether a write depends on the state that it was decided on.
#[derive(Clone, Copy, Debug)]
pub enum Guard<'a> {
    /// Right on any state of the object.
    Any,
    /// Only right while the object has this resource version.
    Unchanged(&'a str),
}

/// An object that can be written and comes back as it is then.
pub trait Object: Resource + Clone + DeserializeOwned + Debug {}

impl<K: Resource + Clone + DeserializeOwned + Debug> Object for K {}

/// Sets and removes annotations.
pub async fn patch_annotations<K: Object>(
    api: &Api<K>,
    name: &str,
    changes: &Changes,
) -> Result<K, CallError> {
    merge(api, name, json!({"metadata": {"annotations": changes}}), Guard::Any).await
}

/// Merges `members` into the object.
pub async fn merge<K: Object>(
    api: &Api<K>,
    name: &str,
    members: Value,
    guard: Guard<'_>,
) -> Result<K, CallError> {
    let patch = Patch::Merge(guarded(members, guard));
    Ok(api.patch(name, &PatchParams::default(), &patch).await?)
}

/// Merges `status` into the object's status.
pub async fn merge_status<K: Object>(
    api: &Api<K>,
    name: &str,
    status: impl Serialize,
    guard: Guard<'_>,
) -> Result<K, CallError> {
    let patch = Patch::Merge(guarded(json!({"status": status}), guard));
    Ok(api.patch_status(name, &PatchParams::default(), &patch).await?)
}

/// Makes `manager` the owner of what `object` says in its status.
pub async fn own_status<K: Object>(
    api: &Api<K>,
    name: &str,
    manager: &str,
    object: Value,
    guard: Guard<'_>,
) -> Result<K, CallError> {
    let patch = Patch::Apply(guarded(object, guard));
    Ok(api.patch_status(name, &PatchParams::apply(manager).force(), &patch).await?)
}

/// Whether a create was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created<K> {
    /// It was not there; this is what was made.
    Now(Box<K>),
    /// It was there already and was left alone.
    Before,
}

/// Creates the object unless one of its name exists.
pub async fn create<K>(api: &Api<K>, object: &K) -> Result<Created<K>, CallError>
where
    K: Object + Serialize,
{
    match api.create(&PostParams::default(), object).await.map_err(CallError::from) {
        Ok(made) => Ok(Created::Now(Box::new(made))),
        Err(error) if error.refused() == Some(Refused::AlreadyExists) => Ok(Created::Before),
        Err(error) => Err(error),
    }
}

/// Creates the object unless one of its name exists; gives back what is there then.
pub async fn ensure<K: Object + Serialize>(
    api: &Api<K>,
    name: &str,
    object: &K,
) -> Result<K, CallError> {
    match create(api, object).await? {
        Created::Now(made) => Ok(*made),
        Created::Before => Ok(api.get(name).await?),
    }
}

fn guarded(mut members: Value, guard: Guard<'_>) -> Value {
    if let (Guard::Unchanged(version), Some(object)) = (guard, members.as_object_mut()) {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), Value::from(version));
        }
    }
    members
}
