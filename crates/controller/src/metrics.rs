//! Metrics of the controller process. Names are a public contract.

mod state;

use k8s_openapi::jiff::Timestamp;
use mco_api::MachineConfigPoolStatus;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use self::state::States;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    subcontroller: String,
    state: String,
    object: String,
}

/// Compat: what series are named that say nothing yet, so that alerts find the metric
/// (`pkg/controller/common/metrics.go`).
const INITIALIZE: &str = "initialize";

/// What is counted. There is no global registry: each process, and each test, has its own.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    machines: Family<PoolLabel, Gauge>,
    updated: Family<PoolLabel, Gauge>,
    degraded: Family<PoolLabel, Gauge>,
    unavailable: Family<PoolLabel, Gauge>,
    drain_failed: Family<NodeLabel, Gauge>,
    pool_alert: Family<NodeLabel, Gauge>,
    os_image: Family<PoolLabel, Gauge>,
    actions: Family<ActionLabel, Gauge>,
    states: States,
}

/// A part of the controller, and what it does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A pool has the config that belongs to it.
    Render,
    /// Nodes of a pool were told their config.
    Node,
    /// A node is drained.
    Drain,
    /// A node is open again.
    Uncordon,
}

impl Action {
    /// Compat: the reference's words.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Render => {
                ("machine-config-controller-render", "Sync Machine Config Pool with new MC")
            }
            Self::Node => ("machine-config-controller-node", "Sync Machine Config Pool"),
            Self::Drain => ("machine-config-controller-drain", "drain"),
            Self::Uncordon => ("machine-config-controller-drain", "uncordon"),
        }
    }

    fn label(self, object: &str) -> ActionLabel {
        let (subcontroller, state) = self.words();
        ActionLabel {
            subcontroller: subcontroller.to_owned(),
            state: state.to_owned(),
            object: object.to_owned(),
        }
    }
}

impl Metrics {
    /// Counts in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // Compat: names and help texts are the reference's (pkg/controller/common/metrics.go).
        let by_pool = [
            (
                &metrics.machines,
                "mco_machine_count",
                "total number of machines in a specified pool",
            ),
            (
                &metrics.updated,
                "mco_updated_machine_count",
                "total number of updated machines in specified pool",
            ),
            (
                &metrics.degraded,
                "mco_degraded_machine_count",
                "total number of degraded machines in specified pool",
            ),
            (
                &metrics.unavailable,
                "mco_unavailable_machine_count",
                "total number of unavailable machines in specified pool",
            ),
            (&metrics.os_image, "os_image_url_override", "state of OS image override"),
        ];
        for (gauge, name, help) in by_pool {
            registry.register(name, help, gauge.clone());
        }
        let by_node = [
            (&metrics.drain_failed, "mcc_drain_err", "logs failed drain"),
            (&metrics.pool_alert, "mcc_pool_alert", "pool status alert"),
        ];
        for (gauge, name, help) in by_node {
            registry.register(name, help, gauge.clone());
        }
        let (name, help) = ("mcc_sub_controller_state", "state of sub-controllers in the MCC");
        registry.register(name, help, metrics.actions.clone());
        registry.register_collector(Box::new(metrics.states.clone()));
        metrics.initialize();
        metrics
    }

    fn initialize(&self) {
        let name = || INITIALIZE.to_owned();
        for gauge in [&self.drain_failed, &self.pool_alert] {
            gauge.get_or_create(&NodeLabel { node: name() }).set(0);
        }
        self.os_image.get_or_create(&PoolLabel { pool: name() }).set(0);
        let label = ActionLabel { subcontroller: name(), state: name(), object: name() };
        self.actions.get_or_create(&label).set(0);
    }

    /// A custom pool fits a node of the control plane as well and is not heard, or no longer.
    pub(crate) fn pool_alert(&self, node: &str, is_so: bool) {
        let label = NodeLabel { node: node.to_owned() };
        if is_so {
            self.pool_alert.get_or_create(&label).set(1);
        } else {
            self.pool_alert.remove(&label);
        }
    }

    /// Whether somebody set the pool's OS image by hand.
    pub(crate) fn os_image(&self, pool: &str, is_overridden: bool) {
        let label = PoolLabel { pool: pool.to_owned() };
        self.os_image.get_or_create(&label).set(is_overridden.into());
    }

    /// A part of the controller has done something about a pool or a node.
    pub(crate) fn acted(&self, action: Action, object: &str, now: Timestamp) {
        self.actions.get_or_create(&action.label(object)).set(now.as_second());
    }

    /// Takes over a pool's counters, and how it is.
    pub(crate) fn pool(&self, pool: &str, status: &MachineConfigPoolStatus, now: Timestamp) {
        self.states.pool(pool, &status.conditions, now);
        let label = PoolLabel { pool: pool.to_owned() };
        let counts = [
            (&self.machines, status.machine_count),
            (&self.updated, status.updated_machine_count),
            (&self.degraded, status.degraded_machine_count),
            (&self.unavailable, status.unavailable_machine_count),
        ];
        for (gauge, count) in counts {
            gauge.get_or_create(&label).set(count.into());
        }
    }

    /// Forgets a pool that is gone.
    pub(crate) fn pool_gone(&self, pool: &str) {
        let label = PoolLabel { pool: pool.to_owned() };
        let counts = [&self.machines, &self.updated, &self.degraded, &self.unavailable];
        for gauge in counts.into_iter().chain([&self.os_image]) {
            gauge.remove(&label);
        }
        for action in [Action::Render, Action::Node] {
            self.actions.remove(&action.label(pool));
        }
        self.states.pool_gone(pool);
    }

    /// Whose a node is; of no pool if it is nobody's.
    pub(crate) fn member(&self, node: &str, pool: Option<&str>) {
        self.states.member(node, pool);
    }

    /// Forgets a node that is gone.
    pub(crate) fn node_gone(&self, node: &str) {
        self.states.member(node, None);
        self.drain_over(node);
        self.pool_alert(node, false);
        for action in [Action::Drain, Action::Uncordon] {
            self.actions.remove(&action.label(node));
        }
    }

    /// A node's drain has gone on for too long.
    pub(crate) fn drain_overdue(&self, node: &str) {
        self.drain_failed.get_or_create(&NodeLabel { node: node.to_owned() }).set(1);
    }

    /// A node's drain is over.
    pub(crate) fn drain_over(&self, node: &str) {
        self.drain_failed.remove(&NodeLabel { node: node.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use mco_api::meta::LooseCondition;
    use prometheus_client::encoding::text;

    use super::*;

    fn said(registry: &Registry) -> Vec<String> {
        let mut out = String::new();
        text::encode(&mut out, registry).unwrap();
        let lines = out.lines().filter(|line| !line.starts_with('#'));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        // Series of one name come in any order.
        lines.sort();
        lines
    }

    fn condition(kind: &str, status: &str, second: i64) -> LooseCondition {
        LooseCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: format!("because of {kind}"),
            message: String::new(),
            last_transition_time: Some(Time(Timestamp::from_second(second).unwrap())),
        }
    }

    // covers: MET-1, MET-2
    #[test]
    fn names_and_labels_are_the_references_and_some_series_are_there_from_the_start() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        assert_eq!(
            said(&registry),
            [
                r#"mcc_drain_err{node="initialize"} 0"#,
                r#"mcc_pool_alert{node="initialize"} 0"#,
                r#"mcc_sub_controller_state{subcontroller="initialize",state="initialize",object="initialize"} 0"#,
                r#"os_image_url_override{pool="initialize"} 0"#,
            ]
        );
        let status = MachineConfigPoolStatus {
            conditions: vec![
                condition("RenderDegraded", "False", 30),
                condition("Updating", "True", 20),
                condition("NodeDegraded", "True", 10),
            ],
            machine_count: 4,
            updated_machine_count: 3,
            degraded_machine_count: 2,
            unavailable_machine_count: 1,
            ..MachineConfigPoolStatus::default()
        };
        let later = Timestamp::from_second(100).unwrap();
        metrics.pool("worker", &status, later);
        metrics.member("n0", Some("worker"));
        metrics.os_image("worker", true);
        metrics.pool_alert("m0", true);
        metrics.drain_overdue("n0");
        for (action, object) in [
            (Action::Node, "worker"),
            (Action::Render, "worker"),
            (Action::Drain, "n0"),
            (Action::Uncordon, "n0"),
        ] {
            metrics.acted(action, object, later);
        }
        let lines = said(&registry);
        for line in [
            r#"mco_machine_count{pool="worker"} 4"#,
            r#"mco_updated_machine_count{pool="worker"} 3"#,
            r#"mco_degraded_machine_count{pool="worker"} 2"#,
            r#"mco_unavailable_machine_count{pool="worker"} 1"#,
            r#"os_image_url_override{pool="worker"} 1"#,
            r#"mcc_pool_alert{node="m0"} 1"#,
            r#"mcc_drain_err{node="n0"} 1"#,
            r#"mco_state{node="n0",pool="worker",state="Updating",reason="because of Updating"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-node",state="Sync Machine Config Pool",object="worker"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-render",state="Sync Machine Config Pool with new MC",object="worker"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-drain",state="drain",object="n0"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-drain",state="uncordon",object="n0"} 100"#,
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
        }
    }

    // covers: MET-3
    #[test]
    fn what_is_gone_is_counted_no_longer() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let before = said(&registry);
        let status = MachineConfigPoolStatus {
            conditions: vec![condition("Updated", "True", 1)],
            ..MachineConfigPoolStatus::default()
        };
        metrics.pool("worker", &status, Timestamp::UNIX_EPOCH);
        metrics.os_image("worker", false);
        metrics.acted(Action::Node, "worker", Timestamp::UNIX_EPOCH);
        metrics.acted(Action::Render, "worker", Timestamp::UNIX_EPOCH);
        let without_nodes = said(&registry);
        metrics.member("n0", Some("worker"));
        metrics.pool_alert("n0", true);
        metrics.drain_overdue("n0");
        metrics.acted(Action::Drain, "n0", Timestamp::UNIX_EPOCH);
        metrics.acted(Action::Uncordon, "n0", Timestamp::UNIX_EPOCH);
        assert_ne!(said(&registry), without_nodes);
        metrics.node_gone("n0");
        assert_eq!(said(&registry), without_nodes);
        assert_ne!(without_nodes, before);
        metrics.pool_gone("worker");
        assert_eq!(said(&registry), before);
    }
}
