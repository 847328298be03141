//! A MachineConfig as the JSON that is written to a machine's disk.
//!
//! Compat: members in the order of the reference's Go types, no `apiVersion` and no `kind`
//! (pkg/server/server.go). `managedFields` is left out: no component on a machine reads it, and the
//! cached object does not have it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use mco_api::{MachineConfig, MachineConfigSpec};
use serde::Serialize;

use super::layout;

/// An object that cannot be serialized as JSON.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WriteError(serde_json::Error);

#[derive(Serialize)]
struct Object<'a> {
    metadata: Metadata<'a>,
    spec: &'a MachineConfigSpec,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generate_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<&'a Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<Owner<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    finalizers: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<bool>,
}

impl<'a> Metadata<'a> {
    fn of(meta: &'a ObjectMeta) -> Self {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        Self {
            name: meta.name.as_deref(),
            generate_name: meta.generate_name.as_deref(),
            uid: meta.uid.as_deref(),
            resource_version: meta.resource_version.as_deref(),
            generation: meta.generation.filter(|generation| *generation != 0),
            creation_timestamp: meta.creation_timestamp.as_ref(),
            deletion_timestamp: meta.deletion_timestamp.as_ref(),
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            labels: meta.labels.as_ref().filter(|labels| !labels.is_empty()),
            annotations: meta.annotations.as_ref().filter(|annotations| !annotations.is_empty()),
            owner_references: owners.iter().map(Owner::of).collect(),
            finalizers: meta.finalizers.as_deref().unwrap_or_default(),
        }
    }
}

impl<'a> Owner<'a> {
    fn of(owner: &'a OwnerReference) -> Self {
        Self {
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            uid: &owner.uid,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
    }
}

/// Serializes the object as compact JSON.
pub(super) fn json(config: &MachineConfig) -> Result<Vec<u8>, WriteError> {
    text(&Object { metadata: Metadata::of(&config.metadata), spec: &config.spec })
}

/// Serializes any value as compact JSON, with the reference's escapes.
pub(super) fn text(value: &impl Serialize) -> Result<Vec<u8>, WriteError> {
    Ok(layout::compact(&serde_json::to_vec(value).map_err(WriteError)?))
}
