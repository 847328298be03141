//! Status of the cluster as text: a line for the operator, a line per pool and a line per node.
//!
//! Pure: takes objects and returns text. Used by `mco up` and by `mco status`.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt as _;
use mco_api::{
    ClusterOperator, MachineConfigPool,
    annotation::{self, DaemonState, DrainVerb, Key},
    label,
};
use mco_cluster::report::chain;
use mco_core::{
    node_index::NodeIndex,
    rollout::{Hold, NodeView, PoolNodes, PoolView},
    status::explain,
};

/// The status line of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    /// Roles, comma-separated.
    pub(crate) roles: String,
    ready: bool,
    cordoned: bool,
    pub(crate) state: String,
    /// Config that the node runs, or the current step of its update.
    activity: String,
}

impl NodeLine {
    /// Reads the status of a node.
    pub(crate) fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready =
            conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let roles =
            node.labels().keys().filter_map(|key| key.strip_prefix(label::NODE_ROLE_PREFIX));
        let state = text(node, &annotation::STATE);
        Self {
            name: node.name_any(),
            roles: roles.collect::<Vec<_>>().join(","),
            ready,
            cordoned,
            activity: activity(node, ready, &state),
            state: if state.is_empty() { "Unknown".to_owned() } else { state },
        }
    }

    /// Returns true if the node is ready, schedulable and not updating.
    fn is_idle(&self) -> bool {
        self.ready && !self.cordoned && self.state == DaemonState::Done.to_string()
    }

    fn readiness(&self) -> &'static str {
        match (self.ready, self.cordoned) {
            (true, false) => "Ready",
            (true, true) => "Ready,SchedulingDisabled",
            (false, false) => "NotReady",
            (false, true) => "NotReady,SchedulingDisabled",
        }
    }

    /// Returns the cells of the line.
    pub(crate) fn cells(&self) -> Vec<String> {
        let (name, roles) = (self.name.clone(), self.roles.clone());
        vec![name, roles, self.readiness().to_owned(), self.state.clone(), self.activity.clone()]
    }

    /// Returns the column titles.
    pub(crate) fn titles() -> Vec<String> {
        ["NODE", "ROLES", "STATUS", "STATE", "CONFIG"].map(str::to_owned).to_vec()
    }
}

impl fmt::Display for NodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, activity, .. } = self;
        write!(f, "node {name}: {}, {state}", self.readiness())?;
        if activity.is_empty() { Ok(()) } else { write!(f, ", {activity}") }
    }
}

fn text<T>(node: &Node, key: &Key<T>) -> String {
    node.annotations().get(key.name()).cloned().unwrap_or_default()
}

fn activity(node: &Node, ready: bool, state: &str) -> String {
    let (current, desired) =
        (text(node, &annotation::CURRENT_CONFIG), text(node, &annotation::DESIRED_CONFIG));
    let empty = BTreeMap::new();
    let annotations = node.metadata.annotations.as_ref().unwrap_or(&empty);
    let requested = annotation::DESIRED_DRAIN.get(annotations).ok().flatten();
    let applied = annotation::LAST_APPLIED_DRAIN.get(annotations).ok().flatten();
    if [DaemonState::Degraded, DaemonState::Unreconcilable]
        .iter()
        .any(|bad| bad.to_string() == state)
    {
        return text(node, &annotation::REASON);
    }
    if !ready && !current.is_empty() {
        return format!("restarting, {current}");
    }
    let verb = requested.as_ref().filter(|_| requested != applied).map(|request| request.verb);
    match verb {
        Some(DrainVerb::Drain) => return format!("draining for {desired}"),
        Some(DrainVerb::Uncordon) => return format!("uncordoning, {desired}"),
        None => {}
    }
    if state == DaemonState::Working.to_string() {
        return format!("changing to {desired}");
    }
    if current != desired && !desired.is_empty() {
        return format!("{current}, next {desired}");
    }
    current
}

/// The status line of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolLine {
    pub(crate) name: String,
    config: String,
    conditions: [String; 3],
    counts: [i32; 4],
    paused: bool,
}

impl PoolLine {
    /// Reads the status of a pool.
    pub(crate) fn of(pool: &MachineConfigPool) -> Self {
        let status = pool.status.clone().unwrap_or_default();
        let condition = |kind: &str| status.conditions.iter().find(|found| found.kind == kind);
        let holds = |kind: &str| {
            condition(kind).map_or_else(|| "Unknown".to_owned(), |found| found.status.clone())
        };
        Self {
            name: pool.name_any(),
            config: status.configuration.rendered.name.clone(),
            conditions: ["Updated", "Updating", "Degraded"].map(holds),
            counts: [
                status.machine_count,
                status.ready_machine_count,
                status.updated_machine_count,
                status.degraded_machine_count,
            ],
            paused: pool.spec.paused,
        }
    }

    /// Returns true if every node runs the pool's config.
    pub(crate) fn is_updated(&self) -> bool {
        self.conditions.first().is_some_and(|updated| updated == "True")
    }

    /// Returns the cells of the line.
    pub(crate) fn cells(&self) -> Vec<String> {
        let name = if self.paused { format!("{} (paused)", self.name) } else { self.name.clone() };
        let mut cells = vec![name, self.config.clone()];
        cells.extend(self.conditions.clone());
        cells.extend(self.counts.map(|count| count.to_string()));
        cells
    }

    /// Returns the column titles.
    pub(crate) fn titles() -> Vec<String> {
        let titles = [
            "POOL", "CONFIG", "UPDATED", "UPDATING", "DEGRADED", "MACHINES", "READY", "DONE",
            "FAILED",
        ];
        titles.map(str::to_owned).to_vec()
    }
}

impl fmt::Display for PoolLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [machines, ready, updated, degraded] = self.counts;
        let [.., degraded_status] = &self.conditions;
        write!(f, "pool {}: {updated} of {machines} updated, {ready} ready", self.name)?;
        if degraded_status == "True" {
            write!(f, ", {degraded} degraded")?;
        }
        if self.paused {
            f.write_str(", paused")?;
        }
        if self.config.is_empty() { Ok(()) } else { write!(f, ", {}", self.config) }
    }
}

/// The status of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusView {
    pub(crate) operator: Option<String>,
    pub(crate) pools: Vec<PoolLine>,
    pub(crate) nodes: Vec<NodeLine>,
    /// Explanations of degraded and waiting objects, with the remedy.
    pub(crate) explanations: Vec<String>,
}

impl StatusView {
    /// Reads the status from the objects of the cluster.
    pub(crate) fn of<'o>(
        operator: Option<&ClusterOperator>,
        pools: impl IntoIterator<Item = &'o MachineConfigPool>,
        nodes: impl IntoIterator<Item = &'o Node>,
    ) -> Self {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let nodes: Vec<&Node> = nodes.into_iter().collect();
        Self {
            operator: operator.map(operator_line),
            explanations: explanations(&pools, &nodes),
            pools: pools.into_iter().map(PoolLine::of).collect(),
            nodes: nodes.into_iter().map(NodeLine::of).collect(),
        }
    }

    /// Returns true if there are pools and each of them is updated.
    pub(crate) fn is_updated(&self) -> bool {
        !self.pools.is_empty() && self.pools.iter().all(PoolLine::is_updated)
    }

    /// Returns the view with at most `count` nodes; idle nodes are dropped first.
    pub(crate) fn busiest(&self, count: usize) -> Self {
        let busy = self.nodes.iter().filter(|node| !node.is_idle());
        let idle = self.nodes.iter().filter(|node| node.is_idle());
        let nodes = busy.chain(idle).take(count).cloned().collect();
        Self { nodes, ..self.clone() }
    }

    /// Returns the tables of pools and nodes, titles first.
    pub(crate) fn tables(&self) -> [Vec<Vec<String>>; 2] {
        let pools =
            std::iter::once(PoolLine::titles()).chain(self.pools.iter().map(PoolLine::cells));
        let nodes =
            std::iter::once(NodeLine::titles()).chain(self.nodes.iter().map(NodeLine::cells));
        [pools.collect(), nodes.collect()]
    }
}

/// Explains everything that is degraded or waiting, by the decisions that the controller makes.
fn explanations(pools: &[&MachineConfigPool], nodes: &[&Node]) -> Vec<String> {
    let mut node_index = NodeIndex::new(pools.iter().copied());
    for node in nodes {
        node_index.set_node(NodeView::of(node), node.labels());
    }
    let mut lines = Vec::new();
    for pool in pools {
        let holds = node_index.holds(pool);
        let fleet = node_index.pool_nodes(&pool.name_any());
        let members: Vec<NodeView> =
            fleet.into_iter().flat_map(PoolNodes::nodes).cloned().collect();
        let (slot, other): (Vec<_>, Vec<_>) =
            holds.iter().cloned().partition(|(_, hold)| matches!(hold, Hold::NoCapacity));
        lines.extend(explain::summary(&explain::pool(pool, &members, &other)));
        lines.extend(waiting_for_slot(pool, &members, &holds, &slot));
        lines.extend(blocked_drains(nodes, &members));
    }
    lines.extend(without_pool(&node_index, nodes));
    lines
}

/// Explains nodes whose pool cannot be determined.
fn without_pool(node_index: &NodeIndex, nodes: &[&Node]) -> Vec<String> {
    let refused = nodes.iter().filter_map(|node| {
        let error = node_index.pool_of(&node.name_any()).err()?;
        Some(format!(
            "node {} is not updated: {}; remove the labels of all custom pools but one",
            node.name_any(),
            chain(error)
        ))
    });
    refused.collect()
}

/// Explains the drains of these members that pods block, with pod and PodDisruptionBudget.
fn blocked_drains(nodes: &[&Node], members: &[NodeView]) -> Vec<String> {
    let is_member = |node: &&&Node| members.iter().any(|member| member.name == node.name_any());
    let line = |node: &&Node| {
        let record = annotation::DRAIN_RECORD.get(node.annotations()).ok().flatten()?;
        let requested = text(node, &annotation::DESIRED_DRAIN);
        let is_current = record.request == requested && !record.blockers.is_empty();
        let mut blockers: Vec<String> = record
            .blockers
            .iter()
            .take(MAX_NAMES)
            .map(|blocker| format!("pod {}: {}", blocker.pod, blocker.why))
            .collect();
        let more = record.blockers.len().saturating_sub(MAX_NAMES) + record.more;
        blockers.extend((more > 0).then(|| format!("{more} more pods")));
        let Time(since) = &record.since;
        is_current.then(|| {
            format!(
                "node {} is draining since {since:.0}, blocked by {}",
                node.name_any(),
                blockers.join("; ")
            )
        })
    };
    nodes.iter().filter(is_member).filter_map(line).collect()
}

/// Maximum number of nodes named in one sentence.
const MAX_NAMES: usize = 3;

/// Explains the nodes of `waiting`, which wait for a free slot: the limit, and the nodes that occupy
/// the slots. `holds` are all nodes that the rollout does not start.
fn waiting_for_slot(
    pool: &MachineConfigPool,
    members: &[NodeView],
    holds: &[(String, Hold)],
    waiting: &[(String, Hold)],
) -> Option<String> {
    let limit = PoolView::of(pool, members.len()).ok()?.max_unavailable;
    let target = &pool.spec.configuration.rendered.name;
    let is_in =
        |list: &[(String, Hold)], node: &NodeView| list.iter().any(|(name, _)| *name == node.name);
    let waiting = names(members, |node| is_in(waiting, node) && !node.is_degraded());
    if waiting.is_empty() {
        return None;
    }
    let mut details = vec![format!("maxUnavailable {limit}")];
    for state in ["updating", "degraded", "unavailable"] {
        let names = names(members, |node| slot_state(node) == Some(state));
        details.extend((!names.is_empty()).then(|| format!("{} {state}", subject(&names))));
    }
    let next = names(members, |node| {
        slot_state(node).is_none() && !is_in(holds, node) && !node.is_updated(target)
    });
    details.extend((!next.is_empty()).then(|| format!("{} next", subject(&next))));
    let noun = if waiting.len() == 1 { "node" } else { "nodes" };
    let details = details.join(", ");
    Some(format!("{noun} {} waiting for a free slot ({details})", subject(&waiting)))
}

/// Returns the state of a node that occupies a slot.
fn slot_state(node: &NodeView) -> Option<&'static str> {
    if node.is_degraded() {
        Some("degraded")
    } else if node.is_updating() {
        Some("updating")
    } else if node.is_unavailable() {
        Some("unavailable")
    } else {
        None
    }
}

fn names(nodes: &[NodeView], matches: impl Fn(&NodeView) -> bool) -> Vec<&str> {
    nodes.iter().filter(|node| matches(node)).map(|node| node.name.as_str()).collect()
}

/// Joins names with the verb: `a is`, `a, b are`, `a, b, c and 2 more are`.
fn subject(names: &[&str]) -> String {
    let listed = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 | 1 => format!("{listed} is"),
        count if count <= MAX_NAMES => format!("{listed} are"),
        count => format!("{listed} and {} more are", count - MAX_NAMES),
    }
}

/// Returns the status line of the operator.
pub(crate) fn operator_line(operator: &ClusterOperator) -> String {
    let conditions = operator.status.as_ref().map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    let holds = |kind: &str| {
        let found = conditions.iter().find(|found| found.kind == kind);
        found.map_or("Unknown", |found| found.status.as_str())
    };
    let mut line = format!(
        "operator {}: Available {}, Progressing {}, Degraded {}",
        operator.name_any(),
        holds("Available"),
        holds("Progressing"),
        holds("Degraded")
    );
    let failing =
        conditions.iter().find(|found| found.kind == "Degraded" && found.status == "True");
    if let Some(failing) = failing {
        line.extend([": ", &failing.message]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(ready: bool, cordoned: bool, annotations: &[(&str, &str)]) -> NodeLine {
        let annotations: BTreeMap<String, &str> = annotations
            .iter()
            .map(|(key, value)| (format!("machineconfiguration.openshift.io/{key}"), *value))
            .collect();
        let status = if ready { "True" } else { "False" };
        let node = json!({
            "metadata": {"name": "worker-0", "annotations": annotations,
                         "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        });
        NodeLine::of(&serde_json::from_value(node).unwrap())
    }

    /// The expected line, readiness, cordon and annotations of a node.
    type Row<'r> = (&'r str, bool, bool, &'r [(&'r str, &'r str)]);

    #[test]
    fn a_node_line_shows_the_current_step() {
        let (old, new) = (("currentConfig", "rendered-a"), ("desiredConfig", "rendered-b"));
        let (working, done) = (("state", "Working"), ("state", "Done"));
        let asked = ("desiredDrain", "drain-rendered-b");
        let drained = ("lastAppliedDrain", "drain-rendered-b");
        let same = ("desiredConfig", "rendered-a");
        let reason = ("reason", "it is broken");
        let rows: [Row<'_>; 7] = [
            ("Ready, Unknown", true, false, &[]),
            ("Ready, Done, rendered-a", true, false, &[old, same, done]),
            ("Ready, Done, rendered-a, next rendered-b", true, false, &[old, new, done]),
            ("Ready, Working, draining for rendered-b", true, false, &[old, new, working, asked]),
            (
                "Ready,SchedulingDisabled, Working, changing to rendered-b",
                true,
                true,
                &[old, new, working, asked, drained],
            ),
            (
                "NotReady,SchedulingDisabled, Working, restarting, rendered-a",
                false,
                true,
                &[old, new, working, asked, drained],
            ),
            (
                "Ready, Degraded, it is broken",
                true,
                false,
                &[old, same, ("state", "Degraded"), reason],
            ),
        ];
        for (want, ready, cordoned, annotations) in rows {
            let line = node(ready, cordoned, annotations).to_string();
            assert_eq!(line, format!("node worker-0: {want}"));
        }
    }

    // covers: C130, DRN-10
    #[test]
    fn a_blocked_drain_and_a_node_in_two_custom_pools_are_explained() {
        let pool = |name: &str| -> MachineConfigPool {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {
                    "nodeSelector": {"matchLabels": {format!("role/{name}"): ""}},
                    "configuration": {"name": "rendered-b"},
                },
            }))
            .unwrap()
        };
        let pools = [pool("worker"), pool("infra"), pool("gpu")];
        let record = json!({
            "request": "drain-rendered-b", "since": "2026-01-01T00:00:00Z",
            "blockers": [{"pod": "shop/web", "why": "PodDisruptionBudget shop/keep requires 1 of 1",
                          "since": "2026-01-01T00:00:00Z"}],
        });
        let node = |name: &str, labels: &[&str], record: &str| -> Node {
            let labels: BTreeMap<String, &str> =
                labels.iter().map(|role| (format!("role/{role}"), "")).collect();
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": labels, "annotations": {
                    "machineconfiguration.openshift.io/currentConfig": "rendered-a",
                    "machineconfiguration.openshift.io/desiredConfig": "rendered-b",
                    "machineconfiguration.openshift.io/state": "Working",
                    "machineconfiguration.openshift.io/desiredDrain": "drain-rendered-b",
                    "machineconfiguration.openshift.io/drainRecord": record,
                }},
                "spec": {"unschedulable": true},
            }))
            .unwrap()
        };
        let nodes =
            [node("n0", &["worker"], &record.to_string()), node("n1", &["gpu", "infra"], "")];
        let view = StatusView::of(None, &pools, &nodes);
        assert_eq!(
            view.explanations,
            [
                "node n0 is draining since 2026-01-01T00:00:00Z, blocked by pod shop/web: \
                 PodDisruptionBudget shop/keep requires 1 of 1",
                "node n1 is not updated: node n1 belongs to 2 custom roles, cannot proceed with \
                 this Node; remove the labels of all custom pools but one",
            ]
        );
    }

    #[test]
    fn a_waiting_node_names_the_limit_and_the_updating_nodes() {
        let node = |name: &str, ready: &str, desired: &str| -> Node {
            let annotations = json!({
                "machineconfiguration.openshift.io/currentConfig": "rendered-a",
                "machineconfiguration.openshift.io/desiredConfig": desired,
                "machineconfiguration.openshift.io/state": "Done",
            });
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": annotations,
                             "labels": {"node-role.kubernetes.io/worker": ""}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {
                "configuration": {"name": "rendered-b"},
                "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            },
        }))
        .unwrap();
        let nodes = [
            node("a", "True", "rendered-b"),
            node("b", "True", "rendered-a"),
            node("c", "True", "rendered-a"),
        ];
        let view = StatusView::of(None, [&pool], &nodes);
        assert_eq!(
            view.explanations,
            ["nodes b, c are waiting for a free slot (maxUnavailable 1, a is updating)"]
        );
        let nodes = [node("a", "False", "rendered-a"), node("b", "True", "rendered-a")];
        assert_eq!(
            StatusView::of(None, [&pool], &nodes).explanations.last().map(String::as_str),
            Some("node b is waiting for a free slot (maxUnavailable 1, a is unavailable)")
        );
    }
}
