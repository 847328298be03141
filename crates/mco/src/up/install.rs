//! What a cluster has before the operator comes: its kinds and its namespace.

use anyhow::Context as _;
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use mco_api::label;
use mco_cluster::{CallError, apply};
use serde_json::json;

/// Who owns what is installed.
const MANAGER: &str = "mco-up";

/// Installs everything; what is there already is brought up to date.
pub(crate) async fn all(client: &Client) -> anyhow::Result<()> {
    let namespace = json!({"metadata": {"name": label::NAMESPACE}});
    let namespace: Namespace = serde_json::from_value(namespace)?;
    let made = apply::create(&Api::all(client.clone()), &namespace).await;
    made.with_context(|| format!("cannot create namespace {}", label::NAMESPACE))?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    for definition in mco_api::crds() {
        let name = definition.name_any();
        let applied = api.patch(&name, &params, &Patch::Apply(&definition)).await;
        applied.map_err(CallError::from).with_context(|| format!("cannot install {name}"))?;
    }
    Ok(())
}
