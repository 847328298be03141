//! What a pool says of itself: counters and conditions, computed from its nodes.

mod condition;
pub mod operator;
mod quote;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    ControllerConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus,
    condition::{NodeCondition, PoolCondition, reason},
    machine_config_pool::{CertExpiry, PoolSynchronizerStatus, PoolSynchronizerType},
};

pub use self::condition::{Finding, holds, set};
use self::quote::quoted;
use crate::rollout::NodeView;

/// The bundle whose certificates a pool reports on.
const SERVING_CA: &str = "KubeAPIServerServingCAData";

/// What a node's daemon says in its MachineConfigNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Whether it has said anything yet.
    pub voice: Voice,
    /// Why it is degraded, if it is.
    pub degraded: Option<String>,
    /// Whether all pinned images are there.
    pub images: Images,
}

/// Whether a MachineConfigNode has conditions yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// It has.
    Heard,
    /// It was made and never written.
    Silent,
}

/// How far a node is with its pinned images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// All are there.
    Pulled,
    /// Some are missing.
    Missing,
}

impl NodeReport {
    /// Reads what matters off a MachineConfigNode.
    #[must_use]
    pub fn of(node: &MachineConfigNode) -> Self {
        let status = node.status.clone().unwrap_or_default();
        let degraded = status.conditions.iter().find(|condition| {
            condition.type_ == NodeCondition::NodeDegraded.as_str() && condition.status == "True"
        });
        let pulled = status.pinned_image_sets.iter().all(|set| {
            set.current_generation == set.desired_generation && set.desired_generation > 0
        });
        Self {
            node: node.metadata.name.clone().unwrap_or_default(),
            voice: if status.conditions.is_empty() { Voice::Silent } else { Voice::Heard },
            degraded: degraded.map(|condition| condition.message.clone()),
            images: if pulled { Images::Pulled } else { Images::Missing },
        }
    }
}

/// What goes into a pool's status besides its nodes.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The pool, with the status it has.
    pub pool: &'a MachineConfigPool,
    /// Its nodes.
    pub nodes: &'a [NodeView],
    /// What their daemons say, in the order of the nodes.
    pub reports: &'a [NodeReport],
    /// The certificates that the cluster puts on nodes.
    pub controller_config: Option<&'a ControllerConfig>,
    /// The time, for conditions that change.
    pub now: Time,
}

/// The pool's new status.
#[must_use]
pub fn pool(inputs: &Inputs<'_>) -> MachineConfigPoolStatus {
    let Inputs { pool, nodes, now, .. } = inputs;
    let target = pool.spec.configuration.rendered.name.as_str();
    let before = pool.status.clone().unwrap_or_default();
    let count = |counts: &dyn Fn(&NodeView) -> bool| {
        i32::try_from(nodes.iter().filter(|node| counts(node)).count()).unwrap_or(i32::MAX)
    };
    let mut status = MachineConfigPoolStatus {
        observed_generation: pool.metadata.generation.unwrap_or_default(),
        configuration: before.configuration,
        machine_count: count(&|_| true),
        updated_machine_count: count(&|node| node.is_updated(target)),
        ready_machine_count: count(&|node| node.is_updated(target) && node.is_ready()),
        unavailable_machine_count: count(&NodeView::is_unavailable),
        degraded_machine_count: count(&NodeView::is_degraded),
        conditions: before.conditions.clone(),
        cert_expirys: certificates(inputs.controller_config),
        pool_synchronizers_status: Vec::new(),
        os_image_stream: None,
    };
    status.pool_synchronizers_status = vec![pinned_images(&status, &heard(inputs))];
    let all_updated = status.updated_machine_count == status.machine_count
        && status.ready_machine_count == status.machine_count
        && status.unavailable_machine_count == 0;
    if all_updated {
        status.configuration = pool.spec.configuration.clone();
    }
    let mut set =
        |kind: &PoolCondition, finding| condition::set(&mut status.conditions, kind, finding, now);
    progress(pool, all_updated, &mut set);
    let degraded = degraded(inputs, status.degraded_machine_count > 0);
    set(&PoolCondition::NodeDegraded, degraded.clone());
    let build = &PoolCondition::ImageBuildDegraded;
    if condition::holds(&before.conditions, build) {
        // Compat: nothing builds images for the pool, so an old failure to do so is over.
        let gone = "No layered pool objects found, clearing stale build degraded condition";
        set(build, Finding::no(reason::NO_LAYERED_OBJECTS, gone));
    }
    let overall = if degraded.holds() {
        Finding::yes("", &degraded.message)
    } else if condition::holds(&before.conditions, &PoolCondition::RenderDegraded) {
        Finding::yes("", "")
    } else {
        Finding::no("", "")
    };
    set(&PoolCondition::Degraded, overall);
    status
}

fn progress(
    pool: &MachineConfigPool,
    all_updated: bool,
    set: &mut impl FnMut(&PoolCondition, Finding),
) {
    let line = format!("MachineConfig {}", pool.spec.configuration.rendered.name);
    let (updated, updating) = if all_updated {
        let message = format!("All nodes are updated with {line}");
        (Finding::yes("", &message), Finding::no("", ""))
    } else if pool.spec.paused {
        let message = format!("Pool is paused; will not update to {line}");
        (Finding::no("", ""), Finding::no("", &message))
    } else {
        let message = format!("All nodes are updating to {line}");
        (Finding::no("", ""), Finding::yes("", &message))
    };
    set(&PoolCondition::Updated, updated);
    set(&PoolCondition::Updating, updating);
}

/// The reports that count.
///
/// Compat: one that has said nothing yet, or is of no node of the pool, hides those after it
/// (pkg/controller/node/status.go, calculateStatus).
fn heard<'a>(inputs: &Inputs<'a>) -> Vec<&'a NodeReport> {
    let known = |report: &NodeReport| inputs.nodes.iter().any(|node| node.name == report.node);
    let counts = |report: &&NodeReport| report.voice == Voice::Heard && known(report);
    inputs.reports.iter().take_while(counts).collect()
}

fn degraded(inputs: &Inputs<'_>, some: bool) -> Finding {
    if !some {
        return Finding::no("", "");
    }
    let line = |node: &str, text: &str| format!("Node {node} is reporting: {}", quoted(text));
    let annotated = |node: &NodeView| {
        Some(&node.reason).filter(|text| !text.is_empty()).map(|text| line(&node.name, text))
    };
    let (count, lines): (usize, Vec<String>) = if inputs.reports.is_empty() {
        // Nobody writes reports in this cluster: the nodes' annotations say it all.
        let degraded = || inputs.nodes.iter().filter(|node| node.is_degraded());
        (degraded().count(), degraded().filter_map(annotated).collect())
    } else {
        let heard = heard(inputs);
        let degraded: Vec<_> =
            heard.iter().filter_map(|report| Some((report, report.degraded.as_ref()?))).collect();
        let said = degraded.iter().map(|(report, text)| line(&report.node, text));
        let nodes = degraded.iter().filter_map(|(report, _)| {
            inputs.nodes.iter().find(|node| node.name == report.node).and_then(annotated)
        });
        (degraded.len(), said.chain(nodes).collect())
    };
    let reason = format!("{count} nodes are reporting degraded status on sync");
    Finding::yes(&reason, &lines.join(", "))
}

fn pinned_images(
    status: &MachineConfigPoolStatus,
    reports: &[&NodeReport],
) -> PoolSynchronizerStatus {
    let pulled = reports.iter().filter(|report| report.images == Images::Pulled).count();
    PoolSynchronizerStatus {
        pool_synchronizer_type: PoolSynchronizerType::PinnedImageSets,
        machine_count: status.machine_count.into(),
        updated_machine_count: i64::try_from(pulled).unwrap_or(i64::MAX),
        ready_machine_count: status.ready_machine_count.into(),
        available_machine_count: i64::from(status.machine_count)
            - i64::from(status.unavailable_machine_count),
        unavailable_machine_count: status.unavailable_machine_count.into(),
        observed_generation: 0,
    }
}

fn certificates(config: Option<&ControllerConfig>) -> Vec<CertExpiry> {
    let status = config.and_then(|config| config.status.as_ref());
    let certificates = status.iter().flat_map(|status| &status.controller_certificates);
    certificates
        .filter(|certificate| certificate.bundle_file == SERVING_CA)
        .map(|certificate| CertExpiry {
            bundle: certificate.bundle_file.clone(),
            subject: certificate.subject.clone(),
            expiry: certificate.not_after.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
