//! Metrics of the controller process. Their names are a public contract.

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

/// Compat: label value of series that exist before the first event, so that alerts find the metric
/// (`pkg/controller/common/metrics.go`).
const INITIALIZE: &str = "initialize";

/// Metrics of the controller. There is no global registry: each process, and each test, has its
/// own.
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
    no_skew_enforcement: Gauge,
    image_config_failed: Gauge,
    states: States,
}

/// Subcontroller of the settings for container engines.
const CONTAINER_RUNTIME: &str = "machine-config-controller-container-runtime-config";

/// An action of a subcontroller that `mcc_sub_controller_state` records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// The base configs were generated.
    Template,
    /// The rendered config of a pool was applied.
    Render,
    /// Nodes of a pool got a new desired config.
    Node,
    /// A node was drained.
    Drain,
    /// A node was uncordoned.
    Uncordon,
    /// The MachineConfigs of a KubeletConfig were generated.
    KubeletConfig,
    /// The MachineConfigs of the features were generated.
    Features,
    /// The MachineConfigs of the settings of nodes were generated.
    NodeConfig,
    /// A ContainerRuntimeConfig was applied to a pool.
    ContainerRuntimeConfig,
    /// Registries and image policies were applied to a pool.
    ImageConfig,
}

impl Action {
    /// Returns the subcontroller and the state. Compat: the label values are the reference's.
    const fn label_values(self) -> (&'static str, &'static str) {
        match self {
            Self::Template => ("machine-config-controller-template", "Sync Controller Config"),
            Self::Render => {
                ("machine-config-controller-render", "Sync Machine Config Pool with new MC")
            }
            Self::Node => ("machine-config-controller-node", "Sync Machine Config Pool"),
            Self::Drain => ("machine-config-controller-drain", "drain"),
            Self::Uncordon => ("machine-config-controller-drain", "uncordon"),
            Self::KubeletConfig => {
                ("machine-config-controller-kubelet-config", "Sync Kubelet Config")
            }
            Self::Features => ("machine-config-controller-kubelet-config", "Sync FeatureSet"),
            Self::NodeConfig => ("machine-config-controller-kubelet-config", "Sync NodeConfig"),
            Self::ContainerRuntimeConfig => (CONTAINER_RUNTIME, "Sync Container Runtime Config"),
            Self::ImageConfig => (CONTAINER_RUNTIME, "Sync Image Config"),
        }
    }

    fn label(self, object: &str) -> ActionLabel {
        let (subcontroller, state) = self.label_values();
        ActionLabel {
            subcontroller: subcontroller.to_owned(),
            state: state.to_owned(),
            object: object.to_owned(),
        }
    }
}

impl Metrics {
    /// Creates the metrics and registers them in `registry`.
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
        let (name, help) = (
            "mcc_boot_image_skew_enforcement_none",
            "set to 1 when boot image skew enforcement is disabled",
        );
        registry.register(name, help, metrics.no_skew_enforcement.clone());
        // Not in the reference, whose failures are in its log only.
        let (name, help) = ("mcc_image_config_err", "1 if image settings cannot be applied");
        registry.register(name, help, metrics.image_config_failed.clone());
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

    /// Sets or clears the alert for a control plane node that a custom pool selects too; the custom
    /// pool is ignored.
    pub(crate) fn set_pool_alert(&self, node: &str, is_set: bool) {
        let label = NodeLabel { node: node.to_owned() };
        if is_set {
            self.pool_alert.get_or_create(&label).set(1);
        } else {
            self.pool_alert.remove(&label);
        }
    }

    /// Records if a MachineConfig overrides the pool's OS image.
    pub(crate) fn set_os_image_override(&self, pool: &str, is_overridden: bool) {
        let label = PoolLabel { pool: pool.to_owned() };
        self.os_image.get_or_create(&label).set(is_overridden.into());
    }

    /// Records if the administrator disabled the enforcement of boot images.
    pub(crate) fn set_no_skew_enforcement(&self, is_disabled: bool) {
        self.no_skew_enforcement.set(is_disabled.into());
    }

    /// Records the time of an action on a pool, a node or a ControllerConfig.
    pub(crate) fn record_action(&self, action: Action, object: &str, now: Timestamp) {
        self.actions.get_or_create(&action.label(object)).set(now.as_second());
    }

    /// Removes the record of an action on an object that was deleted.
    pub(crate) fn remove_action(&self, action: Action, object: &str) {
        self.actions.remove(&action.label(object));
    }

    /// Records the counters and the state of a pool.
    pub(crate) fn set_pool(&self, pool: &str, status: &MachineConfigPoolStatus, now: Timestamp) {
        self.states.set_pool(pool, &status.conditions, now);
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

    /// Removes the series of a deleted pool.
    pub(crate) fn remove_pool(&self, pool: &str) {
        let label = PoolLabel { pool: pool.to_owned() };
        let counts = [&self.machines, &self.updated, &self.degraded, &self.unavailable];
        for gauge in counts.into_iter().chain([&self.os_image]) {
            gauge.remove(&label);
        }
        let actions = [Action::ContainerRuntimeConfig, Action::ImageConfig];
        for action in [Action::Render, Action::Node].into_iter().chain(actions) {
            self.actions.remove(&action.label(pool));
        }
        self.states.remove_pool(pool);
    }

    /// Records the pool of a node; `None` if it belongs to no pool.
    pub(crate) fn set_node_pool(&self, node: &str, pool: Option<&str>) {
        self.states.set_node_pool(node, pool);
    }

    /// Removes the series of a deleted node.
    pub(crate) fn remove_node(&self, node: &str) {
        self.states.set_node_pool(node, None);
        self.clear_drain_error(node);
        self.set_pool_alert(node, false);
        for action in [Action::Drain, Action::Uncordon] {
            self.actions.remove(&action.label(node));
        }
    }

    /// Records if the settings for registries and image policies cannot be applied.
    pub(crate) fn set_image_config_error(&self, has_failed: bool) {
        self.image_config_failed.set(has_failed.into());
    }

    /// Records that the drain of a node exceeded its time limit.
    pub(crate) fn set_drain_error(&self, node: &str) {
        self.drain_failed.get_or_create(&NodeLabel { node: node.to_owned() }).set(1);
    }

    /// Clears the drain error of a node.
    pub(crate) fn clear_drain_error(&self, node: &str) {
        self.drain_failed.remove(&NodeLabel { node: node.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use mco_api::meta::LooseCondition;
    use prometheus_client::encoding::text;

    use super::*;

    fn series(registry: &Registry) -> Vec<String> {
        let mut out = String::new();
        text::encode(&mut out, registry).unwrap();
        let lines = out.lines().filter(|line| !line.starts_with('#'));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        // Series of one metric come in any order.
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
    fn names_and_labels_are_the_references_and_some_series_exist_from_the_start() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        assert_eq!(
            series(&registry),
            [
                "mcc_boot_image_skew_enforcement_none 0",
                r#"mcc_drain_err{node="initialize"} 0"#,
                "mcc_image_config_err 0",
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
        metrics.set_pool("worker", &status, later);
        metrics.set_node_pool("n0", Some("worker"));
        metrics.set_os_image_override("worker", true);
        metrics.set_pool_alert("m0", true);
        metrics.set_drain_error("n0");
        for (action, object) in [
            (Action::Template, "cluster"),
            (Action::Node, "worker"),
            (Action::Render, "worker"),
            (Action::Drain, "n0"),
            (Action::Uncordon, "n0"),
            (Action::KubeletConfig, "pods"),
            (Action::Features, "cluster"),
            (Action::NodeConfig, "cluster"),
            (Action::ContainerRuntimeConfig, "worker"),
            (Action::ImageConfig, "worker"),
        ] {
            metrics.record_action(action, object, later);
        }
        let lines = series(&registry);
        for line in [
            r#"mco_machine_count{pool="worker"} 4"#,
            r#"mco_updated_machine_count{pool="worker"} 3"#,
            r#"mco_degraded_machine_count{pool="worker"} 2"#,
            r#"mco_unavailable_machine_count{pool="worker"} 1"#,
            r#"os_image_url_override{pool="worker"} 1"#,
            r#"mcc_pool_alert{node="m0"} 1"#,
            r#"mcc_drain_err{node="n0"} 1"#,
            r#"mco_state{node="n0",pool="worker",state="Updating",reason="because of Updating"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-template",state="Sync Controller Config",object="cluster"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-node",state="Sync Machine Config Pool",object="worker"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-render",state="Sync Machine Config Pool with new MC",object="worker"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-drain",state="drain",object="n0"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-drain",state="uncordon",object="n0"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-kubelet-config",state="Sync Kubelet Config",object="pods"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-kubelet-config",state="Sync FeatureSet",object="cluster"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-kubelet-config",state="Sync NodeConfig",object="cluster"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-container-runtime-config",state="Sync Container Runtime Config",object="worker"} 100"#,
            r#"mcc_sub_controller_state{subcontroller="machine-config-controller-container-runtime-config",state="Sync Image Config",object="worker"} 100"#,
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
        }
    }

    // covers: MET-3
    #[test]
    fn series_of_deleted_objects_are_removed() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let before = series(&registry);
        let status = MachineConfigPoolStatus {
            conditions: vec![condition("Updated", "True", 1)],
            ..MachineConfigPoolStatus::default()
        };
        metrics.set_pool("worker", &status, Timestamp::UNIX_EPOCH);
        metrics.set_os_image_override("worker", false);
        metrics.record_action(Action::Node, "worker", Timestamp::UNIX_EPOCH);
        metrics.record_action(Action::Render, "worker", Timestamp::UNIX_EPOCH);
        metrics.record_action(Action::ImageConfig, "worker", Timestamp::UNIX_EPOCH);
        let without_nodes = series(&registry);
        metrics.set_node_pool("n0", Some("worker"));
        metrics.set_pool_alert("n0", true);
        metrics.set_drain_error("n0");
        metrics.record_action(Action::Drain, "n0", Timestamp::UNIX_EPOCH);
        metrics.record_action(Action::Uncordon, "n0", Timestamp::UNIX_EPOCH);
        assert_ne!(series(&registry), without_nodes);
        metrics.remove_node("n0");
        assert_eq!(series(&registry), without_nodes);
        assert_ne!(without_nodes, before);
        metrics.remove_pool("worker");
        assert_eq!(series(&registry), before);
    }
}
