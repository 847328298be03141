//! What every other step needs: our namespace and our kinds.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams},
    runtime::wait::{await_condition, conditions},
};
use mco_api::label;
use mco_cluster::{CallError, apply};
use tracing::info;

/// Who owns the members of the definitions that we write.
const MANAGER: &str = "machine-config-operator";

/// An API server takes a moment to serve a new kind; one that takes longer has a reason.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the cluster could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Our namespace cannot be made.
    #[error("cannot create namespace {}", label::NAMESPACE)]
    Namespace(#[source] CallError),
    /// A definition is refused.
    #[error("cannot install {name}")]
    Kind {
        /// Name of the definition.
        name: String,
        /// What the API server said.
        source: CallError,
    },
    /// A definition was taken, and its kind is still not served.
    #[error("{name} is not served: {reason}")]
    NotServed {
        /// Name of the definition.
        name: String,
        /// In the words of the API server.
        reason: String,
    },
}

/// Makes our namespace and brings our kinds up to date; done when the kinds are served.
///
/// Harmless where all of it is there already.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    namespace(client).await?;
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let definitions = mco_api::crds();
    let params = PatchParams::apply(MANAGER).force();
    for definition in &definitions {
        let name = definition.name_any();
        let applied = api.patch(&name, &params, &Patch::Apply(definition)).await;
        applied.map_err(|source| InstallError::Kind { name, source: source.into() })?;
    }
    for definition in &definitions {
        served(&api, definition.name_any()).await?;
    }
    info!(kinds = definitions.len(), "The kinds are served");
    Ok(())
}

/// Makes our namespace.
pub(crate) async fn namespace(client: &Client) -> Result<(), InstallError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(label::NAMESPACE.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    apply::create(&namespaces, &namespace).await.map_err(InstallError::Namespace)?;
    Ok(())
}

/// Waits until the API server serves the kind.
async fn served(api: &Api<CustomResourceDefinition>, name: String) -> Result<(), InstallError> {
    let established = await_condition(api.clone(), &name, conditions::is_crd_established());
    if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, established).await {
        return Ok(());
    }
    let found = api.get(&name).await;
    let found =
        found.map_err(|source| InstallError::Kind { name: name.clone(), source: source.into() })?;
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    let wrong = conditions.into_iter().find(|condition| condition.status == "False");
    let reason = wrong.and_then(|condition| condition.message);
    let reason = reason.unwrap_or_else(|| format!("not established after {PATIENCE:?}"));
    Err(InstallError::NotServed { name, reason })
}
