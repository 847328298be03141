//! A Node that is deserialized without the members that the controller does not read.
//!
//! Most of a Node is the status that its kubelet writes for the scheduler, and the managed fields.
//! Both come with every response and every event; members that are not deserialized cost no memory
//! and little time.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    ClusterResourceScope,
    api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use mco_api::GROUP;
use mco_cluster::watch::Unreadable;
use serde::{Deserialize, Deserializer};

/// A Node with only the members that the controller reads.
#[derive(Clone, Debug)]
pub(crate) struct LeanNode(Node);

impl From<LeanNode> for Node {
    fn from(node: LeanNode) -> Self {
        node.0
    }
}

impl mco_cluster::Object for LeanNode {
    fn decode(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.0)
    }

    /// Returns the node without its status, so that it counts as unavailable: it stays a member of its
    /// pool and takes one of its slots.
    fn salvage(node: &Unreadable) -> Option<Self> {
        let metadata = Metadata {
            name: Some(node.name.clone()),
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
            labels: node.labels.clone(),
            annotations: node.annotations.clone(),
            ..Metadata::default()
        };
        let ready = Condition { kind: "Ready".to_owned(), status: "Unknown".to_owned() };
        let status =
            NodeStatus { conditions: Some(relevant(vec![ready])), ..NodeStatus::default() };
        Some(Self(Node { metadata: metadata.into(), spec: None, status: Some(status) }))
    }
}

impl Resource for LeanNode {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Spec {
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
    #[serde(rename = "nodeInfo")]
    node_info: Option<NodeInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo {
    #[serde(default)]
    container_runtime_version: String,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl<'de> Deserialize<'de> for LeanNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(from)?;
        let spec = spec.map(|Spec { taints, unschedulable }| NodeSpec {
            taints,
            unschedulable,
            ..NodeSpec::default()
        });
        let status = status.map(|Status { phase, conditions, node_info }| NodeStatus {
            phase,
            node_info: node_info.map(|info| NodeSystemInfo {
                container_runtime_version: info.container_runtime_version,
                ..NodeSystemInfo::default()
            }),
            conditions: Some(relevant(conditions.unwrap_or_default())),
            ..NodeStatus::default()
        });
        Ok(Self(Node { metadata: metadata.into(), spec, status }))
    }
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        let mut annotations = metadata.annotations;
        if let Some(annotations) = &mut annotations {
            // Most annotations belong to other components.
            annotations.retain(|key, _| key.split('/').next() == Some(GROUP));
        }
        Self {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            labels: metadata.labels,
            annotations,
            ..Self::default()
        }
    }
}

fn relevant(conditions: Vec<Condition>) -> Vec<NodeCondition> {
    let relevant = ["Ready", "DiskPressure", "NetworkUnavailable"];
    let conditions = conditions.into_iter().filter(|one| relevant.contains(&one.kind.as_str()));
    conditions
        .map(|Condition { kind, status }| NodeCondition {
            type_: kind,
            status,
            ..NodeCondition::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use mco_cluster::Object as _;
    use mco_core::rollout::NodeView;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_cannot_be_decoded_counts_as_unavailable() {
        let node = Unreadable {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            namespace: None,
            name: "n0".to_owned(),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            labels: Some([("node-role.kubernetes.io/worker".to_owned(), String::new())].into()),
            annotations: None,
            fault: "unexpected type".to_owned(),
        };
        let node = Node::from(LeanNode::salvage(&node).unwrap());
        assert!(!NodeView::of(&node).is_ready());
        assert_eq!(node.metadata.labels.unwrap().len(), 1);
    }

    #[test]
    fn a_lean_node_has_all_that_decisions_depend_on_and_nothing_else() {
        let text = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n0", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "a"},
                "annotations": {
                    "machineconfiguration.openshift.io/currentConfig": "old",
                    "machineconfiguration.openshift.io/desiredConfig": "new",
                    "machineconfiguration.openshift.io/state": "Working",
                    "example.com/theirs": "long",
                },
                "managedFields": [{"manager": "kubelet", "operation": "Update"}],
                "finalizers": ["theirs"],
            },
            "spec": {"unschedulable": true, "providerID": "x",
                "taints": [{"key": "theirs", "effect": "NoSchedule"}]},
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
                    {"type": "PIDPressure", "status": "True"},
                ],
                "images": [{"names": ["a", "b"], "sizeBytes": 1}],
                "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6"},
            },
        });
        let whole: Node = serde_json::from_value(text.clone()).unwrap();
        let lean: Node = serde_json::from_value::<LeanNode>(text).unwrap().into();
        assert_eq!(NodeView::of(&lean), NodeView::of(&whole));
        let kept = |node: &Node| (node.metadata.labels.clone(), node.metadata.uid.clone());
        assert_eq!(kept(&lean), kept(&whole));
        assert_eq!(lean.spec.as_ref().unwrap().taints, whole.spec.unwrap().taints);
        let status = lean.status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"));
        let info = status.node_info.unwrap();
        assert_eq!(info.container_runtime_version, "containerd://2.1.4");
        assert_eq!(info.kernel_version, "");
        assert_eq!((status.conditions.unwrap().len(), status.images), (1, None));
        assert_eq!(lean.metadata.annotations.unwrap().len(), 3);
        assert_eq!((lean.metadata.managed_fields, lean.metadata.finalizers), (None, None));
    }
}
