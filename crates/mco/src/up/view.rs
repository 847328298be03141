//! Status of the cluster as text: a line for the operator, a line per pool and a line per node.
//!
//! Pure: takes objects and returns text. Used by `mco up` and by `mco status`.

use std::{collections::BTreeMap, fmt};

use anstyle::Style;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt as _;
use mco_api::{
    ClusterOperator, MachineConfigNode, MachineConfigPool,
    annotation::{self, DaemonState, DrainVerb, Key},
    label,
};
use mco_core::progress::{self, NodeProgress, Objects, PoolProgress, Progress};

use crate::print::{CYAN, ERROR, GREEN, WARNING};

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
    fn cells(&self, progress: Option<&NodeProgress>, width: Width) -> Vec<String> {
        let (name, roles) = (self.name.clone(), self.roles.clone());
        let phase = progress.map_or_else(|| self.state.clone(), |it| it.phase.to_string());
        let mut cells =
            vec![name, roles, self.readiness().to_owned(), phase, self.activity.clone()];
        if width == Width::Wide {
            let since = progress.and_then(|it| it.since.as_ref());
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "<none>".to_owned());
            cells.push(or_none(since.map(|Time(since)| format!("{since:.0}"))));
            cells.push(or_none(progress.and_then(|it| it.waits_for.clone())));
            cells.push(or_none(progress.and_then(|it| it.next.clone())));
        }
        cells
    }

    /// Returns the column titles.
    fn titles(width: Width) -> Vec<String> {
        let narrow = ["NODE", "ROLES", "STATUS", "PHASE", "CONFIG"];
        let wide = ["SINCE", "WAITS FOR", "NEXT"].iter().filter(|_| width == Width::Wide);
        narrow.iter().chain(wide).map(|title| (*title).to_owned()).collect()
    }
}

/// The columns to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Width {
    #[default]
    Narrow,
    Wide,
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

    /// Replaces the counters, which the controller updates last, with those of the nodes.
    fn counted(mut self, progress: &PoolProgress) -> Self {
        let counts = [progress.machines, progress.ready, progress.done, progress.degraded];
        self.counts = counts.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        self
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
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StatusView {
    pub(crate) operator: Option<String>,
    pub(crate) pools: Vec<PoolLine>,
    pub(crate) nodes: Vec<NodeLine>,
    pub(crate) progress: Progress,
    /// Explanations of degraded and waiting objects, with the remedy.
    pub(crate) explanations: Vec<String>,
    pub(crate) width: Width,
}

impl StatusView {
    /// Reads the status from the objects of the cluster.
    pub(crate) fn of<'o>(
        operator: Option<&ClusterOperator>,
        pools: impl IntoIterator<Item = &'o MachineConfigPool>,
        nodes: impl IntoIterator<Item = &'o Node>,
        reports: impl IntoIterator<Item = &'o MachineConfigNode>,
    ) -> Self {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let nodes: Vec<&Node> = nodes.into_iter().collect();
        let reports: Vec<&MachineConfigNode> = reports.into_iter().collect();
        let progress = progress::of(Objects { pools: &pools, nodes: &nodes, reports: &reports });
        let line = |pool: &&MachineConfigPool| {
            let name = pool.name_any();
            let counted = progress.pools.iter().find(|it| it.name == name);
            counted.map_or_else(|| PoolLine::of(pool), |it| PoolLine::of(pool).counted(it))
        };
        Self {
            operator: operator.map(operator_line),
            pools: pools.iter().map(line).collect(),
            nodes: nodes.into_iter().map(NodeLine::of).collect(),
            explanations: progress.sentences(),
            progress,
            width: Width::Narrow,
        }
    }

    /// Returns the part about a pool or a node; `None` if neither has this name.
    pub(crate) fn about(&self, name: &str) -> Option<Self> {
        let progress = self.progress.about(name)?;
        let pools =
            self.pools.iter().filter(|line| progress.pools.iter().any(|it| it.name == line.name));
        let nodes =
            self.nodes.iter().filter(|line| progress.nodes.iter().any(|it| it.name == line.name));
        Some(Self {
            operator: None,
            pools: pools.cloned().collect(),
            nodes: nodes.cloned().collect(),
            explanations: progress.sentences(),
            progress,
            width: self.width,
        })
    }

    /// Returns true if a line of the view is about this object.
    pub(crate) fn has(&self, object: &str) -> bool {
        let pools = self.pools.iter().map(|line| &line.name);
        pools.chain(self.nodes.iter().map(|line| &line.name)).any(|name| name == object)
    }

    /// Returns true if there are pools, the controller reports each as updated, and their nodes agree.
    pub(crate) fn is_updated(&self) -> bool {
        let are_done = self.progress.pools.iter().all(|pool| pool.done == pool.machines);
        !self.pools.is_empty() && self.pools.iter().all(PoolLine::is_updated) && are_done
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
        let node = |line: &NodeLine| {
            let progress = self.progress.nodes.iter().find(|it| it.name == line.name);
            line.cells(progress, self.width)
        };
        let nodes =
            std::iter::once(NodeLine::titles(self.width)).chain(self.nodes.iter().map(node));
        [pools.collect(), nodes.collect()]
    }
}

/// Returns the style of a cell of the tables.
pub(crate) fn style(title: &str, text: &str) -> Option<Style> {
    match (title, text) {
        ("PHASE", "Done") | ("UPDATED", "True") => Some(GREEN),
        ("PHASE", "Degraded") | ("DEGRADED", "True") => Some(ERROR),
        ("PHASE", "Waiting" | "Unknown") | ("STATUS", "Ready,SchedulingDisabled") => Some(WARNING),
        ("PHASE", _) | ("UPDATING", "True") => Some(CYAN),
        ("STATUS", text) if text.starts_with("NotReady") => Some(ERROR),
        ("FAILED", text) if text != "0" => Some(ERROR),
        (_, _) => None,
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
    use crate::up::terminal::Terminal;
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
    fn columns_show_the_phase_that_the_counters_count() {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker"},
            "spec": {"configuration": {"name": "rendered-b"},
                     "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}},
            "status": {"machineCount": 9, "updatedMachineCount": 9},
        }))
        .unwrap();
        let record = json!({
            "request": "drain-rendered-b", "since": "2026-01-01T00:00:00Z",
            "blockers": [{"pod": "shop/web", "why": "PodDisruptionBudget shop/keep requires 1 of 1",
                          "since": "2026-01-01T00:00:00Z"}],
        });
        let node = |name: &str, annotations: serde_json::Value| -> Node {
            let annotations: BTreeMap<String, serde_json::Value> = annotations
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| {
                    (format!("machineconfiguration.openshift.io/{key}"), value.clone())
                })
                .collect();
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": annotations,
                             "labels": {"node-role.kubernetes.io/worker": ""}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap()
        };
        let nodes = [
            node(
                "a",
                json!({"currentConfig": "rendered-a", "desiredConfig": "rendered-b",
                "state": "Working", "desiredDrain": "drain-rendered-b",
                "drainRecord": record.to_string()}),
            ),
            node(
                "b",
                json!({"currentConfig": "rendered-a", "desiredConfig": "rendered-a",
                "state": "Done"}),
            ),
        ];
        let mut view = StatusView::of(None, [&pool], &nodes, []);
        let text = |view: &StatusView| {
            let mut out = Vec::new();
            super::super::display::write(view, Terminal::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(&view),
            "POOL     CONFIG   UPDATED   UPDATING   DEGRADED   MACHINES   READY   DONE   FAILED\n\
             worker            Unknown   Unknown    Unknown    2          0       0      0\n\
             \n\
             NODE   ROLES    STATUS   PHASE      CONFIG\n\
             a      worker   Ready    Draining   draining for rendered-b\n\
             b      worker   Ready    Waiting    rendered-a\n\
             \n\
             pool worker: 0 of 2 nodes done, 1 updating\n\
             \n\
             node a is draining since 2026-01-01T00:00:00Z, blocked by pod shop/web: \
             PodDisruptionBudget shop/keep requires 1 of 1; add pods, or lower the budget with \
             `kubectl -n shop edit pdb keep`; the drain then continues by itself\n\
             node b is waiting for a free slot (maxUnavailable 1, a is draining and blocked); fix \
             node a first: add pods, or lower the budget with `kubectl -n shop edit pdb keep`; the \
             drain then continues by itself\n"
        );
        view.width = Width::Wide;
        let wide = text(&view.about("a").unwrap());
        assert!(wide.contains("00:00:00Z   pod shop/web: PodDisruptionBudget"), "{wide}");
        assert_eq!(view.about("c"), None);
    }
}
