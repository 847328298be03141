//! The example workload: a few pods with a PodDisruptionBudget, so that drains have pods to evict.
//!
//! [`plan`] decides like a scheduler, a ReplicaSet controller and the kubelets together; [`run`]
//! carries out the plan. Evicted pods are created again on another schedulable node.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use mco_cluster::{
    Api, Cache, CallError, Shutdown,
    apply::{self, Changes, Precondition},
    error::Rejection,
    report, watch,
};
use serde_json::json;
use tokio::sync::Notify;
use tracing::warn;

/// Name of the namespace, the Deployment, the PodDisruptionBudget and the label of the pods.
const NAME: &str = "example";

/// Pause after a failed write.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// The component that updates the status of the PodDisruptionBudget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetUpdates {
    /// The API server, as the embedded one does.
    ByApiServer,
    /// The workload, because a plain kube-apiserver runs no controllers.
    ByWorkload,
}

/// The availability of a node for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeAvailability {
    /// New pods can be scheduled.
    Schedulable,
    /// Existing pods stay, and no new pod is scheduled.
    Cordoned,
    /// The node is not ready, and its pods are not either.
    NotReady,
}

/// A pod of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodView {
    name: String,
    node: String,
    ready: bool,
}

/// A step that brings the pods to the wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodStep {
    /// Create a pod on the node.
    Create { node: String },
    /// Set the `Ready` condition of the pod.
    SetReady { pod: String, ready: bool },
    /// Delete a pod whose node was deleted.
    Delete { pod: String },
}

/// Plans the steps to `wanted` pods. New pods go to the node with the fewest pods.
pub(crate) fn plan(
    wanted: usize,
    nodes: &BTreeMap<String, NodeAvailability>,
    pods: &[PodView],
) -> Vec<PodStep> {
    let mut steps = Vec::new();
    let mut load: BTreeMap<&str, usize> = BTreeMap::new();
    let mut alive = 0;
    for pod in pods {
        let Some(availability) = nodes.get(&pod.node) else {
            steps.push(PodStep::Delete { pod: pod.name.clone() });
            continue;
        };
        alive += 1;
        *load.entry(&pod.node).or_default() += 1;
        let ready = *availability != NodeAvailability::NotReady;
        if ready != pod.ready {
            steps.push(PodStep::SetReady { pod: pod.name.clone(), ready });
        }
    }
    for _ in alive..wanted {
        let open = nodes.iter().filter(|(_, found)| **found == NodeAvailability::Schedulable);
        let least =
            open.map(|(node, _)| (load.get(node.as_str()).copied().unwrap_or(0), node)).min();
        let Some((_, node)) = least else { break };
        *load.entry(node).or_default() += 1;
        steps.push(PodStep::Create { node: node.clone() });
    }
    steps
}

/// Keeps `wanted` pods running until shutdown. The caller keeps the cache `nodes` up to date.
pub(crate) async fn run(
    client: Client,
    nodes: Arc<Cache<Node>>,
    wanted: usize,
    budget_updates: BudgetUpdates,
    shutdown: Shutdown,
) {
    if wanted == 0 {
        return;
    }
    let pods = Arc::new(Cache::<Pod>::new(|_| {}));
    let changed = Arc::new(Notify::new());
    let (of_nodes, of_pods) = (Arc::clone(&changed), Arc::clone(&changed));
    nodes.on_change(move |_| of_nodes.notify_one());
    pods.on_change(move |_| of_pods.notify_one());
    let workload =
        Workload { client: client.clone(), nodes, pods: Arc::clone(&pods), wanted, budget_updates };
    let ended = shutdown.clone();
    let keep = pods.run(workload.pods_api(), watch::Config::default(), &ended);
    let act = async {
        loop {
            let failed = workload.sync().await.inspect_err(|error| {
                warn!(error = report::chain(error), "Failed to reconcile the example workload");
            });
            tokio::select! {
                () = shutdown.requested() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(RETRY), if failed.is_err() => {}
            }
        }
    };
    tokio::join!(keep, act);
}

struct Workload {
    client: Client,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    wanted: usize,
    budget_updates: BudgetUpdates,
}

impl Workload {
    fn pods_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAME)
    }

    async fn sync(&self) -> Result<(), CallError> {
        self.prepare().await?;
        self.nodes.ready().await;
        self.pods.ready().await;
        let nodes =
            self.nodes.list().iter().map(|node| (node.name_any(), availability(node))).collect();
        let pods: Vec<PodView> = self.pods.list().iter().filter_map(|pod| view(pod)).collect();
        for step in plan(self.wanted, &nodes, &pods) {
            self.carry_out(step).await?;
        }
        self.update_status().await
    }

    async fn carry_out(&self, step: PodStep) -> Result<(), CallError> {
        let api = self.pods_api();
        match step {
            PodStep::Create { node } => {
                let made = api.create(&PostParams::default(), &pod(&node)).await?;
                let name = made.name_any();
                self.pods.learn_new(made);
                self.set_ready(&api, &name, true).await
            }
            PodStep::SetReady { pod, ready } => self.set_ready(&api, &pod, ready).await,
            PodStep::Delete { pod } => {
                match api.delete(&pod, &DeleteParams::default()).await.map_err(CallError::from) {
                    Err(error) if !error.is_not_found() => Err(error),
                    Ok(()) | Err(_) => Ok(()),
                }
            }
        }
    }

    async fn set_ready(&self, api: &Api<Pod>, name: &str, ready: bool) -> Result<(), CallError> {
        let word = if ready { "True" } else { "False" };
        let status = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": word}],
            "containerStatuses": [{"name": "main", "ready": ready, "restartCount": 0,
                "image": "simulated", "imageID": "", "state": {"running": {}}}],
        });
        match apply::merge_status(api, name, status, Precondition::Any).await {
            Ok(pod) => self.pods.learn(pod),
            // The pod was evicted meanwhile; the watch delivers the deletion.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Creates the objects that the pods belong to, if they are missing.
    async fn prepare(&self) -> Result<(), CallError> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAME);
        if deployments.get_opt(NAME).await?.is_some() {
            return Ok(());
        }
        let of =
            |value| serde_json::from_value::<Namespace>(value).expect("the object is a Namespace");
        let namespace = of(json!({"metadata": {"name": NAME}}));
        apply::create(&Api::all(self.client.clone()), &namespace).await?;
        // A pod needs a ServiceAccount, and no controller creates one here.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAME);
        let account = json!({"metadata": {"name": "default"}});
        let account = serde_json::from_value(account).expect("the object is a ServiceAccount");
        apply::create(&accounts, &account).await?;
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAME);
        let budget = json!({
            "metadata": {"name": NAME},
            "spec": {"minAvailable": self.wanted.saturating_sub(1),
                     "selector": {"matchLabels": {"app": NAME}}},
        });
        let budget = serde_json::from_value(budget).expect("the object is a PodDisruptionBudget");
        apply::create(&budgets, &budget).await?;
        let deployment = json!({
            "metadata": {"name": NAME},
            "spec": {
                "replicas": self.wanted,
                "selector": {"matchLabels": {"app": NAME}},
                "template": {
                    "metadata": {"labels": {"app": NAME}},
                    "spec": {"containers": [{"name": "main", "image": "simulated"}]},
                },
            },
        });
        let deployment = serde_json::from_value(deployment).expect("the object is a Deployment");
        apply::create(&deployments, &deployment).await.map(drop)
    }

    /// Updates the status of the Deployment and of the PodDisruptionBudget.
    async fn update_status(&self) -> Result<(), CallError> {
        let pods: Vec<PodView> = self.pods.list().iter().filter_map(|pod| view(pod)).collect();
        let ready = pods.iter().filter(|pod| pod.ready).count();
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAME);
        let status = json!({"replicas": pods.len(), "readyReplicas": ready,
            "availableReplicas": ready, "updatedReplicas": pods.len()});
        apply::merge_status(&deployments, NAME, status, Precondition::Any).await?;
        match self.budget_updates {
            BudgetUpdates::ByApiServer => Ok(()),
            BudgetUpdates::ByWorkload => self.update_budget(&pods).await,
        }
    }

    /// Updates the status of the PodDisruptionBudget as the disruption controller would.
    async fn update_budget(&self, pods: &[PodView]) -> Result<(), CallError> {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAME);
        let found = budgets.get(NAME).await?;
        let evicted = found.status.clone().and_then(|status| status.disrupted_pods);
        let evicted = evicted.unwrap_or_default();
        let staying = |pod: &&PodView| pod.ready && !evicted.contains_key(&pod.name);
        let healthy = pods.iter().filter(staying).count();
        let least = self.wanted.saturating_sub(1);
        // A pod that is gone is no pending eviction any more.
        let over = evicted.keys().filter(|name| pods.iter().all(|pod| pod.name != **name));
        let over: Changes = over.map(|name| (name.clone(), None)).collect();
        let status = json!({"currentHealthy": healthy, "desiredHealthy": least,
            "expectedPods": self.wanted, "disruptionsAllowed": healthy.saturating_sub(least),
            "observedGeneration": found.metadata.generation, "disruptedPods": over});
        let version = found.resource_version().unwrap_or_default();
        let updated =
            apply::merge_status(&budgets, NAME, status, Precondition::Unchanged(&version)).await;
        match updated {
            // A pod was evicted meanwhile, and the watch of the pods triggers the next
            // reconciliation.
            Err(error) if error.rejection() == Some(Rejection::Conflict) => Ok(()),
            updated => updated.map(drop),
        }
    }
}

fn pod(node: &str) -> Pod {
    let pod = json!({
        "metadata": {
            "generateName": format!("{NAME}-"),
            "labels": {"app": NAME},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME,
                "uid": "00000000-0000-0000-0000-000000000000", "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "simulated"}],
                 "terminationGracePeriodSeconds": 0},
    });
    serde_json::from_value(pod).expect("the object above is a Pod")
}

/// Returns the pod, unless it is terminating.
fn view(pod: &Pod) -> Option<PodView> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let node = pod.spec.as_ref()?.node_name.clone()?;
    Some(PodView { name: pod.name_any(), node, ready })
}

fn availability(node: &Node) -> NodeAvailability {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let spec = node.spec.as_ref();
    let tainted = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let blocks = |effect: &str| effect != "PreferNoSchedule";
    let closed = spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
        || tainted.into_iter().any(|taint| blocks(&taint.effect));
    match (ready, closed) {
        (false, _) => NodeAvailability::NotReady,
        (true, true) => NodeAvailability::Cordoned,
        (true, false) => NodeAvailability::Schedulable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(text: &str) -> Vec<PodView> {
        let pod = |(index, word): (usize, &str)| {
            let (node, ready) = match word.strip_suffix('!') {
                Some(node) => (node, false),
                None => (word, true),
            };
            PodView { name: format!("p{index}"), node: node.to_owned(), ready }
        };
        text.split_whitespace().enumerate().map(pod).collect()
    }

    fn shown(steps: &[PodStep]) -> String {
        let step = |step: &PodStep| match step {
            PodStep::Create { node } => format!("+{node}"),
            PodStep::SetReady { pod, ready: true } => format!("{pod}=ready"),
            PodStep::SetReady { pod, ready: false } => format!("{pod}=unready"),
            PodStep::Delete { pod } => format!("-{pod}"),
        };
        steps.iter().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pods_are_created_on_schedulable_nodes() {
        use NodeAvailability::{Cordoned, NotReady as Down, Schedulable as Open};
        let rows = [
            ("pods are spread at first", [Open, Open, Open], "", "+a +b +c"),
            ("nothing to do", [Open, Open, Open], "a b c", ""),
            ("an evicted pod moves to another node", [Cordoned, Open, Open], "b c", "+b"),
            ("a cordoned node keeps its pods", [Cordoned, Open, Open], "a b c", ""),
            ("the node with fewer pods is selected", [Open, Open, Cordoned], "a c", "+b"),
            ("no node is schedulable", [Cordoned, Down, Cordoned], "a", ""),
            (
                "pods of a node that is not ready are not ready",
                [Open, Down, Open],
                "a b c",
                "p1=unready",
            ),
            ("pods are ready again with their node", [Open, Open, Open], "a b! c", "p1=ready"),
            ("pods of a deleted node are deleted", [Open, Open, Open], "a b x", "-p2 +c"),
        ];
        for (case, states, before, steps) in rows {
            let nodes = ["a", "b", "c"].map(str::to_owned).into_iter().zip(states).collect();
            assert_eq!(shown(&plan(3, &nodes, &pods(before))), steps, "{case}");
        }
    }
}
