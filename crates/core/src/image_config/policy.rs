//! The contents of `policy.json`: the images that the container engine accepts.
//!
//! Compat: the members and their order are those of containers/image (`signature/policy_types.go`).

mod requirement;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::requirement::PolicyItemError;
pub(super) use self::requirement::Requirement;
use super::scope::is_within;

/// Requirements by scope.
pub(super) type Scopes = BTreeMap<String, Vec<Requirement>>;

/// The policies of a cluster: requirements by scope, and by namespace and scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policies {
    pub(super) cluster: Scopes,
    pub(super) namespaces: BTreeMap<String, Scopes>,
}

impl Policies {
    /// Returns the scopes of ImagePolicies.
    pub(super) fn namespace_scopes(&self) -> BTreeSet<&str> {
        self.namespaces.values().flat_map(BTreeMap::keys).map(String::as_str).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.namespaces.is_empty()
    }
}

/// The contents of a policy file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    default: Vec<Requirement>,
    #[serde(default)]
    transports: BTreeMap<String, Scopes>,
}

/// The reason why a policy file cannot be written.
///
/// Compat: the texts are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Both allowed and blocked registries are set.
    #[error(
        "invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified"
    )]
    AllowedAndBlocked,
    /// A policy is for images that are not allowed.
    #[error("{kind} configured for the scope {scope} is not nested inside allowedRegistries")]
    NotAllowed {
        /// Kind of the policy.
        kind: &'static str,
        /// Scope of the policy.
        scope: String,
    },
    /// A policy is for images that are blocked.
    #[error("{kind} configured for the scope {scope} is nested inside blockedRegistries")]
    Blocked {
        /// Kind of the policy.
        kind: &'static str,
        /// Scope of the policy.
        scope: String,
    },
    /// The base file is no policy.
    #[error("error decoding policy json: {fault}")]
    Base {
        /// Description of the fault.
        fault: String,
    },
}

const CLUSTER_POLICY: &str = "clusterimagePolicy";
const NAMESPACE_POLICY: &str = "imagePolicy";

/// Lists that a policy file is written from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyLists<'l> {
    pub(super) blocked: &'l [String],
    pub(super) allowed: &'l [String],
}

/// Writes the policy of the cluster.
pub(super) fn cluster_policy(
    base: &str,
    lists: PolicyLists<'_>,
    policies: &Scopes,
) -> Result<String, PolicyError> {
    check_nesting(CLUSTER_POLICY, policies.keys().map(String::as_str), lists)?;
    if lists.allowed.is_empty() && lists.blocked.is_empty() && policies.is_empty() {
        return Ok(base.to_owned());
    }
    let mut policy = parse(base)?;
    let mut scopes = Scopes::new();
    if !lists.allowed.is_empty() {
        policy.default = vec![Requirement::reject()];
        for scope in lists.allowed.iter().filter(|scope| !policies.contains_key(*scope)) {
            scopes.insert(scope.clone(), vec![Requirement::accept_anything()]);
        }
    }
    if !lists.blocked.is_empty() {
        policy.default = vec![Requirement::accept_anything()];
        for scope in lists.blocked {
            scopes.insert(scope.clone(), vec![Requirement::reject()]);
        }
    }
    for (scope, requirements) in policies {
        scopes.entry(scope.clone()).or_default().extend(requirements.iter().cloned());
    }
    if !scopes.is_empty() {
        let short = scopes.iter().filter(|(scope, _)| is_atomic(scope));
        let short = short.map(|(scope, requirements)| (scope.clone(), requirements.clone()));
        policy.transports.insert("atomic".to_owned(), short.collect());
        policy.transports.insert("docker".to_owned(), scopes);
    }
    Ok(write(&policy))
}

/// Writes the policies of the namespaces, which extend that of the cluster.
pub(super) fn namespace_policies(
    cluster: &str,
    lists: PolicyLists<'_>,
    policies: &Policies,
) -> Result<BTreeMap<String, String>, PolicyError> {
    check_nesting(NAMESPACE_POLICY, policies.namespace_scopes(), lists)?;
    let mut files = BTreeMap::new();
    for (namespace, scopes) in &policies.namespaces {
        let mut policy = parse(cluster)?;
        let docker = policy.transports.entry("docker".to_owned()).or_default();
        extend(docker, scopes.iter());
        let atomic = policy.transports.entry("atomic".to_owned()).or_default();
        extend(atomic, scopes.iter().filter(|(scope, _)| is_atomic(scope)));
        files.insert(namespace.clone(), write(&policy));
    }
    Ok(files)
}

fn extend<'s>(into: &mut Scopes, scopes: impl Iterator<Item = (&'s String, &'s Vec<Requirement>)>) {
    for (scope, requirements) in scopes {
        into.entry(scope.clone()).or_default().extend(requirements.iter().cloned());
    }
}

/// Returns true if the transport `atomic` supports a scope.
fn is_atomic(scope: &str) -> bool {
    scope.matches('/').count() < 3
}

/// Checks that policies are for images that are allowed.
fn check_nesting<'s>(
    kind: &'static str,
    scopes: impl IntoIterator<Item = &'s str> + Clone,
    lists: PolicyLists<'_>,
) -> Result<(), PolicyError> {
    let within = |scope: &str, list: &[String]| list.iter().any(|one| is_within(scope, one));
    for scope in scopes.clone() {
        if !lists.allowed.is_empty() && !within(scope, lists.allowed) {
            return Err(PolicyError::NotAllowed { kind, scope: scope.to_owned() });
        }
    }
    for scope in scopes {
        if within(scope, lists.blocked) {
            return Err(PolicyError::Blocked { kind, scope: scope.to_owned() });
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<PolicyFile, PolicyError> {
    serde_json::from_str(text).map_err(|error| {
        let fault = format!("line {}, column {}", error.line(), error.column());
        PolicyError::Base { fault }
    })
}

/// Writes a policy file, with the escapes of the reference.
fn write(policy: &PolicyFile) -> String {
    let text = serde_json::to_string_pretty(policy).expect("keys of the policy are strings");
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}
