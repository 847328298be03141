//! Node lifecycle, scheduler, kubelets and the pods of deleted nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    Resource as _,
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Status,
};
use kube::{ResourceExt as _, api::DeleteParams};
use mco_cluster::{
    Api, CallError,
    apply::{self, Precondition},
};
use serde_json::json;

use super::{unless_changed, write_status};
use crate::up::controllers::{
    Controllers, node_lifecycle, pod_status,
    pods::{PodView, controller},
    schedule::{self, Load, NodeView},
};

impl Controllers {
    pub(in super::super) async fn node_lifecycle(&mut self) -> Result<(), CallError> {
        let now = self.clock.now();
        let (nodes, leases) = (self.nodes.list(), self.leases.list());
        let leases: BTreeMap<String, &Lease> =
            leases.iter().map(|lease| (lease.name_any(), &**lease)).collect();
        let all: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
        let stale = self.heartbeats.stale(&all, &leases, now);
        let api = Api::<Node>::all(self.client.clone());
        for node in all {
            let name = node.name_any();
            let version = node.resource_version().unwrap_or_default();
            let guard = Precondition::Unchanged(&version);
            let conditions = stale.contains(&name).then(|| node_lifecycle::unknown(node, now));
            if let Some(conditions) = conditions.flatten() {
                let status = json!({"conditions": conditions});
                let written = apply::merge_status(&api, &name, status, guard).await;
                if let Some(written) = unless_changed(written)? {
                    self.nodes.learn(written);
                }
                continue;
            }
            if let Some(taints) = node_lifecycle::taints(node, now) {
                let patch = json!({"spec": {"taints": taints}});
                let written = apply::merge(&api, &name, patch, guard).await;
                if let Some(written) = unless_changed(written)? {
                    self.nodes.learn(written);
                }
            }
        }
        Ok(())
    }

    /// Deletes pods whose node is gone or whose toleration of a taint is over, pods that an earlier
    /// version of `mco up` created for a Deployment, and confirms the end of pods that are deleted.
    pub(in super::super) async fn collect_pods(&self) -> Result<(), CallError> {
        let now = self.clock.now();
        let nodes: BTreeMap<String, Arc<Node>> =
            self.nodes.list().into_iter().map(|node| (node.name_any(), node)).collect();
        for pod in self.pods.list() {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let owner = controller(&pod.metadata);
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let leaves = match node.map(|node| (node, nodes.get(node))) {
                Some((_, Some(node))) => node_lifecycle::is_evicted(&pod, node, now),
                Some((node, None)) => self.is_absent(node).await?,
                None => false,
            };
            if pod.metadata.deletion_timestamp.is_some() {
                let params = DeleteParams::default().grace_period(0);
                let api: Api<Pod> = self.api(Some(&namespace));
                let ended = api.delete(&name, &params).await.map_err(CallError::from);
                unless_changed(ended)?;
            } else if leaves || owner.is_some_and(|it| it.kind == "Deployment") {
                self.delete_pod(&namespace, &name).await?;
            }
        }
        Ok(())
    }

    /// Returns true if a node does not exist. The cache may not have a new one yet.
    async fn is_absent(&self, node: &str) -> Result<bool, CallError> {
        let nodes = Api::<Node>::all(self.client.clone());
        Ok(nodes.get_opt(node).await?.is_none())
    }

    /// Binds pods without a node, and reports those that fit none.
    pub(in super::super) async fn schedule(&self) -> Result<(), CallError> {
        let pods = self.pods.list();
        let is_waiting = |pod: &&Arc<Pod>| {
            let view = PodView::of(pod);
            view.node.is_none() && view.is_active()
        };
        let waiting: Vec<&Arc<Pod>> = pods.iter().filter(is_waiting).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let nodes: Vec<NodeView> =
            self.nodes.list().iter().map(|node| NodeView::of(node)).collect();
        let views: Vec<PodView> = pods.iter().map(|pod| PodView::of(pod)).collect();
        let mut load = Load::new();
        let mut of_owner: BTreeMap<Option<&str>, Load<'_>> = BTreeMap::new();
        for view in views.iter().filter(|view| view.is_active()) {
            let Some(node) = view.node.as_deref() else { continue };
            *load.entry(node).or_default() += 1;
            let siblings = of_owner.entry(view.owner.as_deref()).or_default();
            *siblings.entry(node).or_default() += 1;
        }
        for pod in waiting {
            let spec = pod.spec.clone().unwrap_or_default();
            let owner = controller(&pod.metadata).map(|it| it.uid.as_str());
            let siblings = of_owner.entry(owner).or_default();
            match schedule::select(&spec, &nodes, siblings, &load) {
                Some(node) => {
                    *load.entry(&node.name).or_default() += 1;
                    *siblings.entry(&node.name).or_default() += 1;
                    self.bind(pod, &node.name).await?;
                }
                None => self.report_unschedulable(pod, nodes.len()).await?,
            }
        }
        Ok(())
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<(), CallError> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let path =
            format!("/api/v1/namespaces/{namespace}/{}/{name}/binding", Pod::URL_PATH_SEGMENT);
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes());
        let request = request.expect("names of objects are valid in URLs");
        let bound = self.client.request::<Status>(request).await.map_err(CallError::from);
        unless_changed(bound)?;
        let api: Api<Pod> = self.api(Some(&namespace));
        if let Some(pod) = api.get_opt(&name).await? {
            self.pods.learn(pod);
        }
        Ok(())
    }

    async fn report_unschedulable(&self, pod: &Pod, nodes: usize) -> Result<(), CallError> {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        if conditions.any(|it| it.type_ == "PodScheduled" && it.status == "False") {
            return Ok(());
        }
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": format!("0/{nodes} nodes are available."),
            "lastTransitionTime": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
        let status = json!({"phase": "Pending", "conditions": [condition]});
        let (namespace, name) = (pod.namespace(), pod.name_any());
        let api = self.api(namespace.as_deref());
        write_status(&api, &self.pods, &name, pod.status.as_ref(), &status).await
    }

    /// Reports the state of the pods on every node.
    pub(in super::super) async fn pod_statuses(&self) -> Result<(), CallError> {
        let now = self.clock.now();
        let nodes: BTreeMap<String, NodeView> =
            self.nodes.list().iter().map(|node| (node.name_any(), NodeView::of(node))).collect();
        let pods = self.pods.list();
        let address = |pod: &Arc<Pod>| pod.status.as_ref()?.pod_ip.clone();
        let mut taken: BTreeSet<String> = pods.iter().filter_map(address).collect();
        for pod in &pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let Some(node) = node.and_then(|node| nodes.get(node)) else { continue };
            let Some(state) = pod_status::next(pod, node, now) else { continue };
            let address = pod_status::address(pod, &taken);
            taken.extend(address.clone());
            let status = pod_status::status(pod, node, state, address, now);
            let (namespace, name) = (pod.namespace(), pod.name_any());
            let api = self.api(namespace.as_deref());
            write_status(&api, &self.pods, &name, pod.status.as_ref(), &status).await?;
        }
        Ok(())
    }
}
