//! DaemonSets: a pod on every node that takes it, replaced by an update within its limit.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Pod, Toleration},
};
use serde_json::{Value, json};

use super::{
    deployment::{Rounding, share, template_hash},
    pods::{self, PodView},
    schedule::{self, NOT_READY, NodeView, UNREACHABLE, UNSCHEDULABLE},
};

/// Label with the hash of the template.
pub(crate) const HASH: &str = "controller-revision-hash";

/// The changes of the pods of a DaemonSet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DaemonSetPlan {
    /// Nodes that get a pod.
    pub(crate) create: Vec<String>,
    /// Names of the pods to delete.
    pub(crate) delete: Vec<String>,
    pub(crate) status: Value,
}

/// A pod of the DaemonSet, with the hash of its template.
pub(crate) type DaemonPod<'p> = (&'p PodView, Option<&'p str>);

/// Plans the next changes of a DaemonSet.
pub(crate) fn plan(set: &DaemonSet, nodes: &[NodeView], all: &[DaemonPod<'_>]) -> DaemonSetPlan {
    let spec = set.spec.clone().unwrap_or_default();
    let hash = template_hash(&spec.template, 0);
    let pod_spec = spec.template.spec.unwrap_or_default();
    let further = tolerations();
    let takes = |node: &&NodeView| schedule::fits(&pod_spec, node, &further);
    let eligible: Vec<&NodeView> = nodes.iter().filter(takes).collect();
    let mut of_node: BTreeMap<&str, Vec<DaemonPod<'_>>> = BTreeMap::new();
    let mut delete = Vec::new();
    for pod in all.iter().filter(|(pod, _)| !pod.is_terminating) {
        let node = pod.0.node.as_deref();
        match node.filter(|node| eligible.iter().any(|it| it.name == *node)) {
            // A finished pod is replaced.
            Some(node) if pod.0.is_active() => of_node.entry(node).or_default().push(*pod),
            _ => delete.push(pod.0.name.clone()),
        }
    }
    for pods in of_node.values_mut() {
        pods.sort_by_key(|(pod, _)| (!pod.is_ready, pod.created));
        delete.extend(pods.drain(1..).map(|(pod, _)| pod.name.clone()));
    }
    let present: Vec<DaemonPod<'_>> = of_node.values().flatten().copied().collect();
    let is_old = |pod: &DaemonPod<'_>| pod.1 != Some(hash.as_str());
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|it| it.rolling_update.as_ref());
    if strategy.and_then(|it| it.type_.as_deref()) != Some("OnDelete") {
        let wanted = i32::try_from(eligible.len()).unwrap_or(i32::MAX);
        let most = rolling.and_then(|it| it.max_unavailable.as_ref());
        let most = most.map_or(1, |it| share(it, wanted, Rounding::Up)).max(1);
        let ready = present.iter().filter(|(pod, _)| pod.is_ready).count();
        let out = eligible.len().saturating_sub(ready);
        let room = usize::try_from(most).unwrap_or(1).saturating_sub(out);
        let (ready, broken): (Vec<DaemonPod<'_>>, Vec<DaemonPod<'_>>) =
            present.iter().copied().filter(is_old).partition(|(pod, _)| pod.is_ready);
        let replaced = broken.into_iter().chain(ready.into_iter().take(room));
        delete.extend(replaced.map(|(pod, _)| pod.name.clone()));
    }
    let create = eligible.iter().map(|node| node.name.clone());
    let create = create.filter(|node| !of_node.contains_key(node.as_str())).collect();
    let status = status(set, eligible.len(), &present, &hash);
    DaemonSetPlan { create, delete, status }
}

fn status(set: &DaemonSet, desired: usize, present: &[DaemonPod<'_>], hash: &str) -> Value {
    let ready = present.iter().filter(|(pod, _)| pod.is_ready).count();
    let updated = present.iter().filter(|(_, found)| *found == Some(hash)).count();
    let positive = |number: usize| if number > 0 { json!(number) } else { Value::Null };
    json!({
        "observedGeneration": set.metadata.generation,
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": present.len(),
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": positive(ready),
        "numberUnavailable": positive(desired.saturating_sub(ready)),
        "updatedNumberScheduled": positive(updated),
    })
}

/// Returns the tolerations that pods of DaemonSets have besides their own.
fn tolerations() -> Vec<Toleration> {
    let key = |key: &str| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    [NOT_READY, UNREACHABLE, UNSCHEDULABLE].map(key).to_vec()
}

/// Returns a new pod of a DaemonSet on a node.
pub(crate) fn pod(set: &DaemonSet, node: &str) -> Pod {
    let template = set.spec.clone().unwrap_or_default().template;
    let hash = template_hash(&template, 0);
    let owner = pods::reference("apps/v1", "DaemonSet", &set.metadata);
    let mut pod = pods::from_template(&template, owner);
    pod.metadata.labels.get_or_insert_default().insert(HASH.to_owned(), hash);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.tolerations.get_or_insert_default().extend(tolerations());
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(strategy: &str) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 3},
            "spec": {"selector": {"matchLabels": {"app": "d"}},
                "updateStrategy": {"type": strategy},
                "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}}},
        }))
        .unwrap()
    }

    #[test]
    fn every_node_that_takes_the_pod_has_one() {
        let rows = [
            ("a new node", "w0 w1", "w0", "w1", ""),
            ("cordoned nodes too", "w0-", "", "w0", ""),
            ("not a node whose taint is not tolerated", "m0 w0", "", "w0", ""),
            ("a pod of a deleted node goes", "w0", "w0 w9", "", "p1"),
            ("a second pod goes", "w0", "w0 w0", "", "p1"),
            ("a finished pod is replaced", "w0", "w0*", "w0", "p0"),
        ];
        for (case, nodes, pods, create, delete) in rows {
            let set = set("OnDelete");
            let nodes = schedule::tests::nodes(nodes);
            let pods = pods::tests::pods(pods);
            let pods: Vec<DaemonPod<'_>> = pods.iter().map(|pod| (pod, None)).collect();
            let plan = plan(&set, &nodes, &pods);
            let found = (plan.create.join(" "), plan.delete.join(" "));
            assert_eq!(found, (create.to_owned(), delete.to_owned()), "{case}");
        }
    }

    #[test]
    fn an_update_replaces_one_pod_at_a_time() {
        let set = set("RollingUpdate");
        let hash = template_hash(&set.spec.as_ref().unwrap().template, 0);
        let nodes = schedule::tests::nodes("w0 w1 w2");
        let delete = |pods: &str, updated: usize| {
            let pods = pods::tests::pods(pods);
            let hashed = |(index, pod)| (pod, Some(if index < updated { &*hash } else { "old" }));
            let pods: Vec<DaemonPod<'_>> = pods.iter().enumerate().map(hashed).collect();
            let plan = plan(&set, &nodes, &pods);
            let updated = plan.status["updatedNumberScheduled"].as_u64().unwrap_or(0);
            (plan.delete.join(" "), updated)
        };
        assert_eq!(delete("w0 w1 w2", 0), ("p0".to_owned(), 0));
        assert_eq!(delete("w0! w1 w2", 1), (String::new(), 1), "the new pod is not ready yet");
        assert_eq!(delete("w0 w1! w2", 1), ("p1".to_owned(), 1), "the broken one first");
        assert_eq!(delete("w0 w1 w2", 3), (String::new(), 3));
    }

    #[test]
    fn a_pod_is_created_on_its_node_with_the_hash() {
        let set = set("RollingUpdate");
        let pod = pod(&set, "w0");
        let hash = template_hash(&set.spec.unwrap().template, 0);
        assert_eq!(pod.metadata.labels.unwrap()[HASH], hash);
        assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("w0"));
    }
}
