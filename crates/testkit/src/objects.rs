//! Objects that most tests of a cluster need: those that an operator and users create, and nodes as
//! a daemon leaves them after an update.

use anyhow::Context as _;
use k8s_openapi::{
    api::core::v1::Node,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
    },
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, annotation, label};
use serde_json::json;

/// Builds a Ready worker node that runs `config`.
#[must_use]
pub fn worker(name: &str, config: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux"},
            "annotations": {
                annotation::CURRENT_CONFIG.name(): config,
                annotation::DESIRED_CONFIG.name(): config,
                annotation::STATE.name(): "Done",
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .expect("the JSON above is a Node")
}

/// Builds the pool of a role, with selectors for its configs and its nodes.
#[must_use]
pub fn pool(role: &str) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": role},
        "spec": {
            "machineConfigSelector": {"matchLabels": {label::ROLE: role}},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{role}"): ""}},
        },
    }))
    .expect("the JSON above is a MachineConfigPool")
}

/// Builds a config of a role with one file. The contents must not need URL escapes.
#[must_use]
pub fn config(name: &str, role: &str, path: &str, contents: &str) -> MachineConfig {
    let source = format!("data:,{contents}");
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: role}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": path, "mode": 0o644, "contents": {"source": source}},
        ]}}},
    }))
    .expect("the JSON above is a MachineConfig")
}

/// Creates the ControllerConfig that the operator of this version would create.
pub async fn create_controller_config(client: &Client, version: &str) -> anyhow::Result<()> {
    let cluster = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": label::CONTROLLER_CONFIG, "annotations": {
            annotation::GENERATED_BY_VERSION.name(): version,
            annotation::RELEASE_IMAGE_VERSION.name(): "4.20.0",
        }},
    });
    let mut cluster: ControllerConfig = serde_json::from_value(cluster)?;
    "quay.test/os@sha256:0".clone_into(&mut cluster.spec.base_os_container_image);
    cluster.spec.kube_api_server_serving_ca_data = b"authority".to_vec().into();
    cluster.spec.root_ca_data = b"authority".to_vec().into();
    let api = Api::<ControllerConfig>::all(client.clone());
    let made = api.create(&PostParams::default(), &cluster).await;
    let made = made.context("failed to create the ControllerConfig")?;
    let status = json!({"status": {"observedGeneration": made.metadata.generation, "conditions": [
        {"type": "TemplateControllerCompleted", "status": "True",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}});
    let status = Patch::Merge(status);
    api.patch_status(label::CONTROLLER_CONFIG, &PatchParams::default(), &status).await?;
    Ok(())
}

/// Removes the schema of a kind, so that the API server accepts objects that no client can decode, as
/// those of a later version may be.
pub async fn accept_everything<K: Resource<DynamicType = ()>>(
    client: &Client,
) -> Result<(), kube::Error> {
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let mut definition = definitions.get(&name).await?;
    let schema = JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    for version in &mut definition.spec.versions {
        let schema = Some(schema.clone());
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: schema });
    }
    definitions.replace(&name, &PostParams::default(), &definition).await.map(drop)
}
