//! Credentials of the image registry inside the cluster.

use mco_api::Bytes;
use serde_json::{Map, Value, json};

use super::FactsError;

/// Address of the registry inside the cluster.
const INTERNAL: &str = "image-registry.openshift-image-registry.svc:5000";
const DOCKER_CONFIG_JSON: &str = "kubernetes.io/dockerconfigjson";

/// Credentials in the cluster. They are not printable.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Whether the cluster has a ClusterOperator `image-registry`.
    pub has_registry: bool,
    /// Values of `.dockercfg` of the pull secrets of the service account `machine-os-puller`, by the
    /// name of the Secret; `None` without that account.
    pub puller: Option<Vec<(String, Vec<u8>)>>,
    /// Type and value of `.dockerconfigjson` of the Secret `openshift-config/pull-secret`.
    pub global: Option<(String, Vec<u8>)>,
}

/// Returns the credentials with which nodes pull from the registry inside the cluster; `None` if there
/// is no such registry.
pub(super) fn internal_registry(
    found: &Credentials,
    namespace: &str,
    base_domain: &str,
) -> Result<Option<Bytes>, FactsError> {
    let Some(puller) = found.puller.as_ref().filter(|_| found.has_registry) else {
        return Ok(None);
    };
    let mut auths = Map::new();
    for (name, config) in puller {
        let object = || format!("Secret {namespace}/{name}");
        auths.extend(object_of(config, object, ".dockercfg")?);
    }
    if let Some((kind, config)) = &found.global {
        let object = || "Secret openshift-config/pull-secret".to_owned();
        if kind != DOCKER_CONFIG_JSON {
            return Err(FactsError::Field {
                object: object(),
                field: "type",
                reason: format!("expected secret type {DOCKER_CONFIG_JSON} found {kind}"),
            });
        }
        if !config.is_empty() {
            let mut config = object_of(config, object, ".dockerconfigjson")?;
            if let Some(Value::Object(global)) = config.remove("auths") {
                auths.extend(global);
            }
        }
    }
    if let Some(entry) = auths.get(INTERNAL).cloned().filter(|_| !base_domain.is_empty()) {
        let route = format!("default-route-openshift-image-registry.apps.{base_domain}");
        auths.insert(route, entry);
    }
    if auths.is_empty() {
        return Ok(None);
    }
    Ok(Some(json!({"auths": auths}).to_string().into_bytes().into()))
}

/// Parses a JSON object. The error has no part of the text, which is secret.
fn object_of(
    text: &[u8],
    object: impl Fn() -> String,
    field: &'static str,
) -> Result<Map<String, Value>, FactsError> {
    serde_json::from_slice(text).map_err(|_| FactsError::Field {
        object: object(),
        field,
        reason: "is not a JSON object with registry credentials".to_owned(),
    })
}
