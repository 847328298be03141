//! Installs the prerequisites of every other step: the namespace and the
//! `CustomResourceDefinitions`.

mod ownership;

pub use self::ownership::is_of_release;

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use mco_cluster::{Api, CallError, apply, client::namespace, error::Rejection, watch};
use serde::Deserialize as _;
use tracing::info;

use crate::manifests;

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
    #[error("failed to create namespace {0}")]
    Namespace(String, #[source] CallError),
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

/// Returns the members that a definition of the release of a cluster lacks, or the reason why its kind
/// cannot be used. Returns `None` for a definition that is not part of a release, or of another kind.
#[must_use]
pub fn check_release_definition(
    found: &CustomResourceDefinition,
) -> Option<Result<Vec<String>, String>> {
    ownership::release_owner(found)?;
    let wanted = mco_api::crds().into_iter().find(|it| it.name_any() == found.name_any())?;
    Some(ownership::check_usable(found, &wanted))
}

/// A definition in the cluster, compared with ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExaminedDefinition {
    /// Owner of the definition, if that is another one.
    pub owner: Option<String>,
    /// Members that its schema lacks, or the difference because of which its kind cannot be used.
    pub usable: Result<Vec<String>, String>,
    /// True if the API server serves the kind.
    pub is_served: bool,
}

/// Compares a definition in the cluster with ours, and changes nothing.
#[must_use]
pub fn examine(
    found: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
) -> ExaminedDefinition {
    ExaminedDefinition {
        owner: ownership::release_owner(found),
        usable: ownership::check_usable(found, wanted),
        is_served: is_established(found),
    }
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
    let definitions = definitions();
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

/// Returns the definitions with the label of the installation.
fn definitions() -> Vec<CustomResourceDefinition> {
    let mut all = mco_api::crds();
    for definition in &mut all {
        let (key, value) = manifests::MANAGED_BY;
        definition.labels_mut().insert(key.to_owned(), value.to_owned());
    }
    all
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
        let (params, wanted) = patch(found.as_ref(), wanted);
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

/// Returns the patch of a definition and its parameters.
///
/// A definition with the label of the installation is ours, although `kubectl apply` may have stored it.
/// Fields of any other definition are not taken over, and it does not get the label.
fn patch(
    found: Option<&CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
) -> (PatchParams, CustomResourceDefinition) {
    let (mut params, mut wanted) = (PatchParams::apply(MANAGER), wanted.clone());
    match found.map(|found| manifests::is_ours(Some(found.labels()))) {
        Some(true) => params.force = true,
        Some(false) => drop(wanted.labels_mut().remove(manifests::MANAGED_BY.0)),
        None => {}
    }
    (params, wanted)
}

/// Creates the namespace of the installation, as `mco install` does.
pub(crate) async fn create_namespace(client: &Client) -> Result<(), InstallError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let name = namespace(client);
    let manifest = manifests::installation_namespace(name);
    let namespace = Namespace::deserialize(manifest).expect("the manifest is a Namespace");
    let made = apply::create(&namespaces, &namespace).await;
    made.map_err(|source| InstallError::Namespace(name.to_owned(), source))?;
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
