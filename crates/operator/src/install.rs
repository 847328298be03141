//! Installs the prerequisites of every other step: the namespace and the
//! `CustomResourceDefinitions`.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams},
};
use mco_api::label;
use mco_cluster::{Api, CallError, apply, watch};
use tracing::info;

/// Field manager of the definitions.
const MANAGER: &str = "machine-config-operator";

/// Time limit for the API server to serve a new kind.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// A failure to prepare the cluster.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The namespace cannot be created.
    #[error("failed to create namespace {}", label::NAMESPACE)]
    Namespace(#[source] CallError),
    /// A definition was rejected.
    #[error("failed to install {name}")]
    Kind {
        /// Name of the definition.
        name: String,
        /// Response of the API server.
        source: CallError,
    },
    /// A definition was accepted, but its kind is not served.
    #[error("{name} is not served: {reason}")]
    NotServed {
        /// Name of the definition.
        name: String,
        /// Message of the API server.
        reason: String,
    },
}

/// Creates the namespace and applies the `CustomResourceDefinitions`; returns when the kinds are
/// served.
///
/// Changes nothing where all of them are up to date.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    create_namespace(client).await?;
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let definitions = mco_api::crds();
    let params = PatchParams::apply(MANAGER).force();
    for definition in &definitions {
        let name = definition.name_any();
        let applied = api.patch(&name, &params, &Patch::Apply(definition)).await;
        applied.map_err(|source| InstallError::Kind { name, source: source.into() })?;
    }
    for definition in &definitions {
        wait_served(&api, definition.name_any()).await?;
    }
    info!(kinds = definitions.len(), "Installed the CustomResourceDefinitions");
    Ok(())
}

/// Creates the namespace.
pub(crate) async fn create_namespace(client: &Client) -> Result<(), InstallError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(label::NAMESPACE.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    apply::create(&namespaces, &namespace).await.map_err(InstallError::Namespace)?;
    Ok(())
}

/// Returns true if the API server serves the kind.
fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().filter_map(|status| status.conditions.as_ref());
    let mut conditions = conditions.flatten();
    conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Waits until the API server serves the kind.
async fn wait_served(
    api: &Api<CustomResourceDefinition>,
    name: String,
) -> Result<(), InstallError> {
    let mut states = watch::object(api, &name, watch::Config::default());
    let established = async {
        while let Some(state) = states.next().await {
            if state.is_ok_and(|found| found.object.as_ref().is_some_and(is_established)) {
                break;
            }
        }
    };
    if tokio::time::timeout(ESTABLISH_TIMEOUT, established).await.is_ok() {
        return Ok(());
    }
    let found = api.get(&name).await;
    let found =
        found.map_err(|source| InstallError::Kind { name: name.clone(), source: source.into() })?;
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    let wrong = conditions.into_iter().find(|condition| condition.status == "False");
    let reason = wrong.and_then(|condition| condition.message);
    let reason = reason.unwrap_or_else(|| format!("not established after {ESTABLISH_TIMEOUT:?}"));
    Err(InstallError::NotServed { name, reason })
}
