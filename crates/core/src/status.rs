//! Status of a pool: counters and conditions, computed from its nodes.
//!
//! [`pool`] scans every node; [`StatusCounter`] keeps the same counts up to date node by node, so
//! that one node event costs the same in a pool of ten and of ten thousand nodes.
//!
//! Types, reasons and messages are the reference's (`pkg/controller/node/status.go`): programs
//! match on them. Start times and remedies for the administrator are in [`explain`].

mod condition;
mod counter;
pub mod explain;
mod image_mode;
pub mod operator;
pub(crate) mod quote;
mod report;
mod stream;
pub mod update_conditions;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    ControllerConfig, MachineConfigPool, MachineConfigPoolStatus,
    condition::PoolCondition,
    machine_config_pool::{CertExpiry, PoolSynchronizerStatus, PoolSynchronizerType},
};

pub use self::{
    condition::{Finding, holds, set},
    counter::{CountSource, Counts, StatusCounter},
    image_mode::{Builder, ImageBuild},
    report::{DaemonReport, Images, MachineConfigNodeView, Updated},
    stream::Streams,
};
use self::{
    counter::{DegradedNode, PoolSummary},
    quote::quoted,
};
use crate::rollout::NodeView;

/// CA bundle whose certificates are listed in a pool's status.
const SERVING_CA: &str = "KubeAPIServerServingCAData";

/// The inputs of a pool's status.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The pool, with its current status.
    pub pool: &'a MachineConfigPool,
    /// Nodes of the pool.
    pub nodes: &'a [NodeView],
    /// State of their `MachineConfigNodes`, in the order of the nodes.
    pub reports: &'a [MachineConfigNodeView],
    /// Inputs that are the same for all nodes.
    pub context: StatusContext<'a>,
    /// Time for conditions that change.
    pub now: Time,
}

/// The inputs of a pool's status besides the pool and its nodes.
#[derive(Clone, Debug, Default)]
pub struct StatusContext<'a> {
    /// ControllerConfig with the certificates of the cluster.
    pub controller_config: Option<&'a ControllerConfig>,
    /// OS image build of the pool.
    pub image_build: ImageBuild<'a>,
    /// OS image streams, if the cluster has them.
    pub streams: Option<Streams<'a>>,
    /// Source of the updated and degraded counts.
    pub counting: CountSource,
}

/// Computes the pool's new status from all nodes.
#[must_use]
pub fn pool(inputs: &Inputs<'_>) -> MachineConfigPoolStatus {
    let target = inputs.context.image_build.target(inputs.pool);
    let summary = PoolSummary::of(&target, inputs.nodes, inputs.reports);
    compose(inputs.pool, &summary, &inputs.context, &inputs.now)
}

/// Computes the pool's new status from incremental counts.
#[must_use]
pub fn from_counter(
    pool: &MachineConfigPool,
    counter: &StatusCounter,
    around: &StatusContext<'_>,
    now: &Time,
) -> MachineConfigPoolStatus {
    compose(pool, &counter.summary(), around, now)
}

fn compose(
    pool: &MachineConfigPool,
    summary: &PoolSummary,
    around: &StatusContext<'_>,
    now: &Time,
) -> MachineConfigPoolStatus {
    let before = pool.status.clone().unwrap_or_default();
    let (updated, degraded) = match around.counting {
        CountSource::Annotations => (summary.counts.updated, summary.counts.degraded),
        CountSource::MachineConfigNodes => {
            (summary.counts.report_updated, summary.counts.report_degraded)
        }
    };
    let mut status = MachineConfigPoolStatus {
        observed_generation: pool.metadata.generation.unwrap_or_default(),
        configuration: before.configuration,
        machine_count: number(summary.counts.machines),
        updated_machine_count: number(updated),
        ready_machine_count: number(summary.counts.ready),
        unavailable_machine_count: number(summary.counts.unavailable),
        degraded_machine_count: number(degraded),
        conditions: before.conditions.clone(),
        cert_expirys: certificates(around.controller_config),
        pool_synchronizers_status: Vec::new(),
        os_image_stream: None,
    };
    status.pool_synchronizers_status = vec![pinned_images(&status, summary.counts.pulled)];
    let all_updated = status.updated_machine_count == status.machine_count
        && status.ready_machine_count == status.machine_count
        && status.unavailable_machine_count == 0
        && !around.image_build.is_pending();
    if all_updated {
        status.configuration = pool.spec.configuration.clone();
    }
    let mut set =
        |kind: &PoolCondition, finding| condition::set(&mut status.conditions, kind, finding, now);
    let line = around.image_build.line(&pool.spec.configuration.rendered.name);
    progress(pool, all_updated, &line, &mut set);
    if let Some(updating) = around.image_build.updating(pool, all_updated) {
        set(&PoolCondition::Updating, updating);
    }
    let unsupported = around.image_build.unsupported(summary.counts.kept);
    let is_unsupported = unsupported.is_some();
    if let Some(unsupported) = unsupported {
        restrict(unsupported, summary, updated, &mut set);
    }
    let nodes =
        if degraded > 0 { degraded_nodes(summary, around.counting) } else { Finding::no("", "") };
    set(&PoolCondition::NodeDegraded, nodes.clone());
    let build_failed = condition::holds(&before.conditions, &PoolCondition::ImageBuildDegraded);
    let cleared = around.image_build.clear_failure(build_failed);
    let build_failed = build_failed && cleared.is_none();
    if let Some(cleared) = cleared {
        set(&PoolCondition::ImageBuildDegraded, cleared);
    }
    let render_failed = condition::holds(&before.conditions, &PoolCondition::RenderDegraded);
    let overall = if nodes.holds() {
        Finding::yes("", &nodes.message)
    } else if build_failed {
        Finding::yes("", "Custom OS image build failed")
    } else if render_failed {
        Finding::yes("", "")
    } else {
        Finding::no("", "")
    };
    let is_well = !overall.holds();
    set(&PoolCondition::Degraded, overall);
    if !is_unsupported {
        let kind = PoolCondition::ImageModeUnsupported;
        status.conditions.retain(|condition| condition.kind != kind.as_str());
    }
    if let Some(streams) = around.streams.as_ref().filter(|_| all_updated && is_well) {
        status.os_image_stream = streams.of(&status.configuration);
    }
    status
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn progress(
    pool: &MachineConfigPool,
    all_updated: bool,
    line: &str,
    set: &mut impl FnMut(&PoolCondition, Finding),
) {
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

/// Sets the conditions of a pool in which some nodes keep a built image.
fn restrict(
    unsupported: Finding,
    summary: &PoolSummary,
    updated: usize,
    set: &mut impl FnMut(&PoolCondition, Finding),
) {
    let kept = summary.counts.kept;
    if kept > 0 && updated + kept == summary.counts.machines {
        set(&PoolCondition::Updating, Finding::no(&unsupported.reason, &unsupported.message));
    }
    set(&PoolCondition::ImageModeUnsupported, unsupported);
}

fn degraded_nodes(summary: &PoolSummary, counting: CountSource) -> Finding {
    let counts = |node: &&DegradedNode| counting == CountSource::Annotations || !node.is_updated;
    let degraded_nodes: Vec<&DegradedNode> = summary.degraded_nodes.iter().filter(counts).collect();
    let line = |node: &str, text: &str| format!("Node {node} is reporting: {}", quoted(text));
    // Compat: the text of the MachineConfigNode comes first, then that of the annotation. The
    // reference writes both even if the first contains the second.
    let reported = degraded_nodes.iter().filter_map(|node| {
        let text = node.reported.as_ref().filter(|text| !node.is_repeated_in(text));
        text.map(|text| line(&node.node, text))
    });
    let annotated = degraded_nodes.iter().filter(|node| !node.reason.is_empty());
    let annotated = annotated.map(|node| line(&node.node, &node.reason));
    let lines: Vec<String> = reported.chain(annotated).collect();
    let reason = format!("{} nodes are reporting degraded status on sync", degraded_nodes.len());
    Finding::yes(&reason, &lines.join(", "))
}

fn pinned_images(status: &MachineConfigPoolStatus, pulled: usize) -> PoolSynchronizerStatus {
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
