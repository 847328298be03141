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
    /// Kubelet settings for the nodes of the selected pools. The controller generates a
    /// MachineConfig for each of these pools.
    pub struct KubeletConfig {
        spec: KubeletConfigSpec,
        status: KubeletConfigStatus,
    }
    Definition { plural: "kubeletconfigs", ..Definition::COMMON }
}

/// Kubelet settings and the pools that they apply to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// True if each node derives the memory and CPU that it reserves for the system from its own
    /// size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_sizing_reserved: Option<bool>,
    /// Log level of the kubelet, from 0 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0, "maximum" = 10))]
    pub log_level: Option<i32>,
    /// Pools that the settings apply to. No pool if unset; all pools if empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// Members of the kubelet's own `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_config: Option<RawConfig>,
    /// TLS versions and ciphers of the kubelet's server. The profile of the API server if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
}

wire_enum! {
    /// Name of a TLS profile.
    pub enum TlsProfileType {
        /// Settings for modern clients and most others.
        Intermediate = "Intermediate",
        /// Settings for very old clients.
        Old = "Old",
        /// Settings for modern clients only.
        Modern = "Modern",
        /// Settings listed one by one.
        Custom = "Custom",
    }
}

/// A TLS profile, given by name or as a list of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TlsSecurityProfile {
    /// Name of the profile. `Custom` uses the settings in `custom`.
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
    /// Settings of the type `Custom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub custom: Option<CustomTlsProfile>,
}

/// A TLS profile whose settings follow from its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedTlsProfile {}

/// TLS settings listed one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomTlsProfile {
    /// Ciphers that the kubelet offers, by their OpenSSL names. They do not apply to TLS 1.3.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ciphers: Vec<String>,
    /// Oldest TLS version that the kubelet accepts, for example `VersionTLS12`.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]))]
    pub min_tls_version: String,
}

/// Result of applying the settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigStatus {
    /// Generation that the controller last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Conditions that show if the settings were accepted, and the reason if not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<LooseCondition>,
}
