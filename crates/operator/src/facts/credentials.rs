//! Reads the credentials of registries of an OpenShift cluster.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Client;
use mco_api::ClusterOperator;
use mco_cluster::{Api, CallError, Object, client::namespace, error::Rejection};
use mco_core::controller_config::{Credentials, source::CONFIG};

use super::{PULL_SECRET, PULLER, RenderConfigError};

const IMAGE_REGISTRY: &str = "image-registry";

/// Reads the credentials. They are not cached. Adds to `warnings` a Secret that the operator may not
/// read: its name is generated, so that no manifest can give the right to read it alone.
pub(super) async fn read(
    client: &Client,
    warnings: &mut Vec<String>,
) -> Result<Credentials, RenderConfigError> {
    let registry = Api::<ClusterOperator>::all(client.clone());
    let has_registry = get(&registry, "ClusterOperator", IMAGE_REGISTRY).await?.is_some();
    let accounts = Api::<ServiceAccount>::own(client.clone());
    let account = get(&accounts, "ServiceAccount", PULLER).await?;
    let Some(account) = account.filter(|_| has_registry) else {
        return Ok(Credentials { has_registry, ..Credentials::default() });
    };
    let secrets = Api::<Secret>::own(client.clone());
    let mut puller = Vec::new();
    for reference in account.image_pull_secrets.unwrap_or_default() {
        let name = reference.name;
        let found = match get(&secrets, "Secret", &name).await {
            Err(RenderConfigError::Read { source, .. })
                if source.rejection() == Some(Rejection::Other(403)) =>
            {
                warnings.push(denied(namespace(client), &name));
                continue;
            }
            found => found?,
        };
        let Some(secret) = found else { continue };
        let config = secret.data.unwrap_or_default().remove(".dockercfg");
        puller.extend(config.map(|config| (name, config.0)));
    }
    let secrets = Api::<Secret>::namespaced(client.clone(), CONFIG);
    let global = get(&secrets, "Secret", PULL_SECRET).await?.map(|secret| {
        let data = secret.data.unwrap_or_default().remove(".dockerconfigjson");
        (secret.type_.unwrap_or_default(), data.unwrap_or_default().0)
    });
    Ok(Credentials { has_registry, puller: Some(puller), global })
}

fn denied(namespace: &str, name: &str) -> String {
    format!(
        "the operator may not read Secret {namespace}/{name} with credentials of the registry inside the \
         cluster; allow it with: kubectl -n {namespace} create role registry-credentials --verb=get \
         --resource=secrets, and kubectl -n {namespace} create rolebinding registry-credentials \
         --role=registry-credentials --serviceaccount={namespace}:machine-config-operator"
    )
}

async fn get<K: Object>(
    api: &Api<K>,
    kind: &str,
    name: &str,
) -> Result<Option<K>, RenderConfigError> {
    let found = api.get_opt(name).await.map_err(CallError::from);
    let object = || format!("{kind} {name}");
    found.map_err(|source| RenderConfigError::Read { object: object(), source })
}
