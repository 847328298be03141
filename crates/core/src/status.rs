//! What a pool says of itself: counters and conditions, computed from its nodes.
//!
//! [`pool`] looks at every node; [`Tally`] keeps the same numbers up to date node by node, so that
//! one node's event costs the same in a pool of ten and of ten thousand.
//!
//! Types, reasons and messages are the reference's (`pkg/controller/node/status.go`): programs match
//! on them. What a person needs beyond that, since when and what to do, is in [`explain`].

mod condition;
pub mod explain;
mod image_mode;
pub mod machine_config_node;
pub mod operator;
mod quote;
mod report;
mod stream;
mod tally;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    ControllerConfig, MachineConfigPool, MachineConfigPoolStatus,
    condition::PoolCondition,
    machine_config_pool::{CertExpiry, PoolSynchronizerStatus, PoolSynchronizerType},
};

pub use self::{
    condition::{Finding, holds, set},
    image_mode::ImageBuild,
    report::{Images, NodeReport, Updated, Voice},
    stream::Streams,
    tally::{Counting, Counts, Tally},
};
use self::{
    quote::quoted,
    tally::{Complaint, Digest},
};
use crate::rollout::NodeView;

/// The bundle whose certificates a pool reports on.
const SERVING_CA: &str = "KubeAPIServerServingCAData";

/// What goes into a pool's status besides its nodes.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The pool, with the status it has.
    pub pool: &'a MachineConfigPool,
    /// Its nodes.
    pub nodes: &'a [NodeView],
    /// What their daemons say, in the order of the nodes.
    pub reports: &'a [NodeReport],
    /// What is the same for all nodes.
    pub around: Around<'a>,
    /// The time, for conditions that change.
    pub now: Time,
}

/// What a pool's status depends on besides the pool and its nodes.
#[derive(Clone, Debug, Default)]
pub struct Around<'a> {
    /// The certificates that the cluster puts on nodes.
    pub controller_config: Option<&'a ControllerConfig>,
    /// The image that the cluster builds for the pool.
    pub image_build: ImageBuild<'a>,
    /// The streams of OS images, where the cluster has them.
    pub streams: Option<Streams<'a>>,
    /// Who is asked which nodes are updated or degraded.
    pub counting: Counting,
}

/// The pool's new status.
#[must_use]
pub fn pool(inputs: &Inputs<'_>) -> MachineConfigPoolStatus {
    let target = inputs.around.image_build.target(inputs.pool);
    let digest = Digest::of(&target, inputs.nodes, inputs.reports);
    compose(inputs.pool, &digest, &inputs.around, &inputs.now)
}

/// The pool's new status from numbers that were kept up to date.
#[must_use]
pub fn tallied(
    pool: &MachineConfigPool,
    tally: &Tally,
    around: &Around<'_>,
    now: &Time,
) -> MachineConfigPoolStatus {
    compose(pool, &tally.digest(), around, now)
}

fn compose(
    pool: &MachineConfigPool,
    digest: &Digest,
    around: &Around<'_>,
    now: &Time,
) -> MachineConfigPoolStatus {
    let before = pool.status.clone().unwrap_or_default();
    let (updated, degraded) = match around.counting {
        Counting::Annotations => (digest.counts.updated, digest.counts.degraded),
        Counting::Reports => (digest.counts.report_updated, digest.counts.report_degraded),
    };
    let mut status = MachineConfigPoolStatus {
        observed_generation: pool.metadata.generation.unwrap_or_default(),
        configuration: before.configuration,
        machine_count: number(digest.counts.machines),
        updated_machine_count: number(updated),
        ready_machine_count: number(digest.counts.ready),
        unavailable_machine_count: number(digest.counts.unavailable),
        degraded_machine_count: number(degraded),
        conditions: before.conditions.clone(),
        cert_expirys: certificates(around.controller_config),
        pool_synchronizers_status: Vec::new(),
        os_image_stream: None,
    };
    status.pool_synchronizers_status = vec![pinned_images(&status, digest.counts.pulled)];
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
    let nodes =
        if degraded > 0 { degraded_nodes(digest, around.counting) } else { Finding::no("", "") };
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

fn degraded_nodes(digest: &Digest, counting: Counting) -> Finding {
    let counts =
        |complaint: &&Complaint| counting == Counting::Annotations || !complaint.is_updated;
    let complaints: Vec<&Complaint> = digest.complaints.iter().filter(counts).collect();
    let line = |node: &str, text: &str| format!("Node {node} is reporting: {}", quoted(text));
    let said = complaints.iter().filter_map(|complaint| {
        complaint.reported.as_ref().map(|text| line(&complaint.node, text))
    });
    let annotated = complaints.iter().filter(|complaint| !complaint.reason.is_empty());
    let annotated = annotated.map(|complaint| line(&complaint.node, &complaint.reason));
    let lines: Vec<String> = said.chain(annotated).collect();
    let reason = format!("{} nodes are reporting degraded status on sync", complaints.len());
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
