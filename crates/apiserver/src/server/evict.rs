//! Evictions: deletes that PodDisruptionBudgets may refuse.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, Call, Server, answer, policy, recount::BUDGETS};
use crate::{budget, failure::Failure, object, policy::Kind};

/// The kind of the objects of the subresource `eviction`.
const EVICTION: Kind<'_> = Kind { group: "policy", version: "v1", name: "Eviction" };

impl Server {
    /// Evicts a pod if its budget allows one more disruption.
    pub(super) async fn evict(
        &self,
        call: &Call,
        eviction: &Value,
    ) -> Result<Response<Body>, Failure> {
        let version = object::text(eviction, &["apiVersion"]);
        if !matches!(version, "policy/v1" | "policy/v1beta1" | "") {
            return Err(Failure::bad_request(format!("no kind \"Eviction\" in {version}")));
        }
        let key = call.key();
        let name = object::name(eviction);
        if !name.is_empty() && name != key.name {
            let message = "name in URL does not match name in Eviction object";
            return Err(Failure::bad_request(message));
        }
        self.check_posted(call, EVICTION, &policy::posted(call, EVICTION, eviction)?)?;
        let options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        // Held until the pod is removed, so that the next eviction counts without it.
        let _turn = self.evictions.lock().await;
        let pod = self.store.get(&call.resource.collection, &key);
        let pod = pod.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
        let pod = pod.value();
        self.check_node(call, None, Some(&pod))?;
        self.check_budgets(call, &pod)?;
        let dry = call.query.dry_run
            || options.get("dryRun").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
        let resource = Arc::clone(&call.resource);
        self.remove(&resource, &key, &options, dry).await?;
        let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Success", "code": 201});
        Ok(answer::json(StatusCode::CREATED, &done))
    }

    fn check_budgets(&self, call: &Call, pod: &Value) -> Result<(), Failure> {
        // Evicting a pod that has not started, has finished or is being deleted is no disruption.
        let is_pending = object::text(pod, &["status", "phase"]) == "Pending";
        if is_pending || budget::is_finished(pod) || object::is_deleting(pod) {
            return Ok(());
        }
        let namespace = call.namespace.as_deref();
        let (budgets, _) = self.store.list(BUDGETS, namespace, None);
        let values = budgets.iter().map(|one| one.value());
        let matching: Vec<_> = values.filter(|one| budget::covers(one, pod)).collect();
        let budget = match matching.as_slice() {
            [] => return Ok(()),
            [only] => only,
            _ => {
                return Err(Failure::unexplained(
                    "This pod has more than one PodDisruptionBudget, which the eviction \
                     subresource does not support.",
                ));
            }
        };
        let counts = self.disruptions(budget);
        // An unready pod does not count as healthy, so removing it cannot violate the budget
        // further.
        if !budget::is_ready(pod) && counts.healthy >= counts.desired {
            return Ok(());
        }
        if counts.allowed() > 0 {
            return Ok(());
        }
        let cause = format!(
            "The disruption budget {} needs {} healthy pods and has {} currently",
            object::name(budget),
            counts.desired,
            counts.healthy
        );
        Err(Failure::budget(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            &cause,
        ))
    }
}
