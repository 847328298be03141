//! Metrics of the controller process. Names are a public contract.

use k8s_openapi::jiff::Timestamp;
use mco_api::MachineConfigPoolStatus;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

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
}

impl Metrics {
    /// Counts in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // Compat: names and help texts are the reference's (pkg/controller/common/metrics.go).
        let pools = [
            (
                "mco_machine_count",
                "total number of machines in a specified pool",
                &metrics.machines,
            ),
            (
                "mco_updated_machine_count",
                "total number of updated machines in specified pool",
                &metrics.updated,
            ),
            (
                "mco_degraded_machine_count",
                "total number of degraded machines in specified pool",
                &metrics.degraded,
            ),
            (
                "mco_unavailable_machine_count",
                "total number of unavailable machines in specified pool",
                &metrics.unavailable,
            ),
        ];
        for (name, help, gauge) in pools {
            registry.register(name, help, gauge.clone());
        }
        registry.register("mcc_drain_err", "logs failed drain", metrics.drain_failed.clone());
        registry.register("mcc_pool_alert", "pool status alert", metrics.pool_alert.clone());
        registry.register(
            "os_image_url_override",
            "state of OS image override",
            metrics.os_image.clone(),
        );
        registry.register(
            "mcc_sub_controller_state",
            "state of sub-controllers in the MCC",
            metrics.actions.clone(),
        );
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

    /// A part of the controller has done something; `part` is such as `node`.
    pub(crate) fn acted(&self, part: &str, what: &str, object: &str, now: Timestamp) {
        let label = ActionLabel {
            subcontroller: format!("machine-config-controller-{part}"),
            state: what.to_owned(),
            object: object.to_owned(),
        };
        self.actions.get_or_create(&label).set(now.as_second());
    }

    /// Takes over a pool's counters.
    pub(crate) fn pool(&self, pool: &str, status: &MachineConfigPoolStatus) {
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
    }

    /// A node's drain has gone on for too long.
    pub(crate) fn drain_overdue(&self, node: &str) {
        self.drain_failed.get_or_create(&NodeLabel { node: node.to_owned() }).set(1);
    }

    /// A node's drain is over, or the node is gone.
    pub(crate) fn drain_over(&self, node: &str) {
        self.drain_failed.remove(&NodeLabel { node: node.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    fn said(registry: &Registry) -> Vec<String> {
        let mut out = String::new();
        text::encode(&mut out, registry).unwrap();
        out.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
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
                r#"os_image_url_override{pool="initialize"} 0"#,
                r#"mcc_sub_controller_state{subcontroller="initialize",state="initialize",object="initialize"} 0"#,
            ]
        );
        let status = MachineConfigPoolStatus {
            machine_count: 4,
            updated_machine_count: 3,
            degraded_machine_count: 2,
            unavailable_machine_count: 1,
            ..MachineConfigPoolStatus::default()
        };
        metrics.pool("worker", &status);
        metrics.os_image("worker", true);
        metrics.pool_alert("m0", true);
        metrics.drain_overdue("n0");
        metrics.acted("node", "Sync Machine Config Pool", "worker", Timestamp::UNIX_EPOCH);
        let lines = said(&registry);
        for line in [
            r#"mco_machine_count{pool="worker"} 4"#,
            r#"mco_updated_machine_count{pool="worker"} 3"#,
            r#"mco_degraded_machine_count{pool="worker"} 2"#,
            r#"mco_unavailable_machine_count{pool="worker"} 1"#,
            r#"os_image_url_override{pool="worker"} 1"#,
            r#"mcc_pool_alert{node="m0"} 1"#,
            r#"mcc_drain_err{node="n0"} 1"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-node",state="Sync Machine Config Pool",object="worker"} 0"#,
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
        metrics.pool("worker", &MachineConfigPoolStatus::default());
        metrics.os_image("worker", false);
        metrics.pool_alert("m0", true);
        metrics.drain_overdue("n0");
        assert_ne!(said(&registry), before);
        metrics.pool_gone("worker");
        metrics.pool_alert("m0", false);
        metrics.drain_over("n0");
        assert_eq!(said(&registry), before);
    }
}
