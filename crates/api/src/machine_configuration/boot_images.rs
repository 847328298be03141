//! Boot images: which ones the operator keeps current, and how far they may lag behind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::SelectorSchema;
use crate::schema::Rule;
use crate::text::{OcpVersion, RhcosVersion};
use crate::wire_enum::wire_enum;

/// Objects whose boot image the operator keeps current.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedBootImages {
    /// The objects, by resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["resource", "apiGroup"]))]
    pub machine_managers: Vec<MachineManager>,
}

/// One resource that makes machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[CONTROL_PLANE_IS_WHOLE]))]
pub struct MachineManager {
    /// Resource: `machinesets` or `controlplanemachinesets`.
    #[schemars(extend("enum" = ["machinesets", "controlplanemachinesets"]))]
    pub resource: String,
    /// API group of the resource.
    #[schemars(extend("enum" = ["machine.openshift.io"]))]
    pub api_group: String,
    /// Which objects of the resource.
    pub selection: MachineManagerSelection,
}

wire_enum! {
    /// How many objects are meant.
    pub enum SelectionMode {
        /// All.
        All = "All",
        /// Those that a selector picks.
        Partial = "Partial",
        /// None.
        None = "None",
    }
}

/// Which objects of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[PARTIAL_IF_PARTIAL]))]
pub struct MachineManagerSelection {
    /// `All`, `Partial` or `None`.
    pub mode: SelectionMode,
    /// The selector of mode `Partial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialSelection>,
}

/// A choice by label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PartialSelection {
    /// Labels of the objects.
    #[schemars(with = "SelectorSchema")]
    pub machine_resource_selector: LabelSelector,
}

/// How far boot images may lag behind before upgrades are blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[MANUAL_IF_MANUAL]))]
pub struct BootImageSkewEnforcement {
    /// `Manual` to say the version here, `None` to switch the check off.
    #[schemars(extend("enum" = ["Manual", "None"]))]
    pub mode: String,
    /// The version of mode `Manual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,
}

/// How far boot images may lag behind, as it is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = STATUS_MODE_RULES))]
pub struct BootImageSkewEnforcementStatus {
    /// Where the version comes from: `Automatic`, `Manual` or `None`.
    #[schemars(extend("enum" = ["Automatic", "Manual", "None"]))]
    pub mode: String,
    /// The version of mode `Automatic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticBootImageVersion>,
    /// The version of mode `Manual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,
}

/// A boot image version that an administrator gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = MANUAL_MODE_RULES))]
pub struct ManualBootImageVersion {
    /// Which version is given: `OCPVersion` or `RHCOSVersion`.
    #[schemars(extend("enum" = ["OCPVersion", "RHCOSVersion"]))]
    pub mode: String,
    /// Version of OpenShift, such as `4.18.2`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "OcpVersion")]
    pub ocp_version: String,
    /// Version of the operating system, such as `9.6.20250701-0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "RhcosVersion")]
    pub rhcos_version: String,
}

/// A boot image version that the operator found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
#[schemars(extend("x-kubernetes-validations" = &[ONE_VERSION]))]
pub struct AutomaticBootImageVersion {
    /// Version of OpenShift.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "OcpVersion")]
    pub ocp_version: String,
    /// Version of the operating system.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "RhcosVersion")]
    pub rhcos_version: String,
}

const CONTROL_PLANE_IS_WHOLE: Rule = Rule::new(
    "self.resource != 'controlplanemachinesets' || self.selection.mode == 'All' || self.selection.mode == 'None'",
    "Only All or None selection mode is permitted for ControlPlaneMachineSets",
);
const PARTIAL_IF_PARTIAL: Rule = Rule::new(
    "has(self.mode) && self.mode == 'Partial' ?  has(self.partial) : !has(self.partial)",
    "Partial is required when type is partial, and forbidden otherwise",
);
const MANUAL_IF_MANUAL: Rule = Rule::new(
    "has(self.mode) && (self.mode =='Manual') ?  has(self.manual) : !has(self.manual)",
    "manual is required when mode is Manual, and forbidden otherwise",
);
const ONE_VERSION: Rule = Rule::new(
    "has(self.ocpVersion) || has(self.rhcosVersion)",
    "at least one of ocpVersion or rhcosVersion is required",
);
const STATUS_MODE_RULES: &[Rule] = &[
    Rule::new(
        "has(self.mode) && (self.mode == 'Automatic') ?  has(self.automatic) : !has(self.automatic)",
        "automatic is required when mode is Automatic, and forbidden otherwise",
    ),
    Rule::new(
        "has(self.mode) && (self.mode == 'Manual') ?  has(self.manual) : !has(self.manual)",
        "manual is required when mode is Manual, and forbidden otherwise",
    ),
];
const MANUAL_MODE_RULES: &[Rule] = &[
    Rule::new(
        "has(self.mode) && (self.mode =='OCPVersion') ?  has(self.ocpVersion) : !has(self.ocpVersion)",
        "ocpVersion is required when mode is OCPVersion, and forbidden otherwise",
    ),
    Rule::new(
        "has(self.mode) && (self.mode =='RHCOSVersion') ?  has(self.rhcosVersion) : !has(self.rhcosVersion)",
        "rhcosVersion is required when mode is RHCOSVersion, and forbidden otherwise",
    ),
];
