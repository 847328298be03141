//! Checks of registries and mirrors, before they are written into a file.

use std::collections::BTreeMap;

use mco_api::openshift::mirror_set::{MirrorSourcePolicy, SourceMirrors};

use super::scope;
use crate::status::quote::quoted;

/// An entry that cannot be written into a file.
///
/// Compat: the texts are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The entry of a list is no scope.
    #[error("invalid entry for {list} registries {}", quoted(entry))]
    Scope {
        /// List that the entry is in.
        list: &'static str,
        /// The entry.
        entry: String,
    },
    /// A source or mirror is no name of a repository.
    #[error("invalid format for {member} {}", quoted(name))]
    Name {
        /// `source` or `mirror`.
        member: &'static str,
        /// The name.
        name: String,
    },
    /// Two rules for one source contradict each other.
    #[error(
        "conflicting mirrorSourcePolicy is set for the same source {} in imagedigestmirrorsets, \
         imagetagmirrorsets, or imagecontentsourcepolicies",
        quoted(name)
    )]
    Conflict {
        /// The source.
        name: String,
    },
    /// A source that is never contacted is its own mirror.
    #[error(
        "cannot set mirrorSourcePolicy: NeverContactSource if the source {} is one of the mirrors",
        quoted(name)
    )]
    NeverContacted {
        /// The source.
        name: String,
    },
}

/// Checks the entries of a list.
pub(super) fn scopes(list: &'static str, entries: &[String]) -> Result<(), EntryError> {
    match entries.iter().find(|entry| !scope::is_valid(entry)) {
        Some(entry) => Err(EntryError::Scope { list, entry: entry.clone() }),
        None => Ok(()),
    }
}

/// Checks mirror rules, alone and against each other.
pub(super) fn mirrors<'r>(
    rules: impl IntoIterator<Item = &'r SourceMirrors>,
) -> Result<(), EntryError> {
    let mut policies: BTreeMap<&str, MirrorSourcePolicy> = BTreeMap::new();
    for rule in rules {
        if !scope::is_source(&rule.source) {
            return Err(EntryError::Name { member: "source", name: rule.source.clone() });
        }
        let policy = policy(rule);
        let known = policies.entry(&rule.source).or_insert_with(|| policy.clone());
        if *known != policy {
            return Err(EntryError::Conflict { name: rule.source.clone() });
        }
        for mirror in &rule.mirrors {
            if !scope::is_mirror(mirror) {
                return Err(EntryError::Name { member: "mirror", name: mirror.clone() });
            }
            if policy == MirrorSourcePolicy::NeverContactSource && *mirror == rule.source {
                return Err(EntryError::NeverContacted { name: rule.source.clone() });
            }
        }
    }
    Ok(())
}

/// Returns the policy of a rule; the default for an empty one.
fn policy(rule: &SourceMirrors) -> MirrorSourcePolicy {
    let policy = &rule.mirror_source_policy;
    if policy.as_str().is_empty() { MirrorSourcePolicy::default() } else { policy.clone() }
}
