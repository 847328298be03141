//! The daemon's metrics. Their names are a public contract.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::annotation::DaemonState;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OsLabel {
    os: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpdateLabel {
    config: String,
    err: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

/// The metrics of one daemon. There is no global registry: one process may run many daemons.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    os: Family<OsLabel, Gauge>,
    pivot_errors: Gauge,
    state: Family<StateLabel, Gauge>,
    kubelet: Gauge,
    reboots_failed: Counter,
    update: Family<UpdateLabel, Gauge>,
    drift: Gauge,
    unsupported: Family<NodeLabel, Gauge>,
    healed: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        // Compat: names and labels are the reference's (pkg/daemon/metrics.go).
        registry.register(
            "mcd_host_os_and_version",
            "Shows the os that MCD is running on and version if RHCOS",
            all.os.clone(),
        );
        registry.register(
            "mcd_pivot_errors_total",
            "Total number of errors encountered during pivot",
            all.pivot_errors.clone(),
        );
        registry.register("mcd_state", "state of daemon on specified node", all.state.clone());
        registry.register(
            "mcd_kubelet_state",
            "state of kubelet health monitor",
            all.kubelet.clone(),
        );
        // The library appends `_total`.
        registry.register(
            "mcd_reboots_failed",
            "Total number of reboots that failed",
            all.reboots_failed.clone(),
        );
        registry.register(
            "mcd_update_state",
            "completed update config or error",
            all.update.clone(),
        );
        registry.register("mcd_config_drift", "timestamp for config drift", all.drift.clone());
        registry.register(
            "mcd_local_unsupported_packages",
            "Count of locally layered packages that are not extensions",
            all.unsupported.clone(),
        );
        registry.register(
            "mco_daemon_healed_paths",
            "paths that were repaired because the pool's drift policy is heal",
            all.healed.clone(),
        );
        all
    }

    /// Sets the operating system of the machine.
    pub fn runs(&self, os: &str, version: &str) {
        self.os.clear();
        let label = OsLabel { os: os.to_owned(), version: version.to_owned() };
        self.os.get_or_create(&label).set(1);
    }

    /// Sets the state of the node, with the time of the change and a reason.
    pub fn state(&self, state: &DaemonState, why: &str, now: &Time) {
        let label = StateLabel { state: state.to_string(), reason: why.to_owned() };
        if self.state.get(&label).is_none() {
            self.state.clear();
            self.state.get_or_create(&label).set(seconds(now));
        }
    }

    /// Sets the result of the last update: its config, or the reason of its failure.
    pub fn update(&self, config: &str, err: &str, now: &Time) {
        self.update.clear();
        let label = UpdateLabel { config: config.to_owned(), err: err.to_owned() };
        self.update.get_or_create(&label).set(seconds(now));
    }

    /// Counts failed attempts to change the operating system; a success resets the count.
    pub fn pivot(&self, failed: bool) {
        if failed {
            self.pivot_errors.inc();
        } else {
            self.pivot_errors.set(0);
        }
    }

    /// Sets the number of consecutive failed kubelet checks.
    pub fn kubelet(&self, failures: u32) {
        self.kubelet.set(failures.into());
    }

    /// Counts a reboot that could not be started.
    pub(crate) fn reboot_failed(&self) {
        self.reboots_failed.inc();
    }

    /// Sets the time since when the disk differs from its config; none clears it.
    pub fn drift(&self, since: Option<&Time>) {
        match since {
            Some(now) if self.drift.get() == 0 => _ = self.drift.set(seconds(now)),
            Some(_) => {}
            None => _ = self.drift.set(0),
        }
    }

    /// Sets the number of unsupported packages on the machine.
    pub(crate) fn unsupported_packages(&self, node: &str, count: usize) {
        let label = NodeLabel { node: node.to_owned() };
        self.unsupported.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts repaired paths.
    pub(crate) fn healed(&self, paths: usize) {
        self.healed.inc_by(u64::try_from(paths).unwrap_or(u64::MAX));
    }
}

fn seconds(time: &Time) -> i64 {
    time.0.as_second()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn at(second: u8) -> Time {
        serde_json::from_str(&format!("\"1970-01-01T00:01:{second:02}Z\"")).unwrap()
    }

    // covers: C10, C90, C125
    #[test]
    fn every_metric_of_the_contract_is_exported_and_a_state_has_one_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.runs("RHCOS", "9.6");
        metrics.state(&DaemonState::Done, "", &at(1));
        metrics.state(&DaemonState::Degraded, "Drift", &at(2));
        metrics.state(&DaemonState::Degraded, "Drift", &at(3));
        metrics.update("rendered-worker-1", "", &at(4));
        metrics.update("", "Drift", &at(5));
        metrics.pivot(true);
        metrics.kubelet(2);
        metrics.reboot_failed();
        metrics.drift(Some(&at(6)));
        metrics.drift(Some(&at(7)));
        metrics.unsupported_packages("worker-0", 5);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let series: Vec<&str> = text.lines().filter(|line| line.starts_with("mcd_")).collect();
        let want = [
            "mcd_host_os_and_version{os=\"RHCOS\",version=\"9.6\"} 1",
            "mcd_pivot_errors_total 1",
            "mcd_state{state=\"Degraded\",reason=\"Drift\"} 62",
            "mcd_kubelet_state 2",
            "mcd_reboots_failed_total 1",
            "mcd_update_state{config=\"\",err=\"Drift\"} 65",
            "mcd_config_drift 66",
            "mcd_local_unsupported_packages{node=\"worker-0\"} 5",
        ];
        assert_eq!(series, want);
        metrics.pivot(false);
        metrics.drift(None);
        text.clear();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("mcd_pivot_errors_total 0") && text.contains("mcd_config_drift 0"));
    }
}
