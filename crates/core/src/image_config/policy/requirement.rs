//! Requirements that images must meet, and those of an image policy.

use mco_api::{
    Bytes,
    openshift::image_policy::{
        FulcioCaWithRekor, MatchPolicy, Pki, PolicyType, PublicKey, RootOfTrust, SignedIdentity,
        SigstorePolicy,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    image_config::{
        reference::{self, Reference, ReferenceError},
        scope,
    },
    status::quote::quoted,
};

/// A requirement of a policy file. Each type has some of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::image_config) struct Requirement {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_blank")]
    key_data: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_datas: Option<Vec<Bytes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fulcio: Option<Fulcio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rekor_public_key_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rekor_public_key_paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_blank")]
    rekor_public_key_data: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rekor_public_key_datas: Option<Vec<Bytes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pki: Option<Authorities>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_identity: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_layer_identity: Option<Identity>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Fulcio {
    #[serde(skip_serializing_if = "String::is_empty")]
    ca_path: String,
    #[serde(skip_serializing_if = "is_blank")]
    ca_data: Option<Bytes>,
    #[serde(skip_serializing_if = "String::is_empty")]
    oidc_issuer: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject_email: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Authorities {
    #[serde(skip_serializing_if = "String::is_empty")]
    ca_roots_path: String,
    #[serde(skip_serializing_if = "is_blank")]
    ca_roots_data: Option<Bytes>,
    #[serde(skip_serializing_if = "String::is_empty")]
    ca_intermediates_path: String,
    #[serde(skip_serializing_if = "is_blank")]
    ca_intermediates_data: Option<Bytes>,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject_email: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject_hostname: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Identity {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    docker_reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    docker_repository: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_prefix: Option<String>,
}

#[expect(clippy::ref_option, reason = "the signature that serde requires")]
fn is_blank(bytes: &Option<Bytes>) -> bool {
    bytes.as_ref().is_none_or(|bytes| bytes.as_slice().is_empty())
}

/// The reason why an image policy is invalid.
///
/// Compat: the texts of the first group are the reference's, which has none for absent members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyItemError {
    /// The policy has no keys.
    #[error(
        "exactly one of keyPath, keyPaths, keyData, keyDatas, fulcio, and pki must be specified"
    )]
    NoKeys,
    /// The CA is missing.
    #[error("At least one of caPath and caData must be specified")]
    NoFulcioCa,
    /// The issuer is missing.
    #[error("oidcIssuer not specified")]
    NoIssuer,
    /// The signer is missing.
    #[error("subjectEmail not specified")]
    NoEmail,
    /// The key of the log is missing.
    #[error(
        "At least one of rekorPublickeyPath, rekorPublicKeyPaths, rekorPublickeyData and \
         rekorPublicKeyDatas must be specified if fulcio is used"
    )]
    NoRekorKey,
    /// The root certificates are missing.
    #[error("At least one of caRootsPath and caRootsData must be specified")]
    NoRoots,
    /// The subject is missing.
    #[error("At least one of subjectEmail, subjectHostname must be specified")]
    NoSubject,
    /// The repository of the identity is invalid.
    #[error(
        "error getting signedIdentity for ExactRepository: Invalid format of dockerRepository \
         {}: {fault}",
        quoted(repository)
    )]
    Repository {
        /// The repository.
        repository: String,
        /// The fault.
        fault: ReferenceError,
    },
    /// A prefix of the identity is invalid.
    #[error(
        "error getting signedIdentity for RemapIdentity: prefix {} is not valid",
        quoted(prefix)
    )]
    Prefix {
        /// The prefix.
        prefix: String,
    },
    /// The comparison of names is unknown.
    #[error("unknown signedIdentity match policy: {policy}")]
    MatchPolicy {
        /// The comparison.
        policy: String,
    },
    /// The member that another member requires is missing.
    #[error("{member} must be set if {by} is {value}")]
    Missing {
        /// The missing member.
        member: &'static str,
        /// The member that requires it.
        by: &'static str,
        /// Value of the member that requires it.
        value: String,
    },
}

impl Requirement {
    pub(super) fn reject() -> Self {
        Self { kind: "reject".to_owned(), ..Self::default() }
    }

    pub(super) fn accept_anything() -> Self {
        Self { kind: "insecureAcceptAnything".to_owned(), ..Self::default() }
    }

    /// Builds the requirement of an image policy.
    pub(in crate::image_config) fn of(policy: &SigstorePolicy) -> Result<Self, PolicyItemError> {
        let mut signed = Self { kind: "sigstoreSigned".to_owned(), ..Self::default() };
        signed.trust(&policy.root_of_trust)?;
        signed.signed_identity = Some(identity(policy.signed_identity.as_ref())?);
        if signed.key_data.is_none() && signed.fulcio.is_none() && signed.pki.is_none() {
            return Err(PolicyItemError::NoKeys);
        }
        if signed.fulcio.is_some() && signed.rekor_public_key_data.is_none() {
            return Err(PolicyItemError::NoRekorKey);
        }
        Ok(signed)
    }

    fn trust(&mut self, root: &RootOfTrust) -> Result<(), PolicyItemError> {
        let missing = |member, value: &PolicyType| PolicyItemError::Missing {
            member,
            by: "policyType",
            value: value.to_string(),
        };
        let Some(kind) = &root.policy_type else { return Ok(()) };
        match kind {
            PolicyType::PublicKey => {
                let key = root.public_key.as_ref().ok_or_else(|| missing("publicKey", kind))?;
                let PublicKey { key_data, rekor_key_data } = key;
                self.key_data.clone_from(key_data);
                if !is_blank(rekor_key_data) {
                    self.rekor_public_key_data.clone_from(rekor_key_data);
                }
            }
            PolicyType::FulcioCaWithRekor => {
                let found = root.fulcio_ca_with_rekor.as_ref();
                let found = found.ok_or_else(|| missing("fulcioCAWithRekor", kind))?;
                self.fulcio = Some(fulcio(found)?);
                self.rekor_public_key_data.clone_from(&found.rekor_key_data);
            }
            PolicyType::Pki => {
                let found = root.pki.as_ref().ok_or_else(|| missing("pki", kind))?;
                self.pki = Some(authorities(found)?);
            }
            PolicyType::Other(_) => {}
        }
        Ok(())
    }
}

fn fulcio(from: &FulcioCaWithRekor) -> Result<Fulcio, PolicyItemError> {
    if from.fulcio_ca_data.is_none() {
        return Err(PolicyItemError::NoFulcioCa);
    }
    if from.fulcio_subject.oidc_issuer.is_empty() {
        return Err(PolicyItemError::NoIssuer);
    }
    if from.fulcio_subject.signed_email.is_empty() {
        return Err(PolicyItemError::NoEmail);
    }
    Ok(Fulcio {
        ca_path: String::new(),
        ca_data: from.fulcio_ca_data.clone(),
        oidc_issuer: from.fulcio_subject.oidc_issuer.clone(),
        subject_email: from.fulcio_subject.signed_email.clone(),
    })
}

fn authorities(from: &Pki) -> Result<Authorities, PolicyItemError> {
    let subject = &from.pki_certificate_subject;
    if from.ca_roots_data.is_none() {
        return Err(PolicyItemError::NoRoots);
    }
    if subject.email.is_empty() && subject.hostname.is_empty() {
        return Err(PolicyItemError::NoSubject);
    }
    Ok(Authorities {
        ca_roots_data: from.ca_roots_data.clone(),
        ca_intermediates_data: from.ca_intermediates_data.clone(),
        subject_email: subject.email.clone(),
        subject_hostname: subject.hostname.clone(),
        ..Authorities::default()
    })
}

fn identity(from: Option<&SignedIdentity>) -> Result<Identity, PolicyItemError> {
    let plain = |kind: &str| Identity { kind: kind.to_owned(), ..Identity::default() };
    let Some(from) = from else { return Ok(plain("matchRepoDigestOrExact")) };
    let policy = from.match_policy.clone().unwrap_or(MatchPolicy::Other(String::new()));
    let missing =
        |member| PolicyItemError::Missing { member, by: "matchPolicy", value: policy.to_string() };
    match &policy {
        MatchPolicy::MatchRepoDigestOrExact => Ok(plain("matchRepoDigestOrExact")),
        MatchPolicy::MatchRepository => Ok(plain("matchRepository")),
        MatchPolicy::ExactRepository => {
            let exact = from.exact_repository.as_ref().ok_or_else(|| missing("exactRepository"))?;
            let repository = exact.repository.clone();
            if let Err(fault) = Reference::normalized(&repository) {
                return Err(PolicyItemError::Repository { repository, fault });
            }
            Ok(Identity { docker_repository: Some(repository), ..plain("exactRepository") })
        }
        MatchPolicy::RemapIdentity => {
            let remap = from.remap_identity.as_ref().ok_or_else(|| missing("remapIdentity"))?;
            for prefix in [&remap.prefix, &remap.signed_prefix] {
                if !is_prefix(prefix) {
                    return Err(PolicyItemError::Prefix { prefix: prefix.clone() });
                }
            }
            Ok(Identity {
                prefix: Some(remap.prefix.clone()),
                signed_prefix: Some(remap.signed_prefix.clone()),
                ..plain("remapIdentity")
            })
        }
        MatchPolicy::Other(word) => Err(PolicyItemError::MatchPolicy { policy: word.clone() }),
    }
}

/// Returns true for a host, or a repository's name that begins with one.
fn is_prefix(prefix: &str) -> bool {
    let host = prefix.split('/').next().unwrap_or_default();
    scope::is_host(prefix) || (reference::is_name(prefix) && scope::is_host(host))
}
