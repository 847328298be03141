//! Installs the prerequisites of every other step: the namespace and the
//! `CustomResourceDefinitions`.

mod ownership;

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
use mco_cluster::{Api, CallError, apply, error::Rejection, watch};
use tracing::info;

/// Field manager of the definitions.
const MANAGER: &str = "machine-config-operator";

/// Time limit for the API server to serve a new kind.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// A definition of another owner, which is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// Name of the definition.
    pub(crate) name: String,
    /// Owner of the definition.
    pub(crate) owner: String,
    /// Members that its schema does not have. The API server drops them.
    pub(crate) lacks: Vec<String>,
}

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
    /// A definition belongs to another owner, and its kind cannot be used.
    #[error("{name} belongs to {owner} and cannot be used: {reason}")]
    Unusable {
        /// Name of the definition.
        name: String,
        /// Owner of the definition.
        owner: String,
        /// Difference that matters.
        reason: String,
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
/// Changes nothing where all of them are up to date. Definitions of another owner are left as they
/// are if their kinds can be used.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    create_namespace(client).await?;
    install_definitions(client).await.map(drop)
}

/// Applies the `CustomResourceDefinitions` and waits until the kinds are served. Returns those of
/// another owner.
pub(crate) async fn install_definitions(client: &Client) -> Result<Vec<Foreign>, InstallError> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let definitions = mco_api::crds();
    let mut foreign = Vec::new();
    for definition in &definitions {
        foreign.extend(install_definition(&api, definition).await?);
    }
    for definition in &definitions {
        wait_served(&api, definition.name_any()).await?;
    }
    let installed = definitions.len() - foreign.len();
    info!(installed, of_others = foreign.len(), "Installed the CustomResourceDefinitions");
    Ok(foreign)
}

/// Applies one definition. Returns its owner if that is another one, and the definition was left.
async fn install_definition(
    api: &Api<CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
) -> Result<Option<Foreign>, InstallError> {
    let name = wanted.name_any();
    let failed = |source: CallError| InstallError::Kind { name: name.clone(), source };
    let found = api.get_opt(&name).await.map_err(|error| failed(error.into()))?;
    let mut owner = found.as_ref().and_then(ownership::release_owner);
    if owner.is_none() {
        // Without force: fields of another manager are not taken over.
        let params = PatchParams::apply(MANAGER);
        let applied = api.patch(&name, &params, &Patch::Apply(wanted)).await;
        match (applied.map_err(CallError::from), &found) {
            (Ok(_), _) => return Ok(None),
            (Err(error), Some(found)) if error.rejection() == Some(Rejection::Conflict) => {
                owner = Some(ownership::other_managers(found, MANAGER));
            }
            (Err(error), _) => return Err(failed(error)),
        }
    }
    let (Some(found), Some(owner)) = (found, owner) else { return Ok(None) };
    let lacks = ownership::check_usable(&found, wanted).map_err(|reason| {
        InstallError::Unusable { name: name.clone(), owner: owner.clone(), reason }
    })?;
    info!(definition = name, owner, ?lacks, "Left the CustomResourceDefinition of another owner");
    Ok(Some(Foreign { name, owner, lacks }))
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
