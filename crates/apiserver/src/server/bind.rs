//! Bindings: the scheduler's decision on the node of a pod.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, Call, Server, answer, policy};
use crate::{
    clock,
    failure::Failure,
    object,
    policy::Kind,
    store::{Put, Write, WriteError},
};

/// The kind of the objects of the subresource `binding`.
const BINDING: Kind<'_> = Kind { group: "", version: "v1", name: "Binding" };

/// Maximum number of attempts when the binding conflicts with other writes.
const MAX_ATTEMPTS: usize = 8;

impl Server {
    /// Assigns a pod to a node.
    pub(super) async fn bind(
        &self,
        call: &Call,
        binding: &Value,
    ) -> Result<Response<Body>, Failure> {
        let key = call.key();
        let name = object::name(binding);
        if name != key.name {
            let message = "name in URL does not match name in Binding object";
            return Err(Failure::bad_request(message));
        }
        let node = object::text(binding, &["target", "name"]);
        if node.is_empty() {
            return Err(Failure::bad_request("target.name: Required value"));
        }
        self.check_posted(call, BINDING, &policy::posted(call, BINDING, binding)?)?;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.store.get(&call.resource.collection, &key);
            let found = found.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
            let mut pod = found.whole();
            check(&pod)?;
            assign(&mut pod, node, &clock::rfc3339(self.clock.now()));
            if call.query.dry_run {
                return Ok(done());
            }
            let collection = std::sync::Arc::clone(&call.resource.collection);
            let (expect, put) = (Some(found.version), Put::Keep(pod));
            let write = Write { collection, key: key.clone(), expect, put };
            match self.store.commit(write).await {
                Ok(_) => return Ok(done()),
                Err(WriteError::Stale) => {}
                Err(error) => return Err(Self::commit_failure(&call.resource, &key.name, &error)),
            }
        }
        Err(Failure::modified(&call.resource, &key.name))
    }
}

/// Fails if the pod is being deleted or has a node.
fn check(pod: &Value) -> Result<(), Failure> {
    let name = object::name(pod);
    if object::is_deleting(pod) {
        let why = format!("pod {name} is being deleted, cannot be assigned to a host");
        return Err(Failure::unbindable(name, &why));
    }
    let now = object::text(pod, &["spec", "nodeName"]);
    if !now.is_empty() {
        let why = format!("pod {name} is already assigned to node {now:?}");
        return Err(Failure::unbindable(name, &why));
    }
    Ok(())
}

/// Sets the node and the condition `PodScheduled`.
fn assign(pod: &mut Value, node: &str, now: &str) {
    let members = object::map_of(pod);
    object::map_mut(members, "spec").insert("nodeName".into(), node.into());
    let status = object::map_mut(members, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    conditions.retain(|one| object::text(one, &["type"]) != "PodScheduled");
    conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": now}));
}

fn done() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Success", "code": 201});
    answer::json(StatusCode::CREATED, &status)
}
