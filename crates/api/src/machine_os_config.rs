//! MachineOSConfig: settings for building a pool's OS image in the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::machine_config_node::NameReference;
use crate::meta::{ConditionSchema, ResourceReference};
use crate::schema::Rule;
use crate::text::{DigestedImage, PushSpec};
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

kind! {
    /// Settings for building the OS image of one pool in the cluster: the additions to the
    /// release's OS image, and the registry that the result is pushed to. The object has the name
    /// of its pool.
    pub struct MachineOSConfig {
        spec: MachineOSConfigSpec,
        status: MachineOSConfigStatus,
    }
    Definition {
        plural: "machineosconfigs",
        rules: &[Rule::new(
            "self.metadata.name == self.spec.machineConfigPool.name || oldSelf.hasValue() && oldSelf.spec.machineConfigPool.name.value() == self.spec.machineConfigPool.name",
            "MachineOSConfig name must match the referenced MachineConfigPool name; can only have one MachineOSConfig per MachineConfigPool",
        )
        .with_optional_old_self()],
        ..Definition::COMMON
    }
}

/// Input and target of the builds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOSConfigSpec {
    /// Pool whose nodes run the image.
    pub machine_config_pool: NameReference,
    /// Builder that runs the builds.
    pub image_builder: ImageBuilder,
    /// Secret for pulling the base image. The cluster's pull secret if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_image_pull_secret: Option<NameReference>,
    /// Secret for pushing the result.
    pub rendered_image_push_secret: NameReference,
    /// Image reference that the result is pushed to, with a tag, such as `quay.io/me/os:latest`.
    #[schemars(with = "PushSpec")]
    pub rendered_image_push_spec: String,
    /// Containerfiles, one for each architecture or one for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 0, max = 4))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["containerfileArch"]))]
    pub container_file: Vec<Containerfile>,
}

wire_enum! {
    /// Type of a builder.
    pub enum ImageBuilderType {
        /// A Kubernetes Job.
        Job = "Job",
    }
}

/// Settings of the builder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageBuilder {
    /// Type of the builder. `Job` is the only choice.
    pub image_builder_type: ImageBuilderType,
}

wire_enum! {
    /// Architecture that a Containerfile is for.
    pub enum ContainerfileArch {
        /// Any architecture.
        NoArch = "NoArch",
        /// aarch64.
        Arm64 = "ARM64",
        /// `x86_64`.
        Amd64 = "AMD64",
        /// ppc64le.
        Ppc64le = "PPC64LE",
        /// s390x.
        S390x = "S390X",
    }
}

/// A Containerfile for one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["content"]))]
pub struct Containerfile {
    /// Architecture that the Containerfile is for. `NoArch` means all.
    #[schemars(extend("x-default" = "NoArch"))]
    pub containerfile_arch: ContainerfileArch,
    /// Content of the Containerfile, starting with `FROM configs AS final`.
    #[schemars(length(max = 4096))]
    pub content: String,
}

/// Result of the builds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOSConfigStatus {
    /// Conditions of the MachineOSConfig.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation that the controller last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 0))]
    #[schemars(extend("x-kubernetes-validations" = &[OBSERVED_GENERATION]))]
    pub observed_generation: i64,
    /// Newest image, by digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "DigestedImage")]
    pub current_image_pull_spec: String,
    /// Reference to the running or most recent MachineOSBuild.
    #[serde(rename = "machineOSBuild", skip_serializing_if = "Option::is_none")]
    pub machine_os_build: Option<ResourceReference>,
}

const OBSERVED_GENERATION: Rule =
    Rule::new("self >= oldSelf", "observedGeneration must not move backwards");
