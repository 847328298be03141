//! The example workload: a few pods with a disruption budget, so that drains mean something.
//!
//! [`plan`] is what a scheduler, a replica controller and the kubelets would come to between them;
//! [`run`] carries it out. Evicted pods come back on another node that takes pods.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
    runtime::watcher,
};
use mco_cluster::{
    Cache, CallError, Shutdown,
    apply::{self, Changes, Guard},
    error::Refused,
    report,
};
use serde_json::json;
use tokio::sync::Notify;
use tracing::warn;

/// Name of the namespace, the deployment, the budget and the label of the pods.
const NAME: &str = "example";

/// How long to wait after a failed write.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// Who keeps the status of the disruption budget true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accounts {
    /// The API server does, as ours does.
    Kept,
    /// Nobody does: a plain kube-apiserver has no controllers. So the workload does.
    Missing,
}

/// A node, as far as pods are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Takes new pods.
    Open,
    /// Keeps the pods it has.
    Cordoned,
    /// Does not run, and so its pods do not either.
    Down,
}

/// A pod of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodView {
    name: String,
    node: String,
    ready: bool,
}

/// What to do about the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Start a pod on the node.
    Start { node: String },
    /// Say whether the pod is ready.
    Mark { pod: String, ready: bool },
    /// Take away a pod whose node is gone.
    Remove { pod: String },
}

/// Compares pods with what there should be. New pods go where the fewest are.
pub(crate) fn plan(wanted: usize, nodes: &BTreeMap<String, Room>, pods: &[PodView]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut load: BTreeMap<&str, usize> = BTreeMap::new();
    let mut alive = 0;
    for pod in pods {
        let Some(room) = nodes.get(&pod.node) else {
            steps.push(Step::Remove { pod: pod.name.clone() });
            continue;
        };
        alive += 1;
        *load.entry(&pod.node).or_default() += 1;
        let ready = *room != Room::Down;
        if ready != pod.ready {
            steps.push(Step::Mark { pod: pod.name.clone(), ready });
        }
    }
    for _ in alive..wanted {
        let open = nodes.iter().filter(|(_, room)| **room == Room::Open);
        let least =
            open.map(|(node, _)| (load.get(node.as_str()).copied().unwrap_or(0), node)).min();
        let Some((_, node)) = least else { break };
        *load.entry(node).or_default() += 1;
        steps.push(Step::Start { node: node.clone() });
    }
    steps
}

/// Keeps `wanted` pods running until told to stop; `nodes` is kept up by somebody else.
pub(crate) async fn run(
    client: Client,
    nodes: Arc<Cache<Node>>,
    wanted: usize,
    accounts: Accounts,
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
        Workload { client: client.clone(), nodes, pods: Arc::clone(&pods), wanted, accounts };
    let ended = shutdown.clone();
    let keep = pods.run(workload.pods_api(), watcher::Config::default(), &ended);
    let act = async {
        loop {
            let failed = workload.sync().await.inspect_err(|error| {
                warn!(error = report::chain(error), "Cannot keep the example workload");
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
    accounts: Accounts,
}

impl Workload {
    fn pods_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAME)
    }

    async fn sync(&self) -> Result<(), CallError> {
        self.prepare().await?;
        self.nodes.ready().await;
        self.pods.ready().await;
        let nodes = self.nodes.list().iter().map(|node| (node.name_any(), room(node))).collect();
        let pods: Vec<PodView> = self.pods.list().iter().filter_map(|pod| view(pod)).collect();
        for step in plan(self.wanted, &nodes, &pods) {
            self.carry_out(step).await?;
        }
        self.tell().await
    }

    async fn carry_out(&self, step: Step) -> Result<(), CallError> {
        let api = self.pods_api();
        match step {
            Step::Start { node } => {
                let made = api.create(&PostParams::default(), &pod(&node)).await?;
                let name = made.name_any();
                self.pods.learn_new(made);
                self.mark(&api, &name, true).await
            }
            Step::Mark { pod, ready } => self.mark(&api, &pod, ready).await,
            Step::Remove { pod } => {
                match api.delete(&pod, &DeleteParams::default()).await.map_err(CallError::from) {
                    Err(error) if !error.is_not_found() => Err(error),
                    Ok(_) | Err(_) => Ok(()),
                }
            }
        }
    }

    async fn mark(&self, api: &Api<Pod>, name: &str, ready: bool) -> Result<(), CallError> {
        let word = if ready { "True" } else { "False" };
        let status = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": word}],
            "containerStatuses": [{"name": "main", "ready": ready, "restartCount": 0,
                "image": "simulated", "imageID": "", "state": {"running": {}}}],
        });
        match apply::merge_status(api, name, status, Guard::Any).await {
            Ok(pod) => self.pods.learn(pod),
            // Evicted meanwhile; the watch will tell.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Makes what the pods belong to, where it is missing.
    async fn prepare(&self) -> Result<(), CallError> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAME);
        if deployments.get_opt(NAME).await?.is_some() {
            return Ok(());
        }
        let of = |value| serde_json::from_value::<Namespace>(value).expect("a Namespace");
        let namespace = of(json!({"metadata": {"name": NAME}}));
        apply::create(&Api::all(self.client.clone()), &namespace).await?;
        // A pod cannot be without one, and here nobody else makes it.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAME);
        let account = json!({"metadata": {"name": "default"}});
        let account = serde_json::from_value(account).expect("a ServiceAccount");
        apply::create(&accounts, &account).await?;
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAME);
        let budget = json!({
            "metadata": {"name": NAME},
            "spec": {"minAvailable": self.wanted.saturating_sub(1),
                     "selector": {"matchLabels": {"app": NAME}}},
        });
        let budget = serde_json::from_value(budget).expect("a PodDisruptionBudget");
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
        let deployment = serde_json::from_value(deployment).expect("a Deployment");
        apply::create(&deployments, &deployment).await.map(drop)
    }

    /// Says in the deployment and its budget how many pods there are.
    async fn tell(&self) -> Result<(), CallError> {
        let pods: Vec<PodView> = self.pods.list().iter().filter_map(|pod| view(pod)).collect();
        let ready = pods.iter().filter(|pod| pod.ready).count();
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAME);
        let status = json!({"replicas": pods.len(), "readyReplicas": ready,
            "availableReplicas": ready, "updatedReplicas": pods.len()});
        apply::merge_status(&deployments, NAME, status, Guard::Any).await?;
        match self.accounts {
            Accounts::Kept => Ok(()),
            Accounts::Missing => self.account(&pods).await,
        }
    }

    /// Does what the controller of disruption budgets would.
    async fn account(&self, pods: &[PodView]) -> Result<(), CallError> {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAME);
        let found = budgets.get(NAME).await?;
        let evicted = found.status.clone().and_then(|status| status.disrupted_pods);
        let evicted = evicted.unwrap_or_default();
        let staying = |pod: &&PodView| pod.ready && !evicted.contains_key(&pod.name);
        let healthy = pods.iter().filter(staying).count();
        let least = self.wanted.saturating_sub(1);
        // An eviction that has happened is over.
        let over = evicted.keys().filter(|name| pods.iter().all(|pod| pod.name != **name));
        let over: Changes = over.map(|name| (name.clone(), None)).collect();
        let status = json!({"currentHealthy": healthy, "desiredHealthy": least,
            "expectedPods": self.wanted, "disruptionsAllowed": healthy.saturating_sub(least),
            "observedGeneration": found.metadata.generation, "disruptedPods": over});
        let version = found.resource_version().unwrap_or_default();
        let told = apply::merge_status(&budgets, NAME, status, Guard::Unchanged(&version)).await;
        match told {
            // Somebody was evicted meanwhile, and the watch of the pods will say so.
            Err(error) if error.refused() == Some(Refused::Conflict) => Ok(()),
            told => told.map(drop),
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

/// The pod, unless it is on its way out.
fn view(pod: &Pod) -> Option<PodView> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let node = pod.spec.as_ref()?.node_name.clone()?;
    Some(PodView { name: pod.name_any(), node, ready })
}

fn room(node: &Node) -> Room {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let spec = node.spec.as_ref();
    let tainted = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let refuses = |effect: &str| effect != "PreferNoSchedule";
    let closed = spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
        || tainted.into_iter().any(|taint| refuses(&taint.effect));
    match (ready, closed) {
        (false, _) => Room::Down,
        (true, true) => Room::Cordoned,
        (true, false) => Room::Open,
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

    fn shown(steps: &[Step]) -> String {
        let step = |step: &Step| match step {
            Step::Start { node } => format!("+{node}"),
            Step::Mark { pod, ready: true } => format!("{pod}=ready"),
            Step::Mark { pod, ready: false } => format!("{pod}=unready"),
            Step::Remove { pod } => format!("-{pod}"),
        };
        steps.iter().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pods_come_back_where_there_is_room() {
        use Room::{Cordoned, Down, Open};
        let rows = [
            ("spread at first", [Open, Open, Open], "", "+a +b +c"),
            ("nothing to do", [Open, Open, Open], "a b c", ""),
            ("an evicted pod goes elsewhere", [Cordoned, Open, Open], "b c", "+b"),
            ("a cordoned node keeps its pods", [Cordoned, Open, Open], "a b c", ""),
            ("the emptier node is taken", [Open, Open, Cordoned], "a c", "+b"),
            ("no room at all", [Cordoned, Down, Cordoned], "a", ""),
            (
                "pods of a node that is down are not ready",
                [Open, Down, Open],
                "a b c",
                "p1=unready",
            ),
            ("and are again when it is back", [Open, Open, Open], "a b! c", "p1=ready"),
            ("a node that is gone takes its pods along", [Open, Open, Open], "a b x", "-p2 +c"),
        ];
        for (case, rooms, before, steps) in rows {
            let nodes = ["a", "b", "c"].map(str::to_owned).into_iter().zip(rooms).collect();
            assert_eq!(shown(&plan(3, &nodes, &pods(before))), steps, "{case}");
        }
    }
}
