//! Node disruption policies: the actions on a running node after a config change.

use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::Rule;
use crate::text::UnitName;
use crate::wire_enum::wire_enum;

/// Actions after changes of certain parts of a node's config. A change that matches neither this
/// policy nor the cluster's own policy leads to a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(transform = forbid_special)]
pub struct NodeDisruptionPolicyConfig {
    /// Actions after changes of files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub files: Vec<FilePolicy>,
    /// Actions after changes of systemd units.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub units: Vec<UnitPolicy>,
    /// Actions after changes of SSH keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sshkey: Option<SshKeyPolicy>,
}

/// Node disruption policy in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeDisruptionPolicyStatus {
    /// The administrator's policy merged over the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_policies: Option<ClusterPolicies>,
}

/// The administrator's policy merged over the cluster's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterPolicies {
    /// Actions after changes of files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub files: Vec<FilePolicy>,
    /// Actions after changes of systemd units.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub units: Vec<UnitPolicy>,
    /// Actions after changes of SSH keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sshkey: Option<SshKeyPolicy>,
}

/// Actions after a change of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FilePolicy {
    /// Absolute path of the file, or of a directory for all files below it.
    pub path: String,
    /// Actions to take, in this order.
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = ACTION_LIST_RULES))]
    pub actions: Vec<PolicyAction>,
}

/// Actions after a change of one systemd unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitPolicy {
    /// Name of the unit with its suffix, such as `crio.service`.
    #[schemars(with = "UnitName")]
    pub name: String,
    /// Actions to take, in this order.
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = ACTION_LIST_RULES))]
    pub actions: Vec<PolicyAction>,
}

/// Actions after changes of SSH keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SshKeyPolicy {
    /// Actions to take, in this order.
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = ACTION_LIST_RULES))]
    pub actions: Vec<PolicyAction>,
}

wire_enum! {
    /// Type of an action on a node.
    pub enum ActionType {
        /// Reboot the node.
        Reboot = "Reboot",
        /// Cordon the node and evict its pods before other actions.
        Drain = "Drain",
        /// Reload a service.
        Reload = "Reload",
        /// Restart a service.
        Restart = "Restart",
        /// Make systemd reload its unit files.
        DaemonReload = "DaemonReload",
        /// Do nothing.
        None = "None",
        /// Let the daemon decide; only the cluster's own policy uses this type.
        Special = "Special",
    }
}

/// One action on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = ACTION_RULES))]
pub struct PolicyAction {
    /// Type of the action. `Reboot` and `None` must be the only action.
    #[serde(rename = "type")]
    pub kind: ActionType,
    /// Service to reload, for the type `Reload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<ServiceReference>,
    /// Service to restart, for the type `Restart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<ServiceReference>,
}

/// A reference to a systemd unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceReference {
    /// Name of the unit with its suffix, such as `crio.service`.
    #[schemars(with = "UnitName")]
    pub service_name: String,
}

/// Removes the action type `Special` from a schema, at any depth.
fn forbid_special(schema: &mut Schema) {
    let words = schema.get_mut("enum").and_then(Value::as_array_mut);
    if let Some(words) = words {
        words.retain(|word| word != ActionType::Special.as_str());
    }
    transform_subschemas(&mut forbid_special, schema);
}

const ACTION_LIST_RULES: &[Rule] = &[
    Rule::new(
        "self.exists(x, x.type=='Reboot') ? size(self) == 1 : true",
        "Reboot action can only be specified standalone, as it will override any other actions",
    ),
    Rule::new(
        "self.exists(x, x.type=='None') ? size(self) == 1 : true",
        "None action can only be specified standalone, as it will override any other actions",
    ),
];

const ACTION_RULES: &[Rule] = &[
    Rule::new(
        "has(self.type) && self.type == 'Reload' ? has(self.reload) : !has(self.reload)",
        "reload is required when type is Reload, and forbidden otherwise",
    ),
    Rule::new(
        "has(self.type) && self.type == 'Restart' ? has(self.restart) : !has(self.restart)",
        "restart is required when type is Restart, and forbidden otherwise",
    ),
];
