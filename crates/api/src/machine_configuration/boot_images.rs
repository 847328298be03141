//! Boot images: the objects whose boot image the operator updates, and the limit on boot image age.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::SelectorSchema;
use crate::schema::Rule;
use crate::text::{OcpVersion, RhcosVersion};
use crate::wire_enum::wire_enum;

/// Objects whose boot image the operator updates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedBootImages {
    /// Selected objects, by resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["resource", "apiGroup"]))]
    pub machine_managers: Vec<MachineManager>,
}

/// A resource that creates machines, and the selection of its objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[CONTROL_PLANE_ALL_OR_NONE]))]
pub struct MachineManager {
    /// Resource: `machinesets` or `controlplanemachinesets`.
    #[schemars(extend("enum" = ["machinesets", "controlplanemachinesets"]))]
    pub resource: String,
    /// API group of the resource.
    #[schemars(extend("enum" = ["machine.openshift.io"]))]
    pub api_group: String,
    /// Objects of the resource that are selected.
    pub selection: MachineManagerSelection,
}

wire_enum! {
    /// Mode of a selection.
    pub enum SelectionMode {
        /// All objects.
        All = "All",
        /// Objects that match a label selector.
        Partial = "Partial",
        /// No objects.
        None = "None",
    }
}

/// Selection of the objects of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[PARTIAL_FOR_PARTIAL_MODE]))]
pub struct MachineManagerSelection {
    /// Mode of the selection: `All`, `Partial` or `None`.
    pub mode: SelectionMode,
    /// Label selector for the mode `Partial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialSelection>,
}

/// A selection by label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PartialSelection {
    /// Labels of the selected objects.
    #[schemars(with = "SelectorSchema")]
    pub machine_resource_selector: LabelSelector,
}

/// Limit on the age of boot images, beyond which cluster upgrades are blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[MANUAL_FOR_MANUAL_MODE]))]
pub struct BootImageSkewEnforcement {
    /// Mode of the check: `Manual` to set the boot image version here, `None` to disable the check.
    #[schemars(extend("enum" = ["Manual", "None"]))]
    pub mode: String,
    /// Boot image version for the mode `Manual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,
}

/// Limit on the age of boot images, as it is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = STATUS_MODE_RULES))]
pub struct BootImageSkewEnforcementStatus {
    /// Source of the boot image version: `Automatic`, `Manual` or `None`.
    #[schemars(extend("enum" = ["Automatic", "Manual", "None"]))]
    pub mode: String,
    /// Boot image version for the mode `Automatic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticBootImageVersion>,
    /// Boot image version for the mode `Manual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,
}

/// A boot image version that the administrator set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = MANUAL_MODE_RULES))]
pub struct ManualBootImageVersion {
    /// Version that is set: `OCPVersion` or `RHCOSVersion`.
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

/// A boot image version that the operator determined.
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

const CONTROL_PLANE_ALL_OR_NONE: Rule = Rule::new(
    "self.resource != 'controlplanemachinesets' || self.selection.mode == 'All' || self.selection.mode == 'None'",
    "Only All or None selection mode is permitted for ControlPlaneMachineSets",
);
const PARTIAL_FOR_PARTIAL_MODE: Rule = Rule::new(
    "has(self.mode) && self.mode == 'Partial' ?  has(self.partial) : !has(self.partial)",
    "Partial is required when type is partial, and forbidden otherwise",
);
const MANUAL_FOR_MANUAL_MODE: Rule = Rule::new(
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
