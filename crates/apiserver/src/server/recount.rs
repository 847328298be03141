//! Keeps the status of PodDisruptionBudgets current. No other controller does in this process.

use serde_json::Value;

use super::Server;
use crate::{
    budget::{self, DisruptionCounts},
    object,
    resource::Resource,
    service::Controllers,
    store::{Key, Object, Put, Write, WriteError},
};

/// Name of the collection of PodDisruptionBudgets.
pub(super) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Name of the collection of pods.
const PODS: &str = "pods";

/// Maximum number of attempts when the status update conflicts with other writes.
const MAX_ATTEMPTS: usize = 8;

impl Server {
    /// Updates the status of the budgets that select a changed pod, before or after the change, or of
    /// a changed budget.
    pub(super) async fn recount(
        &self,
        resource: &Resource,
        object: &Object,
        before: Option<&Object>,
    ) {
        if self.controllers == Controllers::Off {
            return;
        }
        match &*resource.collection {
            BUDGETS => self.recount_until_stored(&object.key()).await,
            PODS => {
                for budget in self.store.list(BUDGETS, Some(&object.head.namespace), None).0 {
                    let selector = budget::selector(&budget.value());
                    let is_counted = |pod: &Object| {
                        selector.as_ref().is_some_and(|selector| selector.selects(pod))
                    };
                    if is_counted(object) || before.is_some_and(is_counted) {
                        self.recount_until_stored(&budget.key()).await;
                    }
                }
            }
            _ => {}
        }
    }

    async fn recount_until_stored(&self, key: &Key) {
        for _ in 0..MAX_ATTEMPTS {
            match self.recount_one(key).await {
                Err(WriteError::Stale) => {}
                Ok(()) => return,
                Err(error) => {
                    let budget = format!("{}/{}", key.namespace, key.name);
                    tracing::warn!(%budget, %error, "Failed to update the status of a PodDisruptionBudget");
                    return;
                }
            }
        }
    }

    async fn recount_one(&self, key: &Key) -> Result<(), WriteError> {
        let Some(budget) = self.store.get(BUDGETS, key) else { return Ok(()) };
        let counts = self.disruptions(&budget.value());
        let Some(new) = budget::with_status(&budget.value(), counts) else { return Ok(()) };
        let put = Put::Keep(new);
        let expect = Some(budget.version);
        self.store
            .commit(Write { collection: BUDGETS.into(), key: key.clone(), expect, put })
            .await
            .map(drop)
    }

    /// Counts the pods of a budget.
    pub(super) fn disruptions(&self, budget: &Value) -> DisruptionCounts {
        let pods = match budget::selector(budget) {
            Some(selector) => {
                let mut pods = self.store.list(PODS, Some(object::namespace(budget)), None).0;
                pods.retain(|pod| selector.selects(pod));
                pods
            }
            None => Vec::new(),
        };
        budget::counts(budget, pods.iter().map(|pod| pod.value()))
    }
}
