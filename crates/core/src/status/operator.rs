//! Conditions of the ClusterOperator.

mod boot_images;
mod controller;
mod evaluation;
mod pools;
#[cfg(test)]
mod tests;
mod upgradeable;

use std::collections::BTreeMap;

use mco_api::{
    MachineConfigPool,
    annotation::{self, JoinTokens},
    condition::{OperatorCondition, PoolCondition, reason},
    label,
};

pub use self::{
    boot_images::blocking_boot_images,
    controller::{ControllerState, Workload, controller_state, silence_limit},
    evaluation::Detected,
};
use super::{Finding, holds};

/// Key of the error in the extension of the ClusterOperator. Compat: the name is the reference's.
const LAST_SYNC_ERROR: &str = "lastSyncError";

/// The state that the operator reports.
#[derive(Clone, Debug)]
pub struct OperatorView<'a> {
    /// Version that the operator deploys.
    pub version: &'a str,
    /// Version last reported as reached; `None` before the first time.
    pub reached: Option<&'a str>,
    /// Image of the operator.
    pub image: &'a str,
    /// Step that failed, with its error.
    pub failure: Option<(&'static str, String)>,
    /// All pools of the cluster, ordered by name.
    pub pools: &'a [&'a MachineConfigPool],
    /// Namespace of the installation.
    pub namespace: &'a str,
    /// State of the controller.
    pub controller: &'a ControllerState,
    /// Deployment of the controller, if the cluster has one.
    pub controller_workload: Option<Workload>,
    /// DaemonSet of the config server, if the cluster has one.
    pub server_workload: Option<Workload>,
    /// Reason for which the controller of this version does not run yet.
    pub rollout: Option<&'a str>,
    /// `CustomResourceDefinitions` of other owners that lack members, as text.
    pub incomplete: &'a [String],
    /// Settings of kubelets and container engines that matter to support.
    pub detected: &'a [Detected],
    /// Reason for which boot images block upgrades.
    pub boot_images: Option<&'a str>,
    /// Authentication of new machines.
    pub join_tokens: &'a JoinTokens,
}

/// The conditions of the ClusterOperator, and the state of the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStatus {
    /// Conditions to set.
    pub conditions: Vec<(OperatorCondition, Finding)>,
    /// Yes if the cluster is at the version now.
    pub reached: Reached,
    /// Summary of each pool, and the last error, under the keys of the reference.
    pub extension: BTreeMap<String, String>,
}

/// The state of the operator's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The cluster is at the version.
    Yes,
    /// Required pools are still updating.
    NotYet,
}

/// Returns the conditions of a ClusterOperator that was just created.
#[must_use]
pub fn initial() -> Vec<(OperatorCondition, Finding)> {
    vec![
        (OperatorCondition::Available, Finding::no("", "")),
        (OperatorCondition::Progressing, Finding::no("", "")),
        (OperatorCondition::Degraded, Finding::no("", "")),
        (OperatorCondition::Upgradeable, Finding::unknown(reason::NO_DATA, "")),
        (OperatorCondition::EvaluationConditionsDetected, Finding::no(reason::AS_EXPECTED, "")),
    ]
}

/// Computes the conditions of the ClusterOperator.
#[must_use]
pub fn operator(view: &OperatorView<'_>) -> OperatorStatus {
    let known = view.reached == Some(view.version);
    let failure = view.failure.clone().or_else(|| pools::failure(view.pools, known));
    let required = || view.pools.iter().filter(|pool| pools::is_required(pool));
    let updated = required().next().is_some() && required().all(|pool| pools::is_updated(pool));
    let skew = view.pools.iter().find_map(|pool| build_skew(pool));
    // Pools that another build rendered, and pools without a controller, show no current state. Those of a
    // first installation have none before the controller runs.
    let is_rolled_out = view.reached.is_none() || view.rollout.is_none();
    let arrived = updated && is_rolled_out && stopped_controller(view).is_none() && skew.is_none();
    let reached =
        if failure.is_none() && (known || arrived) { Reached::Yes } else { Reached::NotYet };

    let at_version = known || reached == Reached::Yes;
    let failed = if failure.is_some() { Failed::Yes } else { Failed::No };
    let extension = extension(view, at_version, failure.as_ref());
    let conditions = vec![
        (OperatorCondition::Available, available(view, known)),
        (OperatorCondition::Progressing, progressing(view, at_version, failed, skew)),
        (OperatorCondition::Degraded, degraded(view, known, failure)),
        (OperatorCondition::Upgradeable, upgradeable::finding(view.pools, view.boot_images)),
        (
            OperatorCondition::EvaluationConditionsDetected,
            evaluation::finding(view.incomplete, view.detected),
        ),
        (OperatorCondition::FirstBootUnauthenticated, first_boot(view.join_tokens)),
    ];
    OperatorStatus { conditions, reached, extension }
}

/// Presence of a failed step or pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    Yes,
    No,
}

/// Returns the operand as the messages of the reference name it.
fn operand(view: &OperatorView<'_>) -> String {
    format!("[{{operator {}}} {{operator-image {}}}]", view.version, view.image)
}

fn available(view: &OperatorView<'_>, known: bool) -> Finding {
    let operand = operand(view);
    let stopped = stopped_controller(view)
        .map(|cause| {
            (reason::CONTROLLER_NOT_RUNNING, format!("the controller is not running: {cause}"))
        })
        .or_else(|| {
            let cause = stopped_server(view)?;
            Some((reason::SERVER_NOT_RUNNING, format!("the config server is not running: {cause}")))
        });
    if let Some((reason, cause)) = stopped {
        return Finding::no(reason, &format!("Cluster not available for {operand}: {cause}"));
    }
    match &view.failure {
        Some((step, why)) if !known => {
            let text = format!("Cluster not available for {operand}: {why}");
            Finding::no(&format!("{step}Failed"), &text)
        }
        Some(_) | None => {
            Finding::yes(reason::AS_EXPECTED, &format!("Cluster has deployed {operand}"))
        }
    }
}

/// Returns the cause if the controller does not run.
fn stopped_controller(view: &OperatorView<'_>) -> Option<String> {
    match view.controller {
        ControllerState::Running => None,
        // Without a Lease only the Deployment tells of the controller.
        ControllerState::NoLease => {
            let workload = view.controller_workload.filter(|workload| workload.is_down())?;
            Some(workload.cause("Deployment", view.namespace, "machine-config-controller"))
        }
        ControllerState::Silent { holder, limit } => {
            let lease = format!("Lease {}/{}", view.namespace, label::CONTROLLER_CONFIG);
            let seconds = limit.as_secs();
            Some(if holder.is_empty() {
                format!("no process has held the {lease} for {seconds}s")
            } else {
                format!("{holder} has not renewed the {lease} for {seconds}s")
            })
        }
    }
}

fn stopped_server(view: &OperatorView<'_>) -> Option<String> {
    let workload = view.server_workload.filter(|workload| workload.is_down())?;
    Some(workload.cause("DaemonSet", view.namespace, "machine-config-server"))
}

fn progressing(
    view: &OperatorView<'_>,
    at_version: bool,
    failed: Failed,
    skew: Option<&str>,
) -> Finding {
    let version = view.version;
    if let (Failed::No, Some(skew)) = (failed, skew) {
        let text = format!("Working towards {version}: waiting for the controller: {skew}");
        return Finding::yes(reason::BUILD_SKEW, &text);
    }
    let text = match (at_version, failed) {
        (true, Failed::No) => format!("Cluster version is {version}"),
        (true, Failed::Yes) => format!("Error while reconciling {version}"),
        (false, Failed::No) => format!("Working towards {version}"),
        (false, Failed::Yes) => format!("Unable to apply {version}"),
    };
    match pools::rollouts(view.pools) {
        Some((reason, pools)) => Finding::yes(reason, &format!("{text}: {pools}")),
        None if at_version => Finding::no("", &text),
        None => match view.rollout.filter(|_| failed == Failed::No) {
            Some(rollout) => Finding::yes("", &format!("{text}: {rollout}")),
            None => Finding::yes("", &text),
        },
    }
}

fn degraded(
    view: &OperatorView<'_>,
    known: bool,
    failure: Option<(&'static str, String)>,
) -> Finding {
    let Some((step, why)) = failure else { return Finding::no("", "") };
    let text = if known {
        format!("Failed to resync {} because: {why}", view.version)
    } else {
        format!("Unable to apply {}: {why}", view.version)
    };
    Finding::yes(&format!("{step}Failed"), &text)
}

/// Returns the extension of the ClusterOperator.
fn extension(
    view: &OperatorView<'_>,
    at_version: bool,
    failure: Option<&(&'static str, String)>,
) -> BTreeMap<String, String> {
    let summaries =
        view.pools.iter().map(|pool| (pools::name(pool).to_owned(), pools::summary(pool)));
    let waits = || if at_version { None } else { pools::waiting(view.pools) };
    let error = failure.map(|(_, why)| why.clone()).or_else(waits);
    summaries.chain(error.map(|why| (LAST_SYNC_ERROR.to_owned(), why))).collect()
}

/// Returns the reason for which the controller does not render the pool: its inputs are of another
/// build.
fn build_skew(pool: &MachineConfigPool) -> Option<&str> {
    let kind = PoolCondition::RenderDegraded;
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|found| found.kind == kind.as_str())?;
    (found.reason == reason::BUILD_SKEW).then_some(found.message.as_str())
}

/// Reports that new machines are not authenticated.
fn first_boot(join_tokens: &JoinTokens) -> Finding {
    if join_tokens.are_required() {
        return Finding::no(reason::AS_EXPECTED, "New machines need a join token");
    }
    let text = format!(
        "Every host that reaches the machine-config-server can read the configs of new machines, \
         with the secrets in them. To require join tokens, run: kubectl annotate --overwrite \
         controllerconfig {} {}={}",
        label::CONTROLLER_CONFIG,
        annotation::JOIN_TOKENS.name(),
        JoinTokens::Required,
    );
    Finding::yes(reason::JOIN_TOKENS_OFF, &text)
}

fn is(pool: &MachineConfigPool, kind: &PoolCondition) -> bool {
    pool.status.as_ref().is_some_and(|status| holds(&status.conditions, kind))
}
