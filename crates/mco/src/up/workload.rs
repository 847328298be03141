//! The example workload: a Deployment with a PodDisruptionBudget, so that drains have pods to evict.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use mco_cluster::{
    Api, Cache, CallError, Clock, Shutdown,
    apply::{self, Changes, Precondition},
    cache::trim,
    error::Rejection,
    report, watch,
};
use mco_operator::manifests::ObjectName;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tracing::warn;

use super::controllers::PodView;
use crate::command::install;

/// Name of the namespace, the Deployment, the PodDisruptionBudget and the label of the pods.
const NAME: &str = "example";

/// Field manager of the objects.
const MANAGER: &str = "mco-up";

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Time that a pod may take to end after its eviction, as for the disruption controller of Kubernetes.
const EVICTION_LIMIT: SignedDuration = SignedDuration::from_mins(2);

/// The component that updates the status of the PodDisruptionBudget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetUpdates {
    /// The API server, as the embedded one does.
    ByApiServer,
    /// The workload, because a plain kube-apiserver runs no controllers.
    ByWorkload,
}

/// Keeps the workload until shutdown.
pub(crate) async fn run(client: Client, wanted: usize, updates: BudgetUpdates, shutdown: Shutdown) {
    if wanted == 0 {
        return;
    }
    let pods = Arc::new(Cache::<Pod>::new(trim::metadata));
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    pods.on_change(move |_| notify.notify_one());
    let workload = Workload { client: client.clone(), pods: Arc::clone(&pods), wanted };
    let act = async {
        while let Err(error) = workload.apply().await {
            warn!(error = report::chain(&error), "Failed to apply the example workload");
            tokio::time::sleep(RETRY).await;
        }
        if updates == BudgetUpdates::ByApiServer {
            return;
        }
        pods.ready().await;
        loop {
            let next = workload.update_budget(Clock::System.now()).await.inspect_err(|error| {
                warn!(error = report::chain(error), "Failed to update the example budget");
            });
            let pause = next.unwrap_or(Some(RETRY));
            tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    };
    let keep = async {
        if updates == BudgetUpdates::ByWorkload {
            let api = Api::namespaced(client, NAME);
            pods.run(api, watch::Config::default(), &shutdown).await;
        }
    };
    let all = async { tokio::join!(keep, act) };
    tokio::select! {
        () = shutdown.requested() => {}
        _ = all => {}
    }
}

struct Workload {
    client: Client,
    pods: Arc<Cache<Pod>>,
    wanted: usize,
}

impl Workload {
    /// Applies the objects. One that a user has changed is left as it is.
    async fn apply(&self) -> Result<(), CallError> {
        for object in objects(self.wanted) {
            let name = ObjectName::of(&object);
            let api = install::api(&self.client, &name);
            let params = PatchParams::apply(MANAGER);
            let applied = api.patch(&name.name, &params, &Patch::Apply(object)).await;
            match applied.map_err(CallError::from) {
                Err(error) if error.rejection() == Some(Rejection::Conflict) => {}
                applied => drop(applied?),
            }
        }
        Ok(())
    }

    /// Updates the status of the PodDisruptionBudget as the disruption controller would. Returns the time
    /// until the next update is due although no pod changes.
    async fn update_budget(&self, now: Timestamp) -> Result<Option<Duration>, CallError> {
        let mut pods: Vec<PodView> = self.pods.list().iter().map(|pod| PodView::of(pod)).collect();
        pods.retain(PodView::is_active);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), NAME);
        let found = budgets.get(NAME).await?;
        let recorded = found.status.clone().and_then(|status| status.disrupted_pods);
        let Evictions { pending, over } = evictions(recorded.unwrap_or_default(), &pods, now);
        let staying = |pod: &&PodView| pod.is_ready && !pending.contains_key(&pod.name);
        let healthy = pods.iter().filter(staying).count();
        let least = self.wanted.saturating_sub(1);
        let over: Changes = over.into_iter().map(|name| (name, None)).collect();
        let status = json!({"currentHealthy": healthy, "desiredHealthy": least,
            "expectedPods": self.wanted, "disruptionsAllowed": healthy.saturating_sub(least),
            "observedGeneration": found.metadata.generation, "disruptedPods": over});
        let version = found.resource_version().unwrap_or_default();
        let updated =
            apply::merge_status(&budgets, NAME, status, Precondition::Unchanged(&version)).await;
        match updated {
            // A pod was evicted meanwhile, and the watch of the pods triggers the next update, unless
            // the eviction is not completed.
            Err(error) if error.rejection() == Some(Rejection::Conflict) => Ok(Some(RETRY)),
            updated => {
                updated?;
                let due = pending.into_values().min().map(|until| until.duration_since(now));
                Ok(due.map(SignedDuration::unsigned_abs))
            }
        }
    }
}

/// The evictions that a budget records.
#[derive(Debug, PartialEq, Eq)]
struct Evictions {
    /// Pods that will end, and the time at which they count again if they have not.
    pending: BTreeMap<String, Timestamp>,
    /// Pods that ended, or whose eviction was not completed.
    over: Vec<String>,
}

/// Sorts the recorded evictions. An eviction is recorded before its pod is deleted, so that one whose
/// client was cut off may never be completed.
fn evictions(recorded: BTreeMap<String, Time>, pods: &[PodView], now: Timestamp) -> Evictions {
    let (mut pending, mut over) = (BTreeMap::new(), Vec::new());
    for (name, Time(since)) in recorded {
        let until = since.saturating_add(EVICTION_LIMIT).unwrap_or(now);
        if until > now && pods.iter().any(|pod| pod.name == name) {
            pending.insert(name, until);
        } else {
            over.push(name);
        }
    }
    Evictions { pending, over }
}

/// Returns the objects of the workload, in the order in which they are applied.
fn objects(wanted: usize) -> Vec<Value> {
    let own = json!({"name": NAME, "namespace": NAME});
    let selector = json!({"matchLabels": {"app": NAME}});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}),
        // A pod needs a ServiceAccount, and no controller creates one here.
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": NAME}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": own,
            "spec": {"minAvailable": wanted.saturating_sub(1), "selector": selector}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": own, "spec": {
            "replicas": wanted,
            "selector": selector,
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"containers": [{"name": "main", "image": "simulated"}],
                    "terminationGracePeriodSeconds": 0},
            },
        }}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_counts_again_if_its_eviction_is_not_completed_in_time() {
        let running = ["p0", "p1"].map(|name| {
            PodView::of(&serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
        });
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let recorded = [("p0", 100), ("p1", 60), ("gone", 100)];
        let recorded: BTreeMap<String, Time> =
            recorded.map(|(name, since)| (name.to_owned(), Time(at(since)))).into();
        let found = evictions(recorded.clone(), &running, at(110));
        let pending = BTreeMap::from([("p0".to_owned(), at(220)), ("p1".to_owned(), at(180))]);
        assert_eq!(found, Evictions { pending, over: vec!["gone".to_owned()] });
        let found = evictions(recorded, &running, at(180));
        assert_eq!(found.pending, BTreeMap::from([("p0".to_owned(), at(220))]));
        assert_eq!(found.over, ["gone", "p1"], "its eviction was not completed");
    }
}
