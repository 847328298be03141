//! Nodes: their kubelets, their daemons and their drains.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use mco_api::{
    annotation::{self, Recovery},
    label,
};

use super::{
    Facts, Fetched, Finding, Part, age, counted,
    version::{kubelet, kubelet_skew},
};
use crate::{membership, rollout::NodeView, status::explain};

const OS_LABEL: &str = "kubernetes.io/os";

/// Container engines whose settings can be changed, and that of the simulated nodes of `mco up`.
const ENGINES: [&str; 3] = ["containerd://", "cri-o://", "simulated://"];

/// Maximum number of nodes named in one finding.
const NAMED: usize = 3;

/// Maximum number of blocking pods in one finding.
const BLOCKERS: usize = 5;

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let Fetched::Found(nodes) = &facts.nodes else { return Vec::new() };
    if nodes.is_empty() {
        let text = "the cluster has no nodes";
        return vec![Finding::warning(Part::Nodes, text, "join a machine: mco join --help")];
    }
    let managed: Vec<&Node> = nodes.iter().filter(|node| is_linux(node)).collect();
    let mut found = machines(facts, &managed);
    if !facts.is_not_installed() {
        found.extend(managed.iter().flat_map(|node| daemon(facts, node)));
        found.extend(managed.iter().filter_map(|node| drain(facts, node)));
        found.extend(pools(facts, &managed));
    }
    if !found.iter().any(|finding| finding.part == Part::Nodes) {
        let text = format!("{} can be managed", counted(managed.len(), "node"));
        found.push(Finding::ok(Part::Nodes, text));
    }
    found
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn is_linux(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    let is_windows = |os: &str| os == "windows";
    !info.is_some_and(|info| is_windows(&info.operating_system))
        && !label.is_some_and(|os| is_windows(os))
}

/// Examines the kubelets and the container engines.
fn machines(facts: &Facts, nodes: &[&Node]) -> Vec<Finding> {
    let server = facts.kubernetes.as_deref().unwrap_or_default();
    let mut engines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut kubelets: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let engine = info.map(|info| info.container_runtime_version.as_str()).unwrap_or_default();
        if !engine.is_empty() && !ENGINES.iter().any(|known| engine.starts_with(known)) {
            engines.entry(engine).or_default().push(name(node));
        }
        let skew =
            kubelet(node).and_then(|version| Some((version, kubelet_skew(server, version)?)));
        if let Some(skew) = skew {
            kubelets.entry(skew).or_default().push(name(node));
        }
    }
    let engines = engines.into_iter().map(|(engine, nodes)| {
        Finding::warning(
            Part::Nodes,
            format!("the container engine {engine} of {} is not supported", listed(&nodes)),
            "use containerd or CRI-O; ContainerRuntimeConfigs and registries have no effect on it",
        )
    });
    let kubelets = kubelets.into_iter().map(|((version, why), nodes)| {
        Finding::warning(
            Part::Nodes,
            format!("the kubelet {version} of {} is {why}, {server}", listed(&nodes)),
            "upgrade the older one of both; Kubernetes does not support this skew",
        )
    });
    engines.chain(kubelets).collect()
}

/// Returns the names of nodes, the first of them in full.
fn listed(nodes: &[&str]) -> String {
    match nodes {
        [only] => format!("node {only}"),
        nodes if nodes.len() <= NAMED => format!("nodes {}", nodes.join(", ")),
        nodes => {
            let first: Vec<&str> = nodes.iter().take(NAMED).copied().collect();
            format!("nodes {} and {} more", first.join(", "), nodes.len() - NAMED)
        }
    }
}

/// Examines the daemon of a node, and what it reports.
fn daemon(facts: &Facts, node: &Node) -> Vec<Finding> {
    let (name, mut found) = (name(node), Vec::new());
    let view = NodeView::of(node);
    let annotations = node.metadata.annotations.as_ref();
    let recovery = annotations.and_then(|all| annotation::RECOVER.get(all).ok().flatten());
    if recovery == Some(Recovery::Forgotten) {
        found.push(Finding::warning(
            Part::Nodes,
            format!("node {name} was forgotten: its daemon leaves it alone and applies no update"),
            format!("to manage it again: kubectl annotate node {name} {}-", annotation::RECOVER),
        ));
        return found;
    }
    if view.current.is_empty() || view.state.is_none() {
        found.push(Finding::error(
            Part::Daemon,
            format!("the daemon of node {name} has not reported yet"),
            format!(
                "see: kubectl get pods -n {namespace} -l k8s-app=machine-config-daemon -o wide \
                 --field-selector spec.nodeName={name}",
                namespace = facts.installed_in,
            ),
        ));
    } else if runs_in_pods(facts) && !has_daemon(facts, name) {
        found.push(Finding::error(
            Part::Daemon,
            format!("no pod of machine-config-daemon is ready on node {name}"),
            format!("see the taints of the node and its events: kubectl describe node {name}"),
        ));
    }
    if view.is_degraded() {
        let reason =
            if view.reason.is_empty() { "the daemon gave no reason" } else { &view.reason };
        let text = format!("node {name} is degraded: {reason}");
        found.push(Finding::error(Part::Nodes, text, explain::remedy(&view, None)));
    }
    let reported = facts.machine_config_nodes.found();
    let has_object = |all: &Vec<mco_api::MachineConfigNode>| {
        all.iter().any(|it| it.metadata.name.as_deref() == Some(name))
    };
    if reported.is_some_and(|all| !has_object(all)) {
        let text = format!("node {name} has no MachineConfigNode");
        let fix = "see if the controller runs, which creates it";
        found.push(Finding::warning(Part::Nodes, text, fix));
    }
    found
}

/// Returns true if the daemons run in pods that the user may see.
fn runs_in_pods(facts: &Facts) -> bool {
    let mut all = facts.daemon_sets.items().iter();
    let found = all.any(|it| it.metadata.name.as_deref() == Some("machine-config-daemon"));
    found && facts.pods.found().is_some()
}

fn has_daemon(facts: &Facts, node: &str) -> bool {
    facts.pods.items().iter().any(|pod| {
        let labels = pod.metadata.labels.as_ref();
        let is_daemon = labels.and_then(|labels| labels.get(label::APP));
        let is_here = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
        is_daemon.is_some_and(|it| it == "machine-config-daemon")
            && is_here
            && ready.next().is_some()
    })
}

/// Reports a drain that pods block.
fn drain(facts: &Facts, node: &Node) -> Option<Finding> {
    let annotations = node.metadata.annotations.as_ref()?;
    let record = annotation::DRAIN_RECORD.get(annotations).ok()??;
    if record.blockers.is_empty() {
        return None;
    }
    let since = age(facts.server_now().duration_since(record.since.0));
    let blockers = record.blockers.iter().take(BLOCKERS);
    let mut pods: Vec<String> =
        blockers.map(|blocker| format!("pod {}: {}", blocker.pod, blocker.why)).collect();
    let more = record.more + record.blockers.len().saturating_sub(BLOCKERS);
    pods.extend((more > 0).then(|| format!("{more} more")));
    Some(Finding::warning(
        Part::Drains,
        format!(
            "the drain of node {} has been blocked for {since}: {}",
            name(node),
            pods.join("; ")
        ),
        "start more replicas, or relax the PodDisruptionBudget; the drain goes on by itself",
    ))
}

/// Reports nodes that belong to several custom pools, or to none.
fn pools(facts: &Facts, nodes: &[&Node]) -> Vec<Finding> {
    let Fetched::Found(pools) = &facts.pools else { return Vec::new() };
    let selectors = membership::Pools::new(pools);
    let (mut found, mut texts) = (Vec::new(), BTreeSet::new());
    for node in nodes {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        match selectors.of(name(node), &labels) {
            Ok(of) if of.primary().is_none() => found.push(Finding::warning(
                Part::Pools,
                format!("node {} belongs to no pool", name(node)),
                format!(
                    "give it a role: kubectl label node {} {}worker=",
                    name(node),
                    label::NODE_ROLE_PREFIX
                ),
            )),
            Ok(_) => {}
            Err(error) => drop(texts.insert(crate::lint::chain(&error))),
        }
    }
    let fix = "correct the node labels or the nodeSelector, so that at most one custom pool selects each \
               node";
    found.extend(texts.into_iter().map(|text| Finding::error(Part::Pools, text, fix)));
    found
}
