//! ConfigMaps of OpenShift that the operator makes from others.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::api::{Patch, PatchParams};
use mco_cluster::{
    Api, CallError,
    apply::{self, Precondition},
};
use mco_core::controller_config::{
    self, Facts,
    source::{self, Source},
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::info;

use super::RenderConfigError;
use crate::Context;

const MANAGER: &str = "machine-config-operator";
const BUNDLE_KEY: &str = "ca-bundle.crt";

/// Time for which daemons are told that the CA certificates of the API server changed. In the reference
/// it ends with the next sync, and a daemon that is not connected then misses it.
const ROTATION: Duration = Duration::from_mins(5);

/// The copies, and the time of the last rotation.
#[derive(Default)]
pub(super) struct Copies {
    rotated: Mutex<Option<Instant>>,
}

impl Copies {
    /// Writes the copies that differ.
    pub(super) async fn write(
        &self,
        context: &Context,
        facts: &Facts,
    ) -> Result<(), RenderConfigError> {
        let (target, certificates) = controller_config::merged_registry_ca(facts);
        let found = context.facts.config_map(&target).await?;
        let owner = ("openshift.io/owning-component", "Machine Config Operator");
        if found.is_some() || !certificates.is_empty() {
            write(context, &target, found.as_deref(), &certificates, Data::Text, Some(owner))
                .await?;
        }
        let Some(bundle) = controller_config::kubeconfig_data(facts) else { return Ok(()) };
        let target = source::kubeconfig_data(facts.namespace());
        let found = context.facts.config_map(&target).await?;
        let data = [(BUNDLE_KEY.to_owned(), bundle)].into();
        let written = write(context, &target, found.as_deref(), &data, Data::Binary, None).await?;
        if written && found.is_some() {
            info!("CA certificates of the API server were rotated");
            *self.rotated.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Ok(())
    }

    pub(super) fn rotates(&self) -> bool {
        let rotated = self.rotated.lock().unwrap_or_else(PoisonError::into_inner);
        rotated.is_some_and(|time| time.elapsed() < ROTATION)
    }
}

/// Member of a ConfigMap with the contents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    Text,
    Binary,
}

/// Writes a ConfigMap if its contents differ. Returns true if it was written.
async fn write(
    context: &Context,
    target: &Source,
    found: Option<&ConfigMap>,
    wanted: &BTreeMap<String, Vec<u8>>,
    data: Data,
    annotation: Option<(&str, &str)>,
) -> Result<bool, RenderConfigError> {
    let has = found.map(source::contents);
    if has.as_ref() == Some(wanted) {
        return Ok(false);
    }
    let failed = |source| RenderConfigError::Write { object: target.to_string(), source };
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), &target.namespace);
    let annotations: BTreeMap<_, _> = annotation.into_iter().collect();
    let mut members = json!({"metadata": {"annotations": annotations}});
    let mut text: Map<String, Value> = Map::new();
    let mut binary: Map<String, Value> = Map::new();
    // Keys that are gone are removed, the last one too.
    for key in has.iter().flat_map(BTreeMap::keys).filter(|key| !wanted.contains_key(*key)) {
        text.insert(key.clone(), Value::Null);
        binary.insert(key.clone(), Value::Null);
    }
    for (key, bytes) in wanted {
        // A key may be in one of both members only.
        let (member, other, value) = match std::str::from_utf8(bytes) {
            Ok(utf8) if data == Data::Text => (&mut text, &mut binary, json!(utf8)),
            Ok(_) | Err(_) => (&mut binary, &mut text, json!(ByteString(bytes.clone()))),
        };
        member.insert(key.clone(), value);
        if found.is_some() {
            other.insert(key.clone(), Value::Null);
        }
    }
    if let Some(members) = members.as_object_mut() {
        members.insert("data".to_owned(), Value::Object(text));
        members.insert("binaryData".to_owned(), Value::Object(binary));
    }
    if found.is_some() {
        let merged = apply::merge(&api, &target.name, members, Precondition::Any).await;
        context.facts.map(target).learn(merged.map_err(failed)?);
    } else {
        // An apply names its object, so that the right to create it can be limited to the name.
        if let Some(members) = members.as_object_mut() {
            members.insert("apiVersion".to_owned(), json!("v1"));
            members.insert("kind".to_owned(), json!("ConfigMap"));
            let metadata = members.get_mut("metadata").and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                metadata.insert("name".to_owned(), json!(target.name));
                metadata.insert("namespace".to_owned(), json!(&target.namespace));
            }
        }
        let patch = Patch::Apply(members);
        let params = PatchParams::apply(MANAGER);
        let made = api.patch(&target.name, &params, &patch).await.map_err(CallError::from);
        context.facts.map(target).learn_new(made.map_err(failed)?);
    }
    info!(config_map = %target, "Wrote a ConfigMap");
    Ok(true)
}
