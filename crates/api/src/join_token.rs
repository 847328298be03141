//! Join tokens: what a new machine needs to get its first config, kept as Secrets in a namespace of
//! their own.
//!
//! A token is `<id>.<secret>`. The Secret `join-token-<id>` has only a hash of the secret, in two
//! members: `token` is written once, `joins` records the machines that used the token.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// Namespace of the tokens. It has no other Secrets, so that rights on tokens are rights on nothing
/// else.
pub const NAMESPACE: &str = "machine-config-join-tokens";

/// Type of a token's Secret.
pub const SECRET_TYPE: &str = "machineconfiguration.openshift.io/join-token";

/// Prefix of the name of a token's Secret; the token's id follows.
pub const SECRET_PREFIX: &str = "join-token-";

/// Member of the Secret with a [`JoinToken`] as JSON.
pub const TOKEN_MEMBER: &str = "token";

/// Member of the Secret with a list of [`Join`]s as JSON.
pub const JOINS_MEMBER: &str = "joins";

/// Name of the ServiceAccount that kubelets of new machines request their first certificate with.
pub const BOOTSTRAPPER: &str = "node-bootstrapper";

/// Name of the Secret with the token of that ServiceAccount.
pub const BOOTSTRAPPER_SECRET: &str = "node-bootstrapper-token";

/// Headers that a machine sends besides `Authorization`.
pub mod header {
    /// Random text that a machine makes once and keeps: identifies its join across retries.
    pub const JOIN_ID: &str = "mco-join-id";
    /// Contents of `/etc/machine-id`.
    pub const MACHINE_ID: &str = "mco-machine-id";
    /// MAC addresses, separated by commas.
    pub const MAC: &str = "mco-mac";
    /// SHA-256 of the public endorsement key of the TPM, in hexadecimal.
    pub const TPM_EK: &str = "mco-tpm-ek";
    /// Name that the node will have.
    pub const NODE_NAME: &str = "mco-node-name";
    /// In an error response: one sentence for people.
    pub const REASON: &str = "mco-reason";
}

/// The part of a token that does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinToken {
    /// Pool of the machines that may join.
    pub pool: String,
    /// SHA-256 of the token's secret, in hexadecimal.
    pub secret_sha256: String,
    /// Time at which the token was made.
    pub created: Time,
    /// Time from which the token is refused.
    pub expires: Time,
    /// Number of machines that may join.
    pub uses: u32,
    /// Machine that the token is for.
    #[serde(default, skip_serializing_if = "Binding::is_empty")]
    pub binding: Binding,
    /// Text of the administrator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// The machine that a token is for. A member that is empty fits every machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    /// Contents of `/etc/machine-id`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// MAC address of one of the machine's interfaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Address, or range in CIDR notation, that the machine connects from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// SHA-256 of the public endorsement key of the TPM, in hexadecimal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tpm_ek: String,
    /// Name of the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
}

impl Binding {
    /// Returns true if the token fits every machine.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A machine that used a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Join {
    /// The machine's `Mco-Join-Id`; empty if the machine sent none and is known by its address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Address of the last request.
    pub address: String,
    /// Name that the machine's node will have, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Contents of the machine's `/etc/machine-id`, if sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Time of the first request.
    pub first: Time,
    /// Time of the last request that was recorded.
    pub last: Time,
    /// Node whose certificate was approved for this join; empty before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approved: String,
}
