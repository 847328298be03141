//! KubeletConfig: kubelet settings for the nodes of some pools.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::meta::{LooseCondition, SelectorSchema};
use crate::raw_config::RawConfig;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

kind! {
    /// Kubelet settings for the nodes of the pools it selects. The controller turns them into a
    /// MachineConfig of those pools.
    pub struct KubeletConfig {
        spec: KubeletConfigSpec,
        status: KubeletConfigStatus,
    }
    Definition { plural: "kubeletconfigs", ..Definition::COMMON }
}

/// The settings and the pools they are for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// Lets each node work out how much memory and CPU to keep for the system from its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_sizing_reserved: Option<bool>,
    /// How much the kubelet logs, from 0 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0, "maximum" = 10))]
    pub log_level: Option<i32>,
    /// Pools that the settings are for. None when unset; all when empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// Members of the kubelet's own `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_config: Option<RawConfig>,
    /// TLS versions and ciphers that the kubelet serves with. The API server's profile when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
}

wire_enum! {
    /// A named set of TLS settings.
    pub enum TlsProfileType {
        /// For modern clients and most others.
        Intermediate = "Intermediate",
        /// For very old clients.
        Old = "Old",
        /// For modern clients only.
        Modern = "Modern",
        /// As listed.
        Custom = "Custom",
    }
}

/// A TLS profile, by name or as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TlsSecurityProfile {
    /// Which profile. `Custom` takes the settings from `custom`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<TlsProfileType>,
    /// Accompanies type `Old`; has no settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub old: Option<NamedTlsProfile>,
    /// Accompanies type `Intermediate`; has no settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub intermediate: Option<NamedTlsProfile>,
    /// Accompanies type `Modern`; has no settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub modern: Option<NamedTlsProfile>,
    /// Settings of type `Custom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub custom: Option<CustomTlsProfile>,
}

/// A profile whose settings follow from its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedTlsProfile {}

/// TLS settings one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomTlsProfile {
    /// Ciphers to offer, by their OpenSSL names. They do not apply to TLS 1.3.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ciphers: Vec<String>,
    /// Oldest version to accept, for example `VersionTLS12`.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]))]
    pub min_tls_version: String,
}

/// What the controller made of the settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigStatus {
    /// Generation that the controller last acted on.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Whether the settings were accepted, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<LooseCondition>,
}
