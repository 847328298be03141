//! The places that the container engine pulls an image from, by the rules of a registries file.
//!
//! Compat: the rules and the texts are those of containers/image (pkg/sysregistriesv2).

use super::{DIGEST_ONLY, Endpoint, RegistriesConf, Registry, TAG_ONLY};
use crate::image_config::{
    reference::{Reference, ReferenceError},
    scope::is_wildcard,
};

/// The reason why the container engine cannot use a registries file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// A location has a scheme.
    #[error("invalid location '{location}': URI schemes are not supported")]
    Scheme {
        /// The location.
        location: String,
    },
    /// The entry does not apply to the image.
    #[error("invalid prefix '{prefix}' for reference '{reference}'")]
    Prefix {
        /// Prefix of the entry.
        prefix: String,
        /// The image.
        reference: String,
    },
    /// The image would have no valid name at a mirror.
    #[error("rewriting reference: {0}")]
    Rewrite(ReferenceError),
}

/// A place that an image is pulled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::image_config) struct PullSource<'r> {
    pub(in crate::image_config) endpoint: &'r Endpoint,
    /// The image at that place.
    pub(in crate::image_config) reference: Reference,
}

impl RegistriesConf {
    /// Checks the file by the rules of the container engine, which does without `/` at the end.
    pub(in crate::image_config) fn loaded(mut self) -> Result<Self, PullError> {
        for registry in self.registries.iter_mut().flatten() {
            trim(&mut registry.at.location)?;
            trim(&mut registry.prefix)?;
            registry.mirrors.iter_mut().try_for_each(|mirror| trim(&mut mirror.location))?;
        }
        Ok(self)
    }

    /// Returns the most specific entry for a name. Of equal entries, the first.
    pub(in crate::image_config) fn find(&self, name: &str) -> Option<&Registry> {
        let matching = self.registries().iter().filter(|one| matched(name, one.scope()).is_some());
        matching.reduce(|best, one| if one.scope().len() > best.scope().len() { one } else { best })
    }
}

impl Registry {
    /// Returns the places that an image is pulled from, in order.
    pub(in crate::image_config) fn pull_sources(
        &self,
        image: &str,
        has_digest: bool,
    ) -> Result<Vec<PullSource<'_>>, PullError> {
        let is_used = |mirror: &&Endpoint| match mirror.pull.as_str() {
            _ if self.digest_only => has_digest,
            DIGEST_ONLY => has_digest,
            TAG_ONLY => !has_digest,
            _ => true,
        };
        let endpoints = self.mirrors.iter().filter(is_used).chain([&self.at]);
        endpoints
            .map(|endpoint| {
                let reference = rewrite(image, self.scope(), endpoint)?;
                Ok(PullSource { endpoint, reference })
            })
            .collect()
    }
}

/// Names an image at another place.
fn rewrite(image: &str, prefix: &str, endpoint: &Endpoint) -> Result<Reference, PullError> {
    let Some(length) = matched(image, prefix) else {
        return Err(PullError::Prefix { prefix: prefix.to_owned(), reference: image.to_owned() });
    };
    let there = if endpoint.location.is_empty() {
        image.to_owned()
    } else {
        format!("{}{}", endpoint.location, image.get(length..).unwrap_or_default())
    };
    Reference::canonical(&there).map_err(PullError::Rewrite)
}

fn trim(location: &mut String) -> Result<(), PullError> {
    location.truncate(location.trim_end_matches('/').len());
    if location.starts_with("http://") || location.starts_with("https://") {
        return Err(PullError::Scheme { location: location.clone() });
    }
    Ok(())
}

/// Returns the length of the part of a name that a prefix covers.
fn matched(name: &str, prefix: &str) -> Option<usize> {
    let end = if is_wildcard(prefix) {
        let domain = prefix.get(1..)?;
        let start = name.find(domain)?;
        if name.get(..start)?.contains('/') {
            return None;
        }
        start + domain.len()
    } else {
        name.starts_with(prefix).then_some(prefix.len())?
    };
    let rest = name.get(end..)?;
    (rest.is_empty() || rest.starts_with([':', '/', '@'])).then_some(end)
}
