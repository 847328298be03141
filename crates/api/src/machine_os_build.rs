//! MachineOSBuild: one build of a pool's OS image.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::{ConditionSchema, ResourceReference, TimeSchema};
use crate::schema::Rule;
use crate::text::{DigestedImage, PushSpec, RenderedConfigName, RequiredObjectName};

kind! {
    /// One build of a pool's OS image from a MachineOSConfig and a rendered config. Its spec never
    /// changes.
    pub struct MachineOSBuild {
        spec: MachineOSBuildSpec,
        status: MachineOSBuildStatus,
    }
    Definition {
        plural: "machineosbuilds",
        columns: &[
            Column::text("Prepared", condition_path!("Prepared"), ""),
            Column::text("Building", condition_path!("Building"), ""),
            Column::text("Succeeded", condition_path!("Succeeded"), ""),
            Column::text("Interrupted", condition_path!("Interrupted"), ""),
            Column::text("Failed", condition_path!("Failed"), ""),
            Column::AGE,
        ],
        ..Definition::COMMON
    }
}

/// Input and target of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[SPEC_IS_IMMUTABLE]))]
pub struct MachineOSBuildSpec {
    /// Rendered config that goes into the image.
    pub machine_config: RenderedConfigReference,
    /// MachineOSConfig that the build is for.
    #[serde(rename = "machineOSConfig")]
    pub machine_os_config: MachineOSConfigReference,
    /// Image reference that the result is pushed to.
    #[schemars(with = "PushSpec")]
    pub rendered_image_push_spec: String,
}

/// A reference to a rendered config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RenderedConfigReference {
    /// Name of the config.
    #[schemars(with = "RenderedConfigName")]
    pub name: String,
}

/// A reference to a MachineOSConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOSConfigReference {
    /// Name of the MachineOSConfig.
    #[schemars(with = "RequiredObjectName")]
    pub name: String,
}

/// Observed state of the build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[END_AFTER_START]))]
pub struct MachineOSBuildStatus {
    /// Steps of the build, one condition each. They are immutable after the build failed, succeeded
    /// or was interrupted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(extend("x-kubernetes-validations" = CONDITION_RULES))]
    pub conditions: Vec<Condition>,
    /// Builder that runs the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builder: Option<BuilderReference>,
    /// Objects that belong to the build.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "resource"]))]
    pub related_objects: Vec<ResourceReference>,
    /// Time at which the build started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = &[BUILD_START_IS_IMMUTABLE]))]
    #[schemars(with = "Option<TimeSchema>")]
    pub build_start: Option<Time>,
    /// Time at which the build ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = &[BUILD_END_IS_IMMUTABLE]))]
    #[schemars(with = "Option<TimeSchema>")]
    pub build_end: Option<Time>,
    /// Image reference of the result, by digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "DigestedImage")]
    pub digested_image_push_spec: String,
}

/// A reference to the builder that runs a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[JOB_FOR_JOB_BUILDER]))]
pub struct BuilderReference {
    /// Type of the builder; `Job` is the only type.
    pub image_builder_type: String,
    /// Job that runs the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<ResourceReference>,
}

const SPEC_IS_IMMUTABLE: Rule =
    Rule::new("self == oldSelf", "machineOSBuildSpec is immutable once set");
const BUILD_START_IS_IMMUTABLE: Rule =
    Rule::new("self == oldSelf", "buildStart is immutable once set");
const BUILD_END_IS_IMMUTABLE: Rule = Rule::new("self == oldSelf", "buildEnd is immutable once set");
const END_AFTER_START: Rule = Rule::new(
    "has(self.buildEnd) ? has(self.buildStart) && timestamp(self.buildStart) < timestamp(self.buildEnd) : true",
    "buildEnd must be after buildStart",
);
const JOB_FOR_JOB_BUILDER: Rule = Rule::new(
    "has(self.imageBuilderType) && self.imageBuilderType == 'Job' ?  has(self.job) : !has(self.job)",
    "job is required when imageBuilderType is Job, and forbidden otherwise",
);
const CONDITION_RULES: &[Rule] = &[
    Rule::new(
        "oldSelf.exists(x, x.type=='Failed' && x.status=='True') ? self==oldSelf : true",
        "once a Failed condition is set, conditions are immutable",
    ),
    Rule::new(
        "oldSelf.exists(x, x.type=='Interrupted' && x.status=='True') ? self==oldSelf : true",
        "once an Interrupted condition is set, conditions are immutable",
    ),
    Rule::new(
        "oldSelf.exists(x, x.type=='Succeeded' && x.status=='True') ? self==oldSelf : true",
        "once an Succeeded condition is set, conditions are immutable",
    ),
];
