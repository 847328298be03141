//! Edits of `registries.conf`: mirrors, insecure and blocked registries.
//!
//! Only the most specific entry of the file applies to an image. So a rule for a registry is also
//! written into the entries of its parts.

use mco_api::openshift::mirror_set::MirrorSourcePolicy;

use super::{DIGEST_ONLY, Endpoint, RegistriesConf, Registry, TAG_ONLY};
use crate::image_config::{
    mirrors::MergedMirrors,
    scope::{is_wildcard, is_within},
};

/// Rules that are written into a registries file.
#[derive(Clone, Copy, Debug)]
pub(in crate::image_config) struct RegistryRules<'r> {
    pub(in crate::image_config) insecure: &'r [String],
    pub(in crate::image_config) blocked: &'r [String],
    pub(in crate::image_config) digest_mirrors: &'r [MergedMirrors],
    pub(in crate::image_config) tag_mirrors: &'r [MergedMirrors],
}

/// The reason why rules cannot be written into a registries file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A registry of a mirrored domain has no mirrors of its own.
    ///
    /// Compat: the text is the reference's.
    #[error("internal error: mirrorsAdjustedForNestedScope for a wildcard scope {scope:?}")]
    MirroredDomain {
        /// The domain.
        scope: String,
    },
}

impl RegistriesConf {
    /// Adds the rules to the file.
    pub(in crate::image_config) fn edit(
        &mut self,
        rules: RegistryRules<'_>,
    ) -> Result<(), EditError> {
        let mut registries = self.registries.take().unwrap_or_default();
        let was_absent = registries.is_empty();
        add_mirrors(&mut registries, rules.digest_mirrors, DIGEST_ONLY);
        add_mirrors(&mut registries, rules.tag_mirrors, TAG_ONLY);
        for scope in rules.blocked {
            entry(&mut registries, scope);
        }
        for scope in rules.insecure {
            entry(&mut registries, scope);
            mark_insecure(&mut registries, scope);
        }
        for scope in rules.blocked {
            let within = registries.iter_mut().filter(|one| is_within(one.scope(), scope));
            within.for_each(|registry| registry.blocked = true);
        }
        for set in rules.digest_mirrors.iter().chain(rules.tag_mirrors) {
            inherit(&mut registries, &set.source)?;
        }
        self.registries = (!(was_absent && registries.is_empty())).then_some(registries);
        Ok(())
    }
}

/// Returns the entry of a scope, which is added if there is none.
fn entry<'r>(registries: &'r mut Vec<Registry>, scope: &str) -> Option<&'r mut Registry> {
    let found = registries.iter().position(|registry| registry.scope() == scope);
    let at = found.unwrap_or(registries.len());
    if found.is_none() {
        let mut registry = Registry::default();
        let name =
            if is_wildcard(scope) { &mut registry.prefix } else { &mut registry.at.location };
        scope.clone_into(name);
        registries.push(registry);
    }
    registries.get_mut(at)
}

fn add_mirrors(registries: &mut Vec<Registry>, sets: &[MergedMirrors], pull: &str) {
    for set in sets {
        let Some(registry) = entry(registries, &set.source) else { continue };
        if set.policy == MirrorSourcePolicy::NeverContactSource {
            registry.blocked = true;
        }
        registry.mirrors.extend(set.mirrors.iter().map(|mirror| Endpoint {
            location: mirror.clone(),
            insecure: false,
            pull: pull.to_owned(),
        }));
    }
}

fn mark_insecure(registries: &mut [Registry], scope: &str) {
    for registry in registries {
        if is_within(registry.scope(), scope) {
            registry.at.insecure = true;
        }
        let mirrors = registry.mirrors.iter_mut();
        mirrors
            .filter(|mirror| is_within(&mirror.location, scope))
            .for_each(|mirror| mirror.insecure = true);
    }
}

/// Gives the mirrors of a source to its parts that have none.
fn inherit(registries: &mut [Registry], source: &str) -> Result<(), EditError> {
    let found = registries.iter().find(|registry| registry.scope() == source);
    let mirrors = found.map(|registry| registry.mirrors.clone()).unwrap_or_default();
    for registry in registries {
        let scope = registry.scope();
        if scope == source || !is_within(scope, source) || !registry.mirrors.is_empty() {
            continue;
        }
        let Some(path) = scope.strip_prefix(source) else {
            return Err(EditError::MirroredDomain { scope: source.to_owned() });
        };
        let below = |mirror: &Endpoint| Endpoint {
            location: format!("{}{path}", mirror.location),
            ..mirror.clone()
        };
        registry.mirrors = mirrors.iter().map(below).collect();
    }
    Ok(())
}
