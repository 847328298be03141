//! How the daemon says what it does: conditions, numbers and what its admin address shows.

use mco_core::{
    plan::{Action, Drain, NodePlan, Step},
    status::machine_config_node::{Drains, Event, Parts},
};
use mco_host::System;
use tracing::info;

use super::Agent;
use crate::{
    cluster::{Cluster, Weight},
    decide::{DiskView, NodeView},
    report::{Said, What},
};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Says that a step of an update was taken.
    pub(super) fn note(&self, event: Event) {
        self.say(What::Event(event));
    }

    /// Says something in the node's MachineConfigNode.
    pub(super) fn say(&self, what: What) {
        let value = |key: &str| self.known.annotations.get(key).cloned().unwrap_or_default();
        self.cluster.note(Said {
            what,
            current: value(mco_api::annotation::CURRENT_CONFIG.name()),
            desired: value(mco_api::annotation::DESIRED_CONFIG.name()),
        });
    }

    /// Shows what was seen of node and disk.
    pub(super) fn show(&self, node: &NodeView, disk: &DiskView) {
        let current = disk.current.as_ref().or(node.current.as_ref());
        let before = self.glass.look();
        let is_news = before.current_config.as_deref() != current.map(AsRef::as_ref)
            || before.desired_config.as_deref() != node.desired.as_ref().map(AsRef::as_ref);
        if is_news {
            configs(node, disk);
        }
        self.glass.note(|state| {
            state.current_config = current.map(ToString::to_string);
            state.desired_config = node.desired.as_ref().map(ToString::to_string);
            state.state = node.state.as_ref().map(ToString::to_string).unwrap_or_default();
            state.reason.clone_from(&node.reason);
            state.boot_id.clone_from(&disk.boot_id);
            // A daemon that was away goes on waiting for what it asked for before.
            state.waiting_for = state.waiting_for.take().filter(|_| self.waiting.is_some());
        });
        if !node.is_failing() {
            let state = node.state.clone().unwrap_or(mco_api::annotation::DaemonState::Done);
            self.metrics.state(&state, "", &self.now());
        }
    }

    /// Says that a config change is about to be made.
    pub(super) async fn announce(&self, plan: &NodePlan) {
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
            self.cluster.tell(Weight::Normal, "InClusterUpgrade", &text).await;
        }
        let parts = [
            (diff.os_image.is_some(), "Upgrading OS"),
            (diff.extensions.is_some(), "Installing extensions"),
            (diff.kernel_type.is_some(), "Changing kernel type"),
            (diff.kernel_arguments.is_some(), "Changing kernel arguments"),
        ];
        let text: Vec<&str> = parts.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
        self.cluster.tell(Weight::Normal, "OSUpdateStarted", &text.join("; ")).await;
    }

    /// Says that a config change was made, and what followed it.
    pub(super) async fn applied(&self, plan: &NodePlan) {
        self.note(Event::Applied(parts(plan)));
        self.staged(plan).await;
        if plan.reboots() {
            return;
        }
        let followed: Vec<_> = plan.steps.iter().filter_map(|step| followed(plan, step)).collect();
        if followed.is_empty() {
            info!("Performing post config change action: None for config {}", plan.diff.to);
            info!("Node has Desired Config {}, skipping reboot", plan.diff.to);
            self.note(Event::NoPostAction);
            let text = "Config changes do not require reboot.";
            self.cluster.tell(Weight::Normal, "SkipReboot", text).await;
        }
        for (reason, event, what) in followed {
            self.note(event);
            let text = format!("Config changes do not require reboot. Service {what}.");
            self.cluster.tell(Weight::Normal, reason, &text).await;
        }
    }

    async fn staged(&self, plan: &NodePlan) {
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
        self.cluster.tell(Weight::Normal, reason, &text).await;
        self.cluster.tell(Weight::Normal, "OSUpdateStaged", "Changes to OS staged").await;
    }
}

/// What people are told of a step that follows a config change.
fn followed(plan: &NodePlan, step: &Step) -> Option<(&'static str, Event, String)> {
    if let Step::RestartService(service) = step {
        let event = Event::ServiceRestarted(service.clone());
        return Some(("ServiceRestart", event, format!("{service} was restarted")));
    }
    let service = if let Step::ReloadService(service) = step {
        service.as_str()
    } else if *step == Step::ReloadSystemd && plan.actions.contains(&Action::DaemonReload) {
        "daemon-reload"
    } else {
        return None;
    };
    let event = Event::ServiceReloaded(service.to_owned());
    Some(("ServiceReload", event, format!("{service} was reloaded")))
}

/// What of a node a plan changes besides files.
pub(super) fn parts(plan: &NodePlan) -> Parts {
    let diff = &plan.diff;
    let system = diff.os_image.is_some() || diff.kernel_type.is_some() || diff.extensions.is_some();
    Parts { system, keys: diff.users.is_some_and(|users| users.keys) }
}

/// Whether a plan moves the pods away first.
pub(super) fn drains(plan: &NodePlan) -> Drains {
    match plan.drain {
        Drain::Needed(_) => Drains::Yes,
        Drain::NotNeeded(_) => Drains::No,
    }
}

fn configs(node: &NodeView, disk: &DiskView) {
    if disk.introduction.is_some() {
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
