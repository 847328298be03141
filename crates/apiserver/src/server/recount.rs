//! Keeps the status of disruption budgets true: nobody else in this process does.

use serde_json::Value;

use super::Server;
use crate::{
    budget, object,
    resource::Resource,
    store::{Key, Put, Write, WriteError},
};

/// Where budgets are kept.
pub(super) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Where pods are kept.
const PODS: &str = "pods";

/// How often a budget is counted again when somebody else writes it meanwhile.
const TRIES: usize = 8;

impl Server {
    /// Counts the budgets of a namespace again after a change of `object`.
    pub(super) async fn recount(&self, resource: &Resource, object: &Value) {
        if !matches!(&*resource.track, PODS | BUDGETS) {
            return;
        }
        let namespace = object::namespace(object);
        let (budgets, _) = self.store.list(BUDGETS, Some(namespace), None);
        for budget in budgets {
            let key = Key::new(namespace, object::name(&budget.value));
            for _ in 0..TRIES {
                match self.recount_one(&key).await {
                    Err(WriteError::Stale) => {}
                    Ok(()) => break,
                    Err(error @ WriteError::Disk(_)) => {
                        tracing::warn!(%error, "A disruption budget was not counted");
                        break;
                    }
                }
            }
        }
    }

    async fn recount_one(&self, key: &Key) -> Result<(), WriteError> {
        let Some(budget) = self.store.get(BUDGETS, key) else { return Ok(()) };
        let (pods, _) = self.store.list(PODS, Some(&key.namespace), None);
        let standing = budget::standing(&budget.value, pods.iter().map(|one| &one.value));
        let Some(new) = budget::recounted(&budget.value, standing) else { return Ok(()) };
        let put = Put::Keep(new);
        let expect = Some(budget.version);
        self.store
            .commit(Write { track: BUDGETS.into(), key: key.clone(), expect, put })
            .await
            .map(drop)
    }
}
