//! Reports of the daemon: MachineConfigNode conditions, events, metrics and the state at its admin
//! address.

use mco_core::{
    lifecycle::{DiskView, NodeAnnotations, Phase},
    plan::{Action, Drain, NodePlan, Step},
    status::update_conditions::{ChangedParts, DrainRequired, UpdateEvent},
};
use mco_host::System;
use tracing::info;

use super::Agent;
use crate::{
    cluster::{Cluster, EventType},
    machine_config_node::{StatusChange, StatusUpdate},
    state::Waiting,
};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Reports an event of an update in the node's MachineConfigNode.
    pub(super) fn report_event(&self, event: UpdateEvent) {
        self.report_status(StatusChange::Event(event));
    }

    /// Queues a status update of the node's MachineConfigNode.
    pub(super) fn report_status(&self, change: StatusChange) {
        let value = |key: &str| self.node_state.annotations.get(key).cloned().unwrap_or_default();
        self.cluster.report_status(StatusUpdate {
            change,
            current: value(mco_api::annotation::CURRENT_CONFIG.name()),
            desired: value(mco_api::annotation::DESIRED_CONFIG.name()),
        });
    }

    /// Publishes the observed node and disk in the shared state and metrics.
    pub(super) fn publish_state(&self, node: &NodeAnnotations) {
        let disk = &self.disk;
        let current = disk.current.as_ref().or(node.current.as_ref());
        let before = self.glass.get();
        let is_new = before.current_config.as_deref() != current.map(AsRef::as_ref)
            || before.desired_config.as_deref() != node.desired.as_ref().map(AsRef::as_ref);
        if is_new {
            configs(node, disk);
        }
        let state = node.state.as_ref().map(ToString::to_string).unwrap_or_default();
        self.publish_transition(&state, &node.reason);
        self.glass.update(|state| {
            state.current_config = current.map(ToString::to_string);
            state.desired_config = node.desired.as_ref().map(ToString::to_string);
            state.boot_id.clone_from(&disk.boot_id);
        });
        if !node.is_failing() {
            let state = node.state.clone().unwrap_or(mco_api::annotation::DaemonState::Done);
            self.metrics.state(&state, "", &self.now());
        }
    }

    /// Publishes the phase of the node and the condition that it waits for.
    pub(super) fn publish_phase(&mut self, before: Phase) {
        self.phase_before = before;
        let waiting = self.state.waiting().map(|(what, _)| what);
        let now = self.now();
        let phase = self.state.phase;
        self.glass.update(|state| {
            phase.as_str().clone_into(&mut state.phase);
            state.waiting_for = waiting.map(|what| match state.waiting_for.take() {
                Some(known) if known.what == what => known,
                Some(_) | None => Waiting { what, since: now },
            });
        });
    }

    /// Publishes the state of the node and its reason, and logs a change of them.
    pub(super) fn publish_transition(&self, state: &str, reason: &str) {
        let before = self.glass.get();
        for line in transitions((&before.state, &before.reason), (state, reason)) {
            info!("{line}");
        }
        self.glass.update(|glass| {
            state.clone_into(&mut glass.state);
            reason.clone_into(&mut glass.reason);
        });
    }

    /// Publishes events about an OS update that is about to start.
    pub(super) async fn publish_os_update_started(&self, plan: &NodePlan) {
        let diff = &plan.diff;
        if diff.os_image.is_none()
            && diff.kernel_type.is_none()
            && diff.extensions.is_none()
            && diff.kernel_arguments.is_none()
        {
            return;
        }
        if let Some(image) = &diff.os_image {
            let text = format!("Updating from oscontainer {}", image.to);
            self.cluster.publish_event(EventType::Normal, "InClusterUpgrade", &text).await;
        }
        let parts = [
            (diff.os_image.is_some(), "Upgrading OS"),
            (diff.extensions.is_some(), "Installing extensions"),
            (diff.kernel_type.is_some(), "Changing kernel type"),
            (diff.kernel_arguments.is_some(), "Changing kernel arguments"),
        ];
        let text: Vec<&str> = parts.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
        self.cluster.publish_event(EventType::Normal, "OSUpdateStarted", &text.join("; ")).await;
    }

    /// Reports that a plan was applied, and the service actions that followed.
    pub(super) async fn report_applied(&self, plan: &NodePlan) {
        self.report_event(UpdateEvent::Applied(parts(plan)));
        self.publish_staged(plan).await;
        if plan.reboots() {
            return;
        }
        let service_action: Vec<_> =
            plan.steps.iter().filter_map(|step| service_action(plan, step)).collect();
        if service_action.is_empty() {
            info!("Performing post config change action: None for config {}", plan.diff.to);
            info!("Node has Desired Config {}, skipping reboot", plan.diff.to);
            self.report_event(UpdateEvent::NoPostAction);
            let text = "Config changes do not require reboot.";
            self.cluster.publish_event(EventType::Normal, "SkipReboot", text).await;
        }
        for (reason, event, what) in service_action {
            self.report_event(event);
            let text = format!("Config changes do not require reboot. Service {what}.");
            self.cluster.publish_event(EventType::Normal, reason, &text).await;
        }
    }

    async fn publish_staged(&self, plan: &NodePlan) {
        if !plan.steps.iter().any(Step::stages) {
            return;
        }
        self.metrics.pivot(false);
        let (from, to) = (&plan.diff.from, &plan.diff.to);
        let (reason, text) = match &plan.diff.os_image {
            Some(image) => (
                "OSUpgradeApplied",
                format!(
                    "OS upgrade applied; new MachineConfig ({to}) has new OS image ({})",
                    image.to
                ),
            ),
            None => (
                "OSUpgradeSkipped",
                format!(
                    "OS upgrade skipped; new MachineConfig ({to}) has same OS image as old \
                     MachineConfig ({from})"
                ),
            ),
        };
        self.cluster.publish_event(EventType::Normal, reason, &text).await;
        self.cluster
            .publish_event(EventType::Normal, "OSUpdateStaged", "Changes to OS staged")
            .await;
    }
}

/// Returns the event reason, the MachineConfigNode event and the text for a service action.
fn service_action(plan: &NodePlan, step: &Step) -> Option<(&'static str, UpdateEvent, String)> {
    if let Step::RestartService(service) = step {
        let event = UpdateEvent::ServiceRestarted(service.clone());
        return Some(("ServiceRestart", event, format!("{service} was restarted")));
    }
    let service = if let Step::ReloadService(service) = step {
        service.as_str()
    } else if *step == Step::ReloadSystemd && plan.actions.contains(&Action::DaemonReload) {
        "daemon-reload"
    } else {
        return None;
    };
    let event = UpdateEvent::ServiceReloaded(service.to_owned());
    Some(("ServiceReload", event, format!("{service} was reloaded")))
}

/// Returns the parts of a node that a plan changes besides files.
pub(super) fn parts(plan: &NodePlan) -> ChangedParts {
    let diff = &plan.diff;
    let system = diff.os_image.is_some() || diff.kernel_type.is_some() || diff.extensions.is_some();
    ChangedParts { system, keys: diff.users.is_some_and(|users| users.keys) }
}

/// Converts the drain decision of a plan.
pub(super) fn drains(plan: &NodePlan) -> DrainRequired {
    match plan.drain {
        Drain::Needed(_) => DrainRequired::Yes,
        Drain::NotNeeded(_) => DrainRequired::No,
    }
}

/// Returns the log lines for a change of state and reason; none for a daemon that has just started.
///
/// Compat: `pkg/daemon/daemon.go`, `syncNode`.
fn transitions(before: (&str, &str), after: (&str, &str)) -> Vec<String> {
    let (old, new) = (before.0, after.0);
    let mut lines = Vec::new();
    if old.is_empty() {
        return lines;
    }
    if old != new {
        lines.push(format!("Transitioned from state: {old} -> {new}"));
    }
    if before.1 != after.1 {
        let (old, new) = (before.1, after.1);
        lines.push(format!("Transitioned from degraded/unreconcilable reason {old} -> {new}"));
    }
    lines
}

/// Compat: the parts that differ, in the reference's words (pkg/daemon/update.go).
pub(super) fn flags(plan: &NodePlan) -> String {
    let diff = &plan.diff;
    format!(
        "&{{osUpdate:{} kargs:{} fips:{} passwd:{} files:{} units:{} kernelType:{} extensions:{}}}",
        diff.os_image.is_some(),
        diff.kernel_arguments.is_some(),
        diff.fips.is_some(),
        diff.users.is_some(),
        !diff.files.is_empty(),
        !diff.units.is_empty(),
        diff.kernel_type.is_some(),
        diff.extensions.is_some(),
    )
}

fn configs(node: &NodeAnnotations, disk: &DiskView) {
    if disk.initial_annotations.is_some() {
        info!("In bootstrap mode");
    }
    if let (Some(disk), Some(known)) = (&disk.current, &node.current)
        && disk != known
    {
        info!(
            "Disk currentConfig {:?} overrides node's currentConfig annotation {:?}",
            disk.as_str(),
            known.as_str()
        );
    }
    match (disk.current.as_ref().or(node.current.as_ref()), &node.desired) {
        (Some(current), Some(desired)) if current == desired => {
            info!("Current+desired config: {current}");
        }
        (Some(current), Some(desired)) => {
            info!("Current config: {current}");
            info!("Desired config: {desired}");
        }
        (None, _) | (_, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::transitions;

    // covers: C128
    #[test]
    fn a_change_of_state_is_logged_in_the_words_of_the_reference() {
        assert_eq!(transitions(("", ""), ("Done", "")), [""; 0], "the daemon has just started");
        assert_eq!(transitions(("Done", ""), ("Done", "")), [""; 0]);
        assert_eq!(
            transitions(("Done", ""), ("Working", "")),
            ["Transitioned from state: Done -> Working"]
        );
        assert_eq!(
            transitions(("Degraded", "content mismatch"), ("Done", "")),
            [
                "Transitioned from state: Degraded -> Done",
                "Transitioned from degraded/unreconcilable reason content mismatch -> ",
            ]
        );
    }
}
