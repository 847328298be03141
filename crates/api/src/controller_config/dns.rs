//! The DNS object of the cluster, of which a ControllerConfig carries a copy.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::infrastructure::Empty;
use super::infrastructure::PlatformType;
use super::rules;
use crate::meta::AnyObject;
use crate::wire::is_default;

/// DNS settings of the cluster, as an embedded object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-embedded-resource" = true))]
pub struct Dns {
    /// API group and version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Metadata of the object.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "AnyObject")]
    pub metadata: ObjectMeta,
    /// Desired DNS settings.
    pub spec: DnsSpec,
    /// Status of the object; empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Empty>,
}

/// Zones and base domain of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DnsSpec {
    /// Base domain of all DNS names of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub base_domain: String,
    /// DNS settings of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<DnsPlatformSpec>,
    /// DNS zone for names inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_zone: Option<DnsZone>,
    /// DNS zone for names outside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_zone: Option<DnsZone>,
}

/// DNS settings of one platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::DNS_PLATFORM_SPEC))]
pub struct DnsPlatformSpec {
    /// Settings of a cluster on AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsDnsSpec>,
    /// Type of the platform: empty or `AWS`.
    #[serde(rename = "type")]
    #[schemars(extend("x-kubernetes-validations" = rules::DNS_PLATFORM_TYPES))]
    pub kind: PlatformType,
}

/// DNS settings on AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsDnsSpec {
    /// ARN of the IAM role to assume for changes of the private zone.
    #[serde(rename = "privateZoneIAMRole", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = rules::AWS_DNS_SPEC_PRIVATE_ZONE_IAM_ROLE))]
    pub private_zone_iam_role: String,
}

/// A DNS zone, given by ID or by tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DnsZone {
    /// ID of the zone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Tags that identify the zone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}
