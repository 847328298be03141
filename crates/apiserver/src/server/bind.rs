//! Bindings: the scheduler's decision on the node of a pod.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, Call, Server, answer, policy};
use crate::{
    admit, clock,
    failure::{Failure, Fault},
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
        check_target(binding)?;
        self.check_posted(call, BINDING, &policy::posted(call, BINDING, binding)?)?;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.store.get(&call.resource.collection, &key);
            let found = found.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
            let mut pod = found.whole();
            admit::check_identity(&call.resource, &pod, binding)?;
            check(&pod)?;
            assign(&mut pod, binding, &clock::rfc3339(self.clock.now()));
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

/// Fails if the target of a binding is no node.
fn check_target(binding: &Value) -> Result<(), Failure> {
    let of = |field| object::text(binding, &["target", field]);
    let mut faults = Vec::new();
    if !matches!(of("kind"), "" | "Node") {
        faults.push(Fault::not_supported("target.kind", of("kind"), &["Node", "<empty>"]));
    }
    if of("name").is_empty() {
        faults.push(Fault::required("target.name", ""));
    }
    match faults.as_slice() {
        [] => Ok(()),
        [only] => Err(Failure::unexplained(only.to_string())),
        faults => {
            let all: Vec<String> = faults.iter().map(Fault::to_string).collect();
            Err(Failure::unexplained(format!("[{}]", all.join(", "))))
        }
    }
}

/// Fails if the pod is being deleted, has a node, or waits for being scheduled.
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
    let gates = object::at(pod, &["spec", "schedulingGates"]).and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        let why = format!("pod {name} has non-empty .spec.schedulingGates");
        return Err(Failure::unbindable(name, &why));
    }
    Ok(())
}

/// Sets the node, the condition `PodScheduled`, and the labels and annotations of the binding.
fn assign(pod: &mut Value, binding: &Value, now: &str) {
    for field in ["annotations", "labels"] {
        let given = object::at(binding, &["metadata", field]).and_then(Value::as_object);
        for (key, value) in given.into_iter().flatten().filter(|(_, value)| value.is_string()) {
            object::map_mut(object::meta_mut(pod), field).insert(key.clone(), value.clone());
        }
    }
    let node = object::text(binding, &["target", "name"]);
    let members = object::map_of(pod);
    object::map_mut(members, "spec").insert("nodeName".into(), node.into());
    let status = object::map_mut(members, "status");
    status.remove("nominatedNodeName");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let of = |one: &Value, field| object::text(one, &[field]).to_owned();
    let had = conditions.iter().position(|one| of(one, "type") == "PodScheduled");
    let same = had.and_then(|at| conditions.get(at)).filter(|one| of(one, "status") == "True");
    let since = same.map_or_else(|| now.to_owned(), |one| of(one, "lastTransitionTime"));
    let new = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": since});
    match had.and_then(|at| conditions.get_mut(at)) {
        Some(place) => *place = new,
        None => conditions.push(new),
    }
}

fn done() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Success", "code": 201});
    answer::json(StatusCode::CREATED, &status)
}
