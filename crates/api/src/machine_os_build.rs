//! MachineOSBuild: one build of a pool's OS image.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::{ConditionSchema, ResourceReference};
use crate::schema::Rule;
use crate::text::{DigestedImage, PushSpec, RenderedConfigName, RequiredObjectName};

kind! {
    /// One build of a pool's OS image: made from a MachineOSConfig and a rendered config, never
    /// changed afterwards.
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

/// What to build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[SPEC_STAYS]))]
pub struct MachineOSBuildSpec {
    /// Rendered config that goes into the image.
    pub machine_config: RenderedConfigReference,
    /// MachineOSConfig that the build follows.
    #[serde(rename = "machineOSConfig")]
    pub machine_os_config: MachineOSConfigReference,
    /// Where to push the result.
    #[schemars(with = "PushSpec")]
    pub rendered_image_push_spec: String,
}

/// Names a rendered config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RenderedConfigReference {
    /// Name of the config.
    #[schemars(with = "RenderedConfigName")]
    pub name: String,
}

/// Names a MachineOSConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineOSConfigReference {
    /// Name of the MachineOSConfig.
    #[schemars(with = "RequiredObjectName")]
    pub name: String,
}

/// How far the build is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[END_AFTER_START]))]
pub struct MachineOSBuildStatus {
    /// Steps of the build; frozen once it has failed, succeeded or been interrupted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[schemars(extend("x-kubernetes-validations" = CONDITION_RULES))]
    pub conditions: Vec<Condition>,
    /// What runs the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builder: Option<BuilderReference>,
    /// Objects that belong to the build.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "resource"]))]
    pub related_objects: Vec<ResourceReference>,
    /// When the build started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = &[START_STAYS]))]
    pub build_start: Option<Time>,
    /// When the build ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = &[END_STAYS]))]
    pub build_end: Option<Time>,
    /// The result, by digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "DigestedImage")]
    pub digested_image_push_spec: String,
}

/// What runs a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[JOB_IF_JOB]))]
pub struct BuilderReference {
    /// Kind of builder; `Job` is the only one.
    pub image_builder_type: String,
    /// The Job that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<ResourceReference>,
}

const SPEC_STAYS: Rule = Rule::new("self == oldSelf", "machineOSBuildSpec is immutable once set");
const START_STAYS: Rule = Rule::new("self == oldSelf", "buildStart is immutable once set");
const END_STAYS: Rule = Rule::new("self == oldSelf", "buildEnd is immutable once set");
const END_AFTER_START: Rule = Rule::new(
    "has(self.buildEnd) ? has(self.buildStart) && timestamp(self.buildStart) < timestamp(self.buildEnd) : true",
    "buildEnd must be after buildStart",
);
const JOB_IF_JOB: Rule = Rule::new(
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
