//! Metrics of the controller process. Names are a public contract.

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

/// What is counted. There is no global registry: each process, and each test, has its own.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    machines: Family<PoolLabel, Gauge>,
    updated: Family<PoolLabel, Gauge>,
    degraded: Family<PoolLabel, Gauge>,
    unavailable: Family<PoolLabel, Gauge>,
    drain_failed: Family<NodeLabel, Gauge>,
    os_image: Family<PoolLabel, Gauge>,
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
        registry.register(
            "os_image_url_override",
            "state of OS image override",
            metrics.os_image.clone(),
        );
        registry.register("mcc_drain_err", "logs failed drain", metrics.drain_failed.clone());
        metrics
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

    /// Whether a config chose the pool's OS image.
    pub(crate) fn os_image(&self, pool: &str, is_overridden: bool) {
        let label = PoolLabel { pool: pool.to_owned() };
        self.os_image.get_or_create(&label).set(is_overridden.into());
    }

    /// Forgets a pool that is gone.
    pub(crate) fn pool_gone(&self, pool: &str) {
        let label = PoolLabel { pool: pool.to_owned() };
        let gauges =
            [&self.machines, &self.updated, &self.degraded, &self.unavailable, &self.os_image];
        for gauge in gauges {
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
