//! Node disruption policy: what a config change does to a running node.

use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::Rule;
use crate::text::UnitName;
use crate::wire_enum::wire_enum;

/// What to do when certain parts of a node's config change. Whatever is not listed here or in the
/// cluster's own policy leads to a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(transform = forbid_special)]
pub struct NodeDisruptionPolicyConfig {
    /// What to do when a file changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub files: Vec<FilePolicy>,
    /// What to do when a systemd unit changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub units: Vec<UnitPolicy>,
    /// What to do when the SSH keys change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sshkey: Option<SshKeyPolicy>,
}

/// The policy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeDisruptionPolicyStatus {
    /// The cluster's own policy with the administrator's on top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_policies: Option<ClusterPolicies>,
}

/// The cluster's own policy with the administrator's on top.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterPolicies {
    /// What is done when a file changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub files: Vec<FilePolicy>,
    /// What is done when a systemd unit changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub units: Vec<UnitPolicy>,
    /// What is done when the SSH keys change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sshkey: Option<SshKeyPolicy>,
}

/// What to do when one file changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FilePolicy {
    /// Absolute path of the file, or of a folder for all files below it.
    pub path: String,
    /// What to do, in this order.
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = ACTION_LIST_RULES))]
    pub actions: Vec<PolicyAction>,
}

/// What to do when one systemd unit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitPolicy {
    /// Name of the unit with its suffix, such as `crio.service`.
    #[schemars(with = "UnitName")]
    pub name: String,
    /// What to do, in this order.
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = ACTION_LIST_RULES))]
    pub actions: Vec<PolicyAction>,
}

/// What to do when the SSH keys change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SshKeyPolicy {
    /// What to do, in this order.
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = ACTION_LIST_RULES))]
    pub actions: Vec<PolicyAction>,
}

wire_enum! {
    /// What can be done to a node.
    pub enum ActionType {
        /// Restart the machine.
        Reboot = "Reboot",
        /// Cordon the node and evict its pods first.
        Drain = "Drain",
        /// Reload a service.
        Reload = "Reload",
        /// Restart a service.
        Restart = "Restart",
        /// Make systemd read its units again.
        DaemonReload = "DaemonReload",
        /// Nothing.
        None = "None",
        /// What the daemon decides by itself; only the cluster's own policy has it.
        Special = "Special",
    }
}

/// One thing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = ACTION_RULES))]
pub struct PolicyAction {
    /// What to do. `Reboot` and `None` stand alone.
    #[serde(rename = "type")]
    pub kind: ActionType,
    /// The service to reload, for `Reload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<ServiceReference>,
    /// The service to restart, for `Restart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<ServiceReference>,
}

/// Names a systemd unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceReference {
    /// Name of the unit with its suffix, such as `crio.service`.
    #[schemars(with = "UnitName")]
    pub service_name: String,
}

/// Takes the cluster's own action word out of a schema, at any depth.
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
