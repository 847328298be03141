//! Carries out the plans of the controllers.

mod nodes;
mod services;
mod workloads;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Resource,
    api::{DeleteParams, PostParams},
    core::NamespaceResourceScope,
};
use mco_cluster::{
    Api, Cache, CallError, Object,
    apply::{self, Precondition},
};
use serde::Serialize;
use serde_json::Value;

/// Treats an object that is gone, or that another write changed meanwhile, as no failure: the watch
/// delivers its state, and the next pass plans again.
fn unless_changed<T>(done: Result<T, CallError>) -> Result<Option<T>, CallError> {
    use mco_cluster::error::Rejection;
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_not_found() || error.rejection() == Some(Rejection::Conflict) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns true if a status differs from the stored one. Members that are null are to be removed.
fn differs(before: Option<&impl Serialize>, wanted: &Value) -> bool {
    let before = before.and_then(|status| serde_json::to_value(status).ok());
    let before = before.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    without_nulls(&before) != without_nulls(wanted)
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Writes a status if it differs.
async fn write_status<K>(
    api: &Api<K>,
    cache: &Cache<K>,
    name: &str,
    before: Option<&impl Serialize>,
    wanted: &Value,
) -> Result<(), CallError>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    if !differs(before, wanted) {
        return Ok(());
    }
    let written = apply::merge_status(api, name, wanted, Precondition::Any).await;
    if let Some(written) = unless_changed(written)? {
        cache.learn(written);
    }
    Ok(())
}

impl super::Controllers {
    async fn create_pod(&self, namespace: Option<&str>, pod: &Pod) -> Result<(), CallError> {
        let api: Api<Pod> = self.api(namespace);
        match api.create(&PostParams::default(), pod).await.map_err(CallError::from) {
            Ok(made) => self.pods.learn_new(made),
            // The namespace is being deleted, and the owner with it.
            Err(error) if error.is_not_found() || is_terminating(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn delete_pod(&self, namespace: &str, name: &str) -> Result<(), CallError> {
        let api: Api<Pod> = self.api(Some(namespace));
        let deleted = api.delete(name, &DeleteParams::default()).await.map_err(CallError::from);
        unless_changed(deleted).map(drop)
    }
}

fn is_terminating(error: &CallError) -> bool {
    error.to_string().contains("is being terminated")
}
