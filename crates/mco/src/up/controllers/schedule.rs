//! Chooses nodes for pods: by readiness, taints, selectors and affinities. Resources are not counted.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use kube::ResourceExt as _;

/// Taint of cordoned nodes.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taint of nodes that report that they are not ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint of nodes that report nothing.
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
pub(crate) const NO_EXECUTE: &str = "NoExecute";
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";

/// A node, as far as pods depend on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Taints, with that of a cordoned node.
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_ready: bool,
    /// Address of the node.
    pub(crate) address: Option<String>,
}

impl NodeView {
    /// Returns the view of a node.
    pub(crate) fn of(node: &Node) -> Self {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let mut taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let is_cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
        if is_cordoned && !taints.iter().any(|taint| taint.key == UNSCHEDULABLE) {
            taints.push(taint(UNSCHEDULABLE, NO_SCHEDULE));
        }
        let mut conditions = status.and_then(|it| it.conditions.as_ref()).into_iter().flatten();
        let mut addresses = status.and_then(|it| it.addresses.as_ref()).into_iter().flatten();
        Self {
            name: node.name_any(),
            labels: node.labels().clone(),
            taints,
            is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
            address: addresses.find(|it| it.type_ == "InternalIP").map(|it| it.address.clone()),
        }
    }
}

/// Returns a taint.
pub(crate) fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

/// Number of pods on each node.
pub(crate) type Load<'a> = BTreeMap<&'a str, usize>;

/// Returns the best node for a pod: the preferred one, then the one with the fewest pods of the same
/// owner, then the one with the fewest pods.
pub(crate) fn select<'n>(
    spec: &PodSpec,
    nodes: &'n [NodeView],
    siblings: &Load<'_>,
    load: &Load<'_>,
) -> Option<&'n NodeView> {
    let count = |load: &Load<'_>, node: &NodeView| load.get(node.name.as_str()).copied();
    let open = nodes.iter().filter(|node| node.is_ready && fits(spec, node, &[]));
    open.min_by_key(|node| {
        (Reverse(preference(spec, node)), count(siblings, node), count(load, node), &node.name)
    })
}

/// Returns true if the pod may run on the node, with these tolerations besides its own.
pub(crate) fn fits(spec: &PodSpec, node: &NodeView, further: &[Toleration]) -> bool {
    let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
    let tolerations = || spec.tolerations.iter().flatten().chain(further);
    let is_tolerated = |taint: &Taint| {
        taint.effect == PREFER_NO_SCHEDULE || tolerations().any(|it| tolerates(it, taint))
    };
    let affinity = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
    let required =
        affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    spec.node_selector.iter().flatten().all(has)
        && node.taints.iter().all(is_tolerated)
        && required.is_none_or(|it| it.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// Returns the sum of the weights of the preferences that the node meets, less one for each taint that
/// new pods avoid.
fn preference(spec: &PodSpec, node: &NodeView) -> i64 {
    let affinity = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
    let preferred =
        affinity.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let met = preferred.into_iter().flatten().filter(|it| matches(&it.preference, node));
    let weight: i64 = met.map(|it| i64::from(it.weight)).sum();
    let avoided = |taint: &&Taint| {
        let mut tolerations = spec.tolerations.iter().flatten();
        taint.effect == PREFER_NO_SCHEDULE && !tolerations.any(|it| tolerates(it, taint))
    };
    let avoided = node.taints.iter().filter(avoided).count();
    weight.saturating_sub(i64::try_from(avoided).unwrap_or(i64::MAX))
}

/// Returns true if a toleration is about the taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |found: &Option<String>| found.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let is_about =
        (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect);
    let exists = toleration.operator.as_deref() == Some("Exists");
    is_about && (exists || (!key.is_empty() && text(&toleration.value) == text(&taint.value)))
}

/// Returns true if a node meets all requirements of a term. An empty term matches no node.
fn matches(term: &NodeSelectorTerm, node: &NodeView) -> bool {
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    let mut requirements = labels
        .map(|it| (it, node.labels.get(&it.key).map(String::as_str)))
        .chain(fields.map(|it| (it, (it.key == "metadata.name").then_some(node.name.as_str()))))
        .peekable();
    requirements.peek().is_some() && requirements.all(|(it, value)| meets(it, value))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let mut values = requirement.values.iter().flatten();
    let number = |text: &str| text.parse::<i64>().ok();
    match (requirement.operator.as_str(), value) {
        ("In", Some(value)) => values.any(|it| it == value),
        ("NotIn", Some(value)) => values.all(|it| it != value),
        ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
        ("Gt", Some(value)) => values.next().is_some_and(|it| number(value) > number(it)),
        ("Lt", Some(value)) => values.next().is_some_and(|it| number(value) < number(it)),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns nodes from words: `m` is a master, `-` marks a cordoned node, `!` one that is not ready.
    pub(crate) fn nodes(text: &str) -> Vec<NodeView> {
        let node = |word: &str| {
            let name = word.trim_end_matches(['-', '!']);
            let role = if name.starts_with('m') { "master" } else { "worker" };
            let role = format!("node-role.kubernetes.io/{role}");
            let mut taints = Vec::new();
            if name.starts_with('m') {
                taints.push(taint(&role, NO_SCHEDULE));
            }
            if word.contains('-') {
                taints.push(taint(UNSCHEDULABLE, NO_SCHEDULE));
            }
            NodeView {
                name: name.to_owned(),
                labels: [(role, String::new())].into(),
                taints,
                is_ready: !word.contains('!'),
                address: None,
            }
        };
        text.split_whitespace().map(node).collect()
    }

    #[test]
    fn pods_go_to_nodes_that_take_them() {
        let plain = json!({"containers": []});
        let tolerant = json!({"containers": [], "tolerations": [
            {"key": "node-role.kubernetes.io/master", "operator": "Exists"}]});
        let master = json!({"matchExpressions":
            [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]});
        let mut preferring = tolerant.clone();
        preferring["affinity"] = json!({"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1, "preference": master}]}});
        let mut requiring = plain.clone();
        requiring["affinity"] = json!({"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [master]}}});
        let selecting = json!({"containers": [], "nodeSelector": {"zone": "a"}});
        for (case, spec, state, want) in [
            ("a worker", &plain, "m0 w0 w1", Some("w0")),
            ("not a cordoned one", &plain, "m0 w0- w1", Some("w1")),
            ("nor one that is not ready", &plain, "m0 w0! w1", Some("w1")),
            ("no node", &plain, "m0 w0- w1!", None),
            ("a taint is tolerated", &tolerant, "m0", Some("m0")),
            ("a preferred master", &preferring, "w0 m0 m1-", Some("m0")),
            ("or a worker without one", &preferring, "w0 m0-", Some("w0")),
            ("a taint forbids what affinity requires", &requiring, "m0 w0", None),
            ("no node has the label", &selecting, "m0 w0", None),
        ] {
            let spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            let nodes = nodes(state);
            let found = select(&spec, &nodes, &Load::new(), &Load::new());
            assert_eq!(found.map(|node| node.name.as_str()), want, "{case}");
        }
    }

    #[test]
    fn pods_of_an_owner_are_spread() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": []})).unwrap();
        let nodes = nodes("w0 w1 w2");
        let (siblings, load) = (Load::from([("w0", 1)]), Load::from([("w0", 1), ("w1", 4)]));
        let found = select(&spec, &nodes, &siblings, &load).unwrap();
        assert_eq!(found.name, "w2");
    }
}
