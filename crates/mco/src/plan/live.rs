//! Input of a forecast from a running cluster.

use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams},
};
use mco_cluster::{CallError, report};
use mco_core::lint::Object;
use serde_json::{Value, json};

use super::input::Input;
use crate::{
    command::apply::{MANAGER, api},
    live::{self, Scope},
    load::{self, Loaded},
    print,
    remote::kinds::{Kind, Kinds},
};

/// Fetches the cluster, and asks its API server for the result of the change without storing it.
pub(crate) async fn input(
    client: &Client,
    change: &Loaded,
    without: &[String],
) -> anyhow::Result<Input> {
    let current = live::fetch(client, Scope::Cluster).await?;
    let kinds = Kinds::fetch(client).await?;
    let mut changed = Loaded::default();
    for object in &change.objects {
        let Ok(kind) = kinds.of(&object.api_version, &object.kind) else {
            changed.objects.push(object.clone());
            continue;
        };
        match dry_run(client, kind, object).await? {
            Some(result) => {
                let text = serde_json::to_vec(&result)?;
                changed.extend(load::text(object.file.name.as_ref().as_ref(), text));
            }
            None => changed.objects.push(object.clone()),
        }
    }
    Input::of(current, changed, Loaded::default(), without)
}

/// Applies an object without storing it. Returns `None` if the user may not apply it.
async fn dry_run(client: &Client, kind: &Kind, object: &Object) -> anyhow::Result<Option<Value>> {
    let value: Value = serde_json::from_str(&object.root.to_json())?;
    let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
    let api = api(client, kind, namespace.unwrap_or(client.default_namespace()));
    let name = object.name.as_str();
    let params = PatchParams::apply(MANAGER).dry_run();
    let mut applied = api.patch(name, &params, &Patch::Apply(&value)).await;
    if let Err(error) = &applied
        && is_conflict(error)
    {
        print::note(&format!(
            "another field manager owns fields of {}; `mco apply` needs --force-conflicts",
            kind.label(name)
        ));
        applied = api.patch(name, &params.force(), &Patch::Apply(&value)).await;
    }
    match applied {
        Ok(applied) => Ok(Some(typed(kind, &applied)?)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            print::note(&format!(
                "the API server did not check {}: you may not change it",
                kind.label(name)
            ));
            Ok(None)
        }
        Err(error) => {
            let error = CallError::from(error);
            let label = kind.label(name);
            anyhow::bail!("the API server refuses {label}: {}", report::chain(&error))
        }
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn typed(kind: &Kind, object: &DynamicObject) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(members) = value.as_object_mut() {
        members.insert("apiVersion".to_owned(), json!(kind.api_version()));
        members.insert("kind".to_owned(), json!(kind.name));
    }
    Ok(value)
}
