//! Keeps the status of PodDisruptionBudgets current. No other controller does in this process.

use serde_json::Value;

use super::Server;
use crate::{
    budget, object,
    resource::Resource,
    service::Controllers,
    store::{Key, Put, Write, WriteError},
};

/// Name of the collection of PodDisruptionBudgets.
pub(super) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Name of the collection of pods.
const PODS: &str = "pods";

/// Maximum number of attempts when the status update conflicts with other writes.
const MAX_ATTEMPTS: usize = 8;

impl Server {
    /// Updates the status of the budgets in the namespace of a changed `object`.
    pub(super) async fn recount(&self, resource: &Resource, object: &Value) {
        let is_counted = matches!(&*resource.collection, PODS | BUDGETS);
        if !is_counted || self.controllers == Controllers::Off {
            return;
        }
        let namespace = object::namespace(object);
        let (budgets, _) = self.store.list(BUDGETS, Some(namespace), None);
        for budget in budgets {
            let key = Key::new(namespace, object::name(&budget.value));
            for _ in 0..MAX_ATTEMPTS {
                match self.recount_one(&key).await {
                    Err(WriteError::Stale) => {}
                    Ok(()) => break,
                    Err(error @ (WriteError::Disk(_) | WriteError::TooLarge(_))) => {
                        let budget = format!("{namespace}/{}", key.name);
                        tracing::warn!(%budget, %error, "Failed to update the status of a PodDisruptionBudget");
                        break;
                    }
                }
            }
        }
    }

    async fn recount_one(&self, key: &Key) -> Result<(), WriteError> {
        let Some(budget) = self.store.get(BUDGETS, key) else { return Ok(()) };
        let (pods, _) = self.store.list(PODS, Some(&key.namespace), None);
        let counts = budget::counts(&budget.value, pods.iter().map(|one| &one.value));
        let Some(new) = budget::with_status(&budget.whole(), counts) else { return Ok(()) };
        let put = Put::Keep(new);
        let expect = Some(budget.version);
        self.store
            .commit(Write { collection: BUDGETS.into(), key: key.clone(), expect, put })
            .await
            .map(drop)
    }
}
