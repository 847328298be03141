//! ContainerRuntimeConfig: CRI-O settings for the nodes of some pools.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::meta::{LooseCondition, QuantitySchema, SelectorSchema};
use crate::schema::Rule;
use crate::text::StorePath;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

kind! {
    /// CRI-O settings for the nodes of the selected pools. The controller generates a MachineConfig
    /// for each of these pools.
    pub struct ContainerRuntimeConfig {
        spec: ContainerRuntimeConfigSpec,
        status: ContainerRuntimeConfigStatus,
    }
    Definition {
        plural: "containerruntimeconfigs",
        short_names: &["ctrcfg"],
        ..Definition::COMMON
    }
}

/// CRI-O settings and the pools that they apply to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerRuntimeConfigSpec {
    /// Pools that the settings apply to. No pool if unset; all pools if empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// CRI-O settings.
    pub container_runtime_config: ContainerRuntimeSettings,
}

wire_enum! {
    /// OCI runtime that starts containers.
    pub enum DefaultRuntime {
        /// crun.
        Crun = "crun",
        /// runc.
        Runc = "runc",
    }
}

/// CRI-O settings. Settings that are left out keep CRI-O's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerRuntimeSettings {
    /// Maximum number of processes in one container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// Log level of CRI-O: `fatal`, `panic`, `error`, `warn`, `info` or `debug`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log_level: String,
    /// Maximum size of a container's log, at least 8192 bytes. Negative for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QuantitySchema")]
    pub log_size_max: Option<IntOrString>,
    /// Maximum size of a container's writable layer, for example `10G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QuantitySchema")]
    pub overlay_size: Option<IntOrString>,
    /// OCI runtime that starts containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_runtime: Option<DefaultRuntime>,
    /// Directories with shared image layers that CRI-O uses in addition to its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = &[LAYER_STORES]))]
    pub additional_layer_stores: Vec<Store>,
    /// Directories with shared images that CRI-O uses in addition to its own, read-only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = &[IMAGE_STORES]))]
    pub additional_image_stores: Vec<Store>,
    /// Directories with shared OCI artifacts that CRI-O uses in addition to its own, read-only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = &[ARTIFACT_STORES]))]
    pub additional_artifact_stores: Vec<Store>,
}

/// A storage directory on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Store {
    /// Absolute path of the directory.
    #[schemars(with = "StorePath")]
    pub path: String,
}

/// Result of applying the settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerRuntimeConfigStatus {
    /// Generation that the controller last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Conditions that show if the settings were accepted, and the reason if not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<LooseCondition>,
}

const DISTINCT_PATHS: &str = "self.all(x, self.exists_one(y, x.path == y.path))";
const LAYER_STORES: Rule =
    Rule::new(DISTINCT_PATHS, "additionalLayerStores must not contain duplicate paths");
const IMAGE_STORES: Rule =
    Rule::new(DISTINCT_PATHS, "additionalImageStores must not contain duplicate paths");
const ARTIFACT_STORES: Rule =
    Rule::new(DISTINCT_PATHS, "additionalArtifactStores must not contain duplicate paths");
