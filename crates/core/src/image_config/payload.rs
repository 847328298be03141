//! Protects the repository that the cluster's own images come from against being blocked.

use mco_api::openshift::image::ImageSpec;

use super::{
    mirrors::MergedMirrors,
    reference::Reference,
    registries::{EditError, PullError, RegistriesConf, RegistryRules},
    scope::is_within,
};
use crate::status::quote::quoted;

/// The reason why the places of the payload cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The mirrors cannot be written into a registries file.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The container engine could not use the registries file.
    #[error(transparent)]
    Pull(#[from] PullError),
}

/// Blocked and allowed registries. A list that is `None` was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryLists {
    /// Registries that the registries file blocks.
    pub blocked: Option<Vec<String>>,
    /// Registries that the policy rejects.
    pub policy_blocked: Option<Vec<String>>,
    /// Registries that the policy allows.
    pub allowed: Option<Vec<String>>,
    /// Registries that are not blocked, because the payload could not be pulled any more.
    pub refused: Vec<String>,
}

impl RegistryLists {
    /// Returns the text that says which registries are not blocked.
    ///
    /// Compat: the text is the reference's.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let quoted: Vec<String> = self.refused.iter().map(|scope| quoted(scope)).collect();
        (!quoted.is_empty()).then(|| {
            format!(
                "error adding [{}] to blocked registries, cannot block the repository being used \
                 by the payload",
                quoted.join(" ")
            )
        })
    }
}

/// Decides which registries are blocked and allowed.
///
/// `payload` is the image of the cluster's release; without one no registry is protected.
pub(super) fn lists(
    image: &ImageSpec,
    payload: Option<&Reference>,
    digest_mirrors: &[MergedMirrors],
) -> Result<RegistryLists, PayloadError> {
    let sources = &image.registry_sources;
    let blocked = sources.blocked_registries.as_deref().unwrap_or_default();
    let mut lists = RegistryLists::default();
    for scope in blocked {
        let covered = payload.filter(|payload| is_within(payload.name(), scope));
        let Some(payload) = covered else {
            add(&mut lists.blocked, scope);
            add(&mut lists.policy_blocked, scope);
            continue;
        };
        if !has_unblocked_source(payload, image, digest_mirrors)? {
            lists.refused.push(scope.clone());
            continue;
        }
        add(&mut lists.blocked, scope);
        if payload.name() != scope {
            add(&mut lists.policy_blocked, scope);
        }
        add(&mut lists.allowed, payload.name());
    }
    for scope in sources.allowed_registries.iter().flatten() {
        add(&mut lists.allowed, scope);
    }
    Ok(lists)
}

fn add(list: &mut Option<Vec<String>>, scope: &str) {
    list.get_or_insert_default().push(scope.to_owned());
}

/// Returns true if the payload can be pulled from a place that is not blocked.
fn has_unblocked_source(
    payload: &Reference,
    image: &ImageSpec,
    digest_mirrors: &[MergedMirrors],
) -> Result<bool, PayloadError> {
    let sources = &image.registry_sources;
    let blocked = sources.blocked_registries.as_deref().unwrap_or_default();
    let mut conf = RegistriesConf::default();
    conf.edit(RegistryRules {
        insecure: sources.insecure_registries.as_deref().unwrap_or_default(),
        blocked,
        digest_mirrors,
        tag_mirrors: &[],
    })?;
    let conf = conf.loaded()?;
    let Some(registry) = conf.find(payload.name()) else { return Ok(false) };
    let places = registry.pull_sources(&payload.to_string(), payload.has_digest())?;
    let is_blocked = |name: &str| blocked.iter().any(|scope| is_within(name, scope));
    Ok(places.iter().any(|place| !is_blocked(place.reference.name())))
}
