//! How far the cluster is, in a few lines: one per pool, one per node.
//!
//! Pure: takes objects, gives text. Used by `mco up` and by `mco status`.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use mco_api::{
    ClusterOperator, MachineConfigPool,
    annotation::{self, DaemonState, DrainVerb, Key},
    label,
};
use mco_core::{
    rollout::{Fleet, NodeView},
    roster::Roster,
    status::explain,
};

/// One node, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    /// Roles, for the order of lines and for people.
    pub(crate) roles: String,
    ready: bool,
    cordoned: bool,
    pub(crate) state: String,
    /// The config it runs, or the step it is at.
    doing: String,
}

impl NodeLine {
    /// Looks at a node.
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
            doing: doing(node, ready, &state),
            state: if state.is_empty() { "Unknown".to_owned() } else { state },
        }
    }

    /// Whether there is nothing to see here: it is in service and does nothing.
    fn is_at_rest(&self) -> bool {
        self.ready && !self.cordoned && self.state == DaemonState::Done.to_string()
    }

    fn standing(&self) -> &'static str {
        match (self.ready, self.cordoned) {
            (true, false) => "Ready",
            (true, true) => "Ready,SchedulingDisabled",
            (false, false) => "NotReady",
            (false, true) => "NotReady,SchedulingDisabled",
        }
    }

    /// The cells of the line.
    pub(crate) fn cells(&self) -> Vec<String> {
        let (name, roles) = (self.name.clone(), self.roles.clone());
        vec![name, roles, self.standing().to_owned(), self.state.clone(), self.doing.clone()]
    }

    /// The titles of the cells.
    pub(crate) fn titles() -> Vec<String> {
        ["NODE", "ROLES", "STATUS", "STATE", "CONFIG"].map(str::to_owned).to_vec()
    }
}

impl fmt::Display for NodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, doing, .. } = self;
        write!(f, "node {name}: {}, {state}", self.standing())?;
        if doing.is_empty() { Ok(()) } else { write!(f, ", {doing}") }
    }
}

fn text<T>(node: &Node, key: &Key<T>) -> String {
    node.annotations().get(key.name()).cloned().unwrap_or_default()
}

fn doing(node: &Node, ready: bool, state: &str) -> String {
    let (current, desired) =
        (text(node, &annotation::CURRENT_CONFIG), text(node, &annotation::DESIRED_CONFIG));
    let empty = BTreeMap::new();
    let annotations = node.metadata.annotations.as_ref().unwrap_or(&empty);
    let asked = annotation::DESIRED_DRAIN.get(annotations).ok().flatten();
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
    let verb = asked.as_ref().filter(|_| asked != applied).map(|request| request.verb);
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

/// One pool, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolLine {
    pub(crate) name: String,
    config: String,
    conditions: [String; 3],
    counts: [i32; 4],
    paused: bool,
}

impl PoolLine {
    /// Looks at a pool.
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

    /// Whether every machine runs the pool's config.
    pub(crate) fn is_updated(&self) -> bool {
        self.conditions.first().is_some_and(|updated| updated == "True")
    }

    /// The cells of the line.
    pub(crate) fn cells(&self) -> Vec<String> {
        let name = if self.paused { format!("{} (paused)", self.name) } else { self.name.clone() };
        let mut cells = vec![name, self.config.clone()];
        cells.extend(self.conditions.clone());
        cells.extend(self.counts.map(|count| count.to_string()));
        cells
    }

    /// The titles of the cells.
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
        let [.., failing] = &self.conditions;
        write!(f, "pool {}: {updated} of {machines} updated, {ready} ready", self.name)?;
        if failing == "True" {
            write!(f, ", {degraded} degraded")?;
        }
        if self.paused {
            f.write_str(", paused")?;
        }
        if self.config.is_empty() { Ok(()) } else { write!(f, ", {}", self.config) }
    }
}

/// Everything there is to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) operator: Option<String>,
    pub(crate) pools: Vec<PoolLine>,
    pub(crate) nodes: Vec<NodeLine>,
    /// What is wrong or waiting, and what to do about it.
    pub(crate) trouble: Vec<String>,
}

impl View {
    /// Looks at a cluster.
    pub(crate) fn of<'o>(
        operator: Option<&ClusterOperator>,
        pools: impl IntoIterator<Item = &'o MachineConfigPool>,
        nodes: impl IntoIterator<Item = &'o Node>,
    ) -> Self {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let nodes: Vec<&Node> = nodes.into_iter().collect();
        Self {
            operator: operator.map(operator_line),
            trouble: trouble(&pools, &nodes),
            pools: pools.into_iter().map(PoolLine::of).collect(),
            nodes: nodes.into_iter().map(NodeLine::of).collect(),
        }
    }

    /// Whether every pool that has a config has it everywhere.
    pub(crate) fn is_updated(&self) -> bool {
        !self.pools.is_empty() && self.pools.iter().all(PoolLine::is_updated)
    }

    /// The same with at most so many nodes; those at rest go first.
    pub(crate) fn busiest(&self, count: usize) -> Self {
        let busy = self.nodes.iter().filter(|node| !node.is_at_rest());
        let resting = self.nodes.iter().filter(|node| node.is_at_rest());
        let nodes = busy.chain(resting).take(count).cloned().collect();
        Self { nodes, ..self.clone() }
    }

    /// The tables, one line each, ready to be laid out.
    pub(crate) fn tables(&self) -> [Vec<Vec<String>>; 2] {
        let pools =
            std::iter::once(PoolLine::titles()).chain(self.pools.iter().map(PoolLine::cells));
        let nodes =
            std::iter::once(NodeLine::titles()).chain(self.nodes.iter().map(NodeLine::cells));
        [pools.collect(), nodes.collect()]
    }
}

/// What is wrong or waiting, by the same decisions that the controller makes.
fn trouble(pools: &[&MachineConfigPool], nodes: &[&Node]) -> Vec<String> {
    let mut roster = Roster::new(pools.iter().copied());
    for node in nodes {
        roster.set_node(NodeView::of(node), node.labels());
    }
    let mut lines = Vec::new();
    for pool in pools {
        let holds = roster.holds(pool);
        let fleet = roster.fleet(&pool.name_any());
        let members: Vec<NodeView> = fleet.into_iter().flat_map(Fleet::nodes).cloned().collect();
        lines.extend(explain::summary(&explain::pool(pool, &members, &holds)));
    }
    lines
}

/// The operator, in words.
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

    /// What is shown, whether the node is ready, whether it is cordoned, its annotations.
    type Row<'r> = (&'r str, bool, bool, &'r [(&'r str, &'r str)]);

    #[test]
    fn a_node_says_what_it_is_doing() {
        let (old, new) = (("currentConfig", "rendered-a"), ("desiredConfig", "rendered-b"));
        let (working, done) = (("state", "Working"), ("state", "Done"));
        let asked = ("desiredDrain", "drain-rendered-b");
        let drained = ("lastAppliedDrain", "drain-rendered-b");
        let settled = ("desiredConfig", "rendered-a");
        let reason = ("reason", "it is broken");
        let rows: [Row<'_>; 7] = [
            ("Ready, Unknown", true, false, &[]),
            ("Ready, Done, rendered-a", true, false, &[old, settled, done]),
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
                &[old, settled, ("state", "Degraded"), reason],
            ),
        ];
        for (want, ready, cordoned, annotations) in rows {
            let line = node(ready, cordoned, annotations).to_string();
            assert_eq!(line, format!("node worker-0: {want}"));
        }
    }

    #[test]
    fn every_node_that_waits_says_why() {
        let node = |name: &str, ready: &str| -> Node {
            let annotations = json!({
                "machineconfiguration.openshift.io/currentConfig": "rendered-a",
                "machineconfiguration.openshift.io/desiredConfig": "rendered-a",
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
        let nodes = [node("a", "True"), node("b", "True"), node("c", "True")];
        let view = View::of(None, [&pool], &nodes);
        assert_eq!(
            view.trouble,
            ["nodes b, c are waiting: no free slot: maxUnavailable nodes are unavailable or \
                 updating; no action needed"]
        );
    }
}
