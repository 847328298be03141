//! The contents of `sigstore-registries.yaml`: the registries whose images have signatures attached.

use std::collections::BTreeSet;

use mco_ignition::tree::Tree;

use super::{
    reference::{Reference, ReferenceError},
    registries::{PullError, RegistriesConf, Registry},
    scope::{is_wildcard, is_within},
};
use crate::goyaml::{self, UnreadableText};

/// The reason why the mirrors of a policy's images cannot be determined.
///
/// Compat: the texts are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigstoreError {
    /// The scope is no image name.
    #[error(
        "error adding clusterimagepolicy scope {policy} relevant mirrors: error parsing scope \
         {scope}: {fault}"
    )]
    Scope {
        /// Scope of the policy.
        policy: String,
        /// Scope of the registry.
        scope: String,
        /// The fault.
        fault: ReferenceError,
    },
    /// An image of the scope has no valid name at a mirror.
    #[error(
        "error adding clusterimagepolicy scope {policy} relevant mirrors: error getting {pull} \
         sources for scope {scope}: {fault}"
    )]
    Sources {
        /// Scope of the policy.
        policy: String,
        /// Scope of the registry.
        scope: String,
        /// Form of the image name: digest or tag.
        pull: &'static str,
        /// The fault.
        fault: PullError,
    },
    /// The registries file is unusable.
    #[error(transparent)]
    Load(#[from] PullError),
    /// A scope cannot be written.
    #[error("error marshalling regisres configuration for sigstore (cluster)imagepolicies: {0}")]
    Text(#[from] UnreadableText),
}

/// Writes the file for the scopes of all policies and their mirrors.
pub(super) fn file(
    scopes: &BTreeSet<&str>,
    registries: Option<&RegistriesConf>,
) -> Result<String, SigstoreError> {
    let mut names: BTreeSet<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    if let Some(registries) = registries {
        let registries = registries.clone().loaded()?;
        for policy in scopes {
            if let Some(registry) = registries.find(policy) {
                add_mirrors(&mut names, policy, policy, registry)?;
            }
            let parts = registries.registries().iter().map(Registry::scope);
            for scope in parts.filter(|scope| scope != policy && is_within(scope, policy)) {
                if let Some(registry) = registries.find(scope) {
                    add_mirrors(&mut names, policy, scope, registry)?;
                }
            }
        }
    }
    Ok(write(&names)?)
}

/// Tag and digest for a name that an image of the scope could have.
const TAG: &str = ":aaa";
const DIGEST: &str = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// Repository for a scope that is a whole registry.
const REPOSITORY: &str = "/a";

/// Adds the places that images of a scope are pulled from.
fn add_mirrors(
    names: &mut BTreeSet<String>,
    policy: &str,
    scope: &str,
    registry: &Registry,
) -> Result<(), SigstoreError> {
    let mut example =
        if is_wildcard(scope) { scope.replacen('*', "matched", 1) } else { scope.to_owned() };
    let is_registry = !example.contains('/');
    if is_registry {
        example.push_str(REPOSITORY);
    }
    let parsed = Reference::parse(&example).map_err(|fault| SigstoreError::Scope {
        policy: policy.to_owned(),
        scope: example.clone(),
        fault,
    })?;
    for (pull, suffix, has_digest) in [("digest", DIGEST, true), ("tag", TAG, false)] {
        let image = format!("{}{suffix}", parsed.name());
        let sources = registry.pull_sources(&image, has_digest).map_err(|fault| {
            let (policy, scope) = (policy.to_owned(), example.clone());
            SigstoreError::Sources { policy, scope, pull, fault }
        })?;
        // An entry for a domain has no location: only its mirrors are added.
        for source in sources.iter().filter(|source| !source.endpoint.location.is_empty()) {
            let name = source.reference.name();
            let registry = is_registry.then(|| name.strip_suffix(REPOSITORY)).flatten();
            names.insert(registry.unwrap_or(name).to_owned());
        }
    }
    Ok(())
}

fn write(names: &BTreeSet<String>) -> Result<String, UnreadableText> {
    let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
    sorted.sort_by(|left, right| goyaml::natural(left, right));
    let mut out = "docker:\n".to_owned();
    for name in sorted {
        let mut yaml = Vec::new();
        goyaml::write(&Tree::Object(vec![("k", Tree::Text(name))]), &mut yaml)?;
        let yaml = String::from_utf8_lossy(&yaml);
        let key = yaml.strip_prefix("k: ").unwrap_or(&yaml).trim_end();
        for part in ["  ", key, ":\n    use-sigstore-attachments: true\n"] {
            out.push_str(part);
        }
    }
    Ok(out)
}
