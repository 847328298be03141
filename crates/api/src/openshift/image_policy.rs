//! ClusterImagePolicy and ImagePolicy: signatures that images must have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use crate::{Bytes, wire::null_as_default, wire_enum::wire_enum};

/// Signatures that the images of some scopes must have. Both kinds have the same spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImagePolicySpec {
    /// Registries and repositories that the policy applies to.
    #[serde(deserialize_with = "null_as_default")]
    pub scopes: Vec<String>,
    /// Signature that images must have.
    #[serde(deserialize_with = "null_as_default")]
    pub policy: SigstorePolicy,
}

/// Result of applying an image policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImagePolicyStatus {
    /// Conditions of the policy.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A signature that images must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SigstorePolicy {
    /// Keys that the signature is verified with.
    #[serde(deserialize_with = "null_as_default")]
    pub root_of_trust: RootOfTrust,
    /// Image name that the signature must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_identity: Option<SignedIdentity>,
}

wire_enum! {
    /// Form of the keys that a signature is verified with.
    pub enum PolicyType {
        /// A public key.
        PublicKey = "PublicKey",
        /// A Fulcio CA and the key of a Rekor log.
        FulcioCaWithRekor = "FulcioCAWithRekor",
        /// Certificate authorities.
        Pki = "PKI",
    }
}

/// Keys that a signature is verified with. The member that `policyType` names is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RootOfTrust {
    /// Form of the keys; empty if left out.
    pub policy_type: Option<PolicyType>,
    /// A public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<PublicKey>,
    /// A Fulcio CA and the key of a Rekor log.
    #[serde(rename = "fulcioCAWithRekor", skip_serializing_if = "Option::is_none")]
    pub fulcio_ca_with_rekor: Option<FulcioCaWithRekor>,
    /// Certificate authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pki: Option<Pki>,
}

/// A public key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PublicKey {
    /// Public key in PEM form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_data: Option<Bytes>,
    /// Key of a Rekor log in PEM form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekor_key_data: Option<Bytes>,
}

/// A Fulcio CA and the key of a Rekor log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FulcioCaWithRekor {
    /// Certificates of the CA in PEM form.
    #[serde(rename = "fulcioCAData", skip_serializing_if = "Option::is_none")]
    pub fulcio_ca_data: Option<Bytes>,
    /// Key of the Rekor log in PEM form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekor_key_data: Option<Bytes>,
    /// Identity of the signer.
    #[serde(deserialize_with = "null_as_default")]
    pub fulcio_subject: FulcioSubject,
}

/// Identity that a Fulcio CA certified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FulcioSubject {
    /// Issuer of the signer's token.
    pub oidc_issuer: String,
    /// E-mail address of the signer.
    pub signed_email: String,
}

/// Certificate authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Pki {
    /// Root certificates in PEM form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_roots_data: Option<Bytes>,
    /// Intermediate certificates in PEM form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_intermediates_data: Option<Bytes>,
    /// Subject of the signer's certificate.
    #[serde(deserialize_with = "null_as_default")]
    pub pki_certificate_subject: CertificateSubject,
}

/// Subject of a signer's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CertificateSubject {
    /// E-mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// Host name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
}

wire_enum! {
    /// Comparison of an image's name with the name in its signature.
    pub enum MatchPolicy {
        /// The same repository for digests, the same name otherwise.
        MatchRepoDigestOrExact = "MatchRepoDigestOrExact",
        /// The same repository.
        MatchRepository = "MatchRepository",
        /// A repository that the policy names.
        ExactRepository = "ExactRepository",
        /// The image's name with another prefix.
        RemapIdentity = "RemapIdentity",
    }
}

/// Image name that a signature must contain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SignedIdentity {
    /// Comparison of the names; empty if left out.
    pub match_policy: Option<MatchPolicy>,
    /// Repository for `ExactRepository`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_repository: Option<ExactRepository>,
    /// Prefixes for `RemapIdentity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_identity: Option<RemapIdentity>,
}

/// A repository that a signature must name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExactRepository {
    /// Name of the repository.
    pub repository: String,
}

/// A change of an image name's prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RemapIdentity {
    /// Prefix of the image name.
    pub prefix: String,
    /// Prefix of the name in the signature.
    pub signed_prefix: String,
}
