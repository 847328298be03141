//! A simulated machine and its daemon, step by step.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use mco_api::annotation::{self, DaemonState};

use crate::{
    Bug, Fault, Flaw, HandshakePoint, Invariant,
    queue::{Event, WatchEvent},
    world::{Disruption, World, annotate, annotated, set_ready, set_state},
};

/// A machine and its daemon.
#[derive(Debug)]
pub(crate) struct Host {
    power: Power,
    /// Config on disk.
    disk: String,
    /// Config that was booted, or applied since.
    booted: String,
    /// Number of the daemon's run: events of an earlier run are ignored.
    run: u64,
    step: Step,
    seen: Arc<Node>,
    version: u64,
    /// Causes that keep the node from being ready.
    not_ready: BTreeSet<NotReadyCause>,
    /// True if the controller cordoned the node.
    pub(crate) cordoned_by_controller: bool,
    /// True if the user cordoned the node.
    pub(crate) cordoned_by_user: bool,
}

/// A cause that keeps a node from being ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NotReadyCause {
    /// An external problem.
    External,
    /// A config that fails some time after it was applied.
    LateFailure,
    /// A config that fails at boot.
    BootFailure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    Rebooting,
    Lost,
}

/// The current step of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The daemon is idle, or compares the configs.
    Idle,
    /// The daemon waits for the drain that it requested.
    Drain(String),
    /// The daemon writes a config.
    Apply(String),
    /// The daemon waits for the uncordon that it requested.
    Uncordon(String),
    /// The daemon failed to apply this config and will retry.
    Failed(String),
}

impl Host {
    pub(crate) fn of(node: &Node) -> Self {
        let current = annotated(node, annotation::CURRENT_CONFIG.name()).to_owned();
        let view = mco_core::rollout::NodeView::of(node);
        Self {
            power: Power::On,
            disk: current.clone(),
            booted: current,
            run: 0,
            step: Step::Idle,
            seen: Arc::new(node.clone()),
            version: 1,
            not_ready: BTreeSet::new(),
            cordoned_by_controller: view.cordon == mco_core::rollout::Cordon::Controller,
            cordoned_by_user: view.cordon == mco_core::rollout::Cordon::User,
        }
    }

    pub(crate) fn is_rebooting(&self) -> bool {
        self.power != Power::On
    }

    /// Returns true if the node is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.power == Power::On && self.not_ready.is_empty()
    }
}

impl World {
    pub(crate) fn daemon_receives(&mut self, event: &WatchEvent) {
        let host = self.host(event.node);
        if event.version > host.version {
            host.version = event.version;
            host.seen = event.object.clone();
            self.reconcile(event.node);
        }
    }

    pub(crate) fn daemon_wakes(&mut self, node: usize, run: u64) {
        if self.host(node).run == run {
            if matches!(self.host(node).step, Step::Failed(_)) {
                self.host(node).step = Step::Idle;
            }
            self.reconcile(node);
        }
    }

    /// Continues with the current step.
    fn reconcile(&mut self, node: usize) {
        let host = self.host(node);
        if host.power != Power::On {
            return;
        }
        let desired = annotated(&host.seen, annotation::DESIRED_CONFIG.name()).to_owned();
        let applied = annotated(&host.seen, annotation::LAST_APPLIED_DRAIN.name()).to_owned();
        if desired.is_empty() {
            return;
        }
        match host.step.clone() {
            Step::Apply(_) => {}
            Step::Drain(wanted) if wanted == desired => {
                if applied == format!("drain-{wanted}") {
                    self.begin_apply(node, wanted);
                }
            }
            Step::Uncordon(wanted) if wanted == desired => {
                if applied == format!("uncordon-{wanted}") {
                    self.done(node, &wanted);
                }
            }
            Step::Failed(wanted) if wanted == desired => {}
            Step::Idle | Step::Drain(_) | Step::Uncordon(_) | Step::Failed(_) => {
                self.host(node).step = Step::Idle;
                self.compare(node, &desired);
            }
        }
    }

    /// Compares the current with the desired config.
    fn compare(&mut self, node: usize, desired: &str) {
        let host = self.host(node);
        let flawed = host.not_ready.contains(&NotReadyCause::BootFailure);
        if host.disk == desired && host.booted == desired {
            // The daemon does not finish if the node does not become ready with this config.
            if !flawed {
                self.finish_update(node, desired);
            }
            return;
        }
        let from = host.booted.clone();
        let cordoned = host.cordoned_by_controller;
        self.state(node, &DaemonState::Working, "");
        if self.setup.flaws.get(desired) == Some(&Flaw::FailsBeforeDrain) {
            return self.fail(node, desired, "the config is invalid");
        }
        let drain = match self.disruption(&from, desired) {
            Disruption::Refused => return self.refuse(node, desired),
            Disruption::Needs { drain, .. } => drain,
        };
        let seen = self.host(node).seen.clone();
        let answered = annotated(&seen, annotation::LAST_APPLIED_DRAIN.name());
        let drained = cordoned && answered == format!("drain-{desired}");
        if drain && !drained && !self.has_bug(Bug::NoDrain) {
            self.host(node).step = Step::Drain(desired.to_owned());
            self.request_drain(node, &format!("drain-{desired}"));
        } else {
            self.begin_apply(node, desired.to_owned());
        }
    }

    fn begin_apply(&mut self, node: usize, config: String) {
        let slow = self.fault_occurs(Fault::SlowApply);
        let time = self.setup.times.apply * if slow { 10 } else { 1 };
        let host = self.host(node);
        host.step = Step::Apply(config);
        let run = host.run;
        self.queue.push(self.now + time, Event::Applied { node, run });
        self.reach(HandshakePoint::Applying, node);
    }

    /// Completes the write of a config.
    pub(crate) fn applied(&mut self, node: usize, run: u64) {
        let host = self.host(node);
        let Step::Apply(config) = host.step.clone() else { return };
        if host.run != run || host.power != Power::On {
            return;
        }
        if self.fault_occurs(Fault::DaemonCrash) {
            return self.crash(node);
        }
        if self.setup.flaws.get(&config) == Some(&Flaw::FailsAfterDrain) {
            return self.fail(node, &config, "the config is invalid");
        }
        if self.fault_occurs(Fault::FailedApply) {
            return self.fail(node, &config, "the disk was full for a moment");
        }
        let from = self.host(node).booted.clone();
        let disruption = self.disruption(&from, &config);
        let host = self.host(node);
        host.step = Step::Idle;
        host.disk.clone_from(&config);
        if let Disruption::Needs { reboot: false, .. } = disruption {
            host.booted = config;
            self.reconcile(node);
        } else {
            self.reboot(node, disruption);
        }
    }

    fn reboot(&mut self, node: usize, disruption: Disruption) {
        let drain_due = disruption != Disruption::Needs { drain: false, reboot: true };
        if drain_due && !(self.is_cordoned(node) && self.pods.to_evict(node).is_empty()) {
            let name = self.node(node).name.clone();
            self.violate(Invariant::DrainBeforeReboot, &name);
        }
        self.state(node, &DaemonState::Rebooting, "");
        self.log_node(node, "rebooting");
        self.reboots += 1;
        let lost = self.fault_occurs(Fault::LostMachine);
        let host = self.host(node);
        host.run += 1;
        host.power = if lost { Power::Lost } else { Power::Rebooting };
        self.count_unavailable(node);
        self.write(node, |object| set_ready(object, "Unknown"));
        self.reach(HandshakePoint::Rebooting, node);
        if !lost {
            let time = self.setup.times.reboot;
            self.queue.push(self.now + time, Event::Boot(node));
        }
    }

    pub(crate) fn boot(&mut self, node: usize) {
        let old = self.fault_occurs(Fault::OldBoot);
        let late = self.fault_occurs(Fault::LateReady);
        let host = self.host(node);
        host.power = Power::On;
        if !old {
            host.booted = host.disk.clone();
        }
        host.not_ready.retain(|cause| *cause == NotReadyCause::External);
        let (booted, run) = (host.booted.clone(), host.run);
        if self.setup.flaws.get(&booted) == Some(&Flaw::NotReadyAtBoot) {
            self.host(node).not_ready.insert(NotReadyCause::BootFailure);
        }
        if late {
            self.host(node).not_ready.insert(NotReadyCause::External);
            self.queue.push(self.now + 180_000, Event::Recovers(node));
        }
        self.count_unavailable(node);
        self.log_node(node, &format!("booted {booted}"));
        self.report_ready(node);
        self.queue.push(self.now + 1_000, Event::Daemon { node, run });
    }

    /// Has the node uncordoned and reports the config as done, unless it was reported before.
    fn finish_update(&mut self, node: usize, config: &str) {
        let seen = self.host(node).seen.clone();
        let current = annotated(&seen, annotation::CURRENT_CONFIG.name());
        let state = annotated(&seen, annotation::STATE.name());
        if current == config && state == DaemonState::Done.as_str() {
            return;
        }
        let request = format!("uncordon-{config}");
        if self.has_bug(Bug::NoUncordon) {
            return self.done(node, config);
        }
        self.host(node).step = Step::Uncordon(config.to_owned());
        self.request_drain(node, &request);
        let host = self.host(node);
        let answered = annotated(&host.seen, annotation::LAST_APPLIED_DRAIN.name()) == request;
        if answered && host.step == Step::Uncordon(config.to_owned()) {
            self.done(node, config);
        }
    }

    fn done(&mut self, node: usize, config: &str) {
        self.host(node).step = Step::Idle;
        let current =
            annotated(&self.host(node).seen, annotation::CURRENT_CONFIG.name()).to_owned();
        let state = annotated(&self.host(node).seen, annotation::STATE.name()).to_owned();
        if current == config && state == DaemonState::Done.as_str() {
            return;
        }
        if self.host(node).cordoned_by_controller {
            let name = self.node(node).name.clone();
            self.violate(Invariant::NoCordonLeft, &name);
        }
        self.log_node(node, &format!("updated to {config}"));
        self.patch(node, |object| {
            annotate(object, annotation::CURRENT_CONFIG.name(), config);
            annotate(object, annotation::REASON.name(), "");
            set_state(object, &DaemonState::Done);
        });
        self.reach(HandshakePoint::Done, node);
        if self.setup.flaws.get(config) == Some(&Flaw::NotReadyLater) {
            self.queue.push(self.now + 60_000, Event::LateFailure(node));
        }
    }

    fn fail(&mut self, node: usize, config: &str, why: &str) {
        let host = self.host(node);
        host.step = Step::Failed(config.to_owned());
        let run = host.run;
        self.log_node(node, &format!("failed to apply {config}: {why}"));
        self.state(node, &DaemonState::Degraded, &format!("failed to apply {config}: {why}"));
        let pause = self.setup.times.retry;
        self.queue.push(self.now + pause, Event::Daemon { node, run });
    }

    /// Reports a change that a running node cannot apply; only another config helps.
    fn refuse(&mut self, node: usize, config: &str) {
        self.host(node).step = Step::Failed(config.to_owned());
        let why = format!("failed to apply {config}: a running node cannot apply this change");
        self.log_node(node, &why);
        self.state(node, &DaemonState::Unreconcilable, &why);
    }

    pub(crate) fn crash(&mut self, node: usize) {
        let host = self.host(node);
        host.run += 1;
        host.step = Step::Idle;
        let run = host.run;
        self.log_node(node, "daemon crashed and restarts");
        self.queue.push(self.now + 5_000, Event::Daemon { node, run });
    }

    fn request_drain(&mut self, node: usize, request: &str) {
        let asked = annotated(&self.host(node).seen, annotation::DESIRED_DRAIN.name()).to_owned();
        if asked != request {
            self.patch(node, |object| annotate(object, annotation::DESIRED_DRAIN.name(), request));
            let is_drain = request.starts_with("drain-");
            let point = if is_drain {
                HandshakePoint::DrainRequested
            } else {
                HandshakePoint::UncordonRequested
            };
            self.reach(point, node);
            if self.fault_occurs(Fault::DaemonCrash) {
                self.crash(node);
            }
        }
    }

    /// Patches the node; the daemon gets the new object with the response.
    fn patch(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
        self.write(node, change);
        let record = self.node(node);
        let (version, object) = (record.version, record.object.clone());
        let host = self.host(node);
        host.version = version;
        let before = std::mem::replace(&mut host.seen, object);
        let desired = |node: &Node| annotated(node, annotation::DESIRED_CONFIG.name()).to_owned();
        if desired(&before) != desired(&host.seen) {
            let run = host.run;
            self.queue.push(self.now, Event::Daemon { node, run });
        }
    }

    fn state(&mut self, node: usize, state: &DaemonState, reason: &str) {
        let now = self.node(node).object.clone();
        let same = annotated(&now, annotation::STATE.name()) == state.as_str()
            && annotated(&now, annotation::REASON.name()) == reason;
        if !same {
            self.patch(node, |object| {
                set_state(object, state);
                annotate(object, annotation::REASON.name(), reason);
            });
        }
    }

    fn report_ready(&mut self, node: usize) {
        let status = if self.host(node).is_ready() { "True" } else { "False" };
        self.write(node, |object| set_ready(object, status));
    }

    /// Makes a node unready for some minutes, by an external problem.
    pub(crate) fn blip(&mut self, node: usize) {
        if self.hosts.get(node).is_some_and(Host::is_ready) {
            self.host(node).not_ready.insert(NotReadyCause::External);
            self.log_node(node, "not ready, because of an external problem");
            self.report_ready(node);
            self.queue.push(self.now + 180_000, Event::Recovers(node));
        }
    }

    pub(crate) fn recovers(&mut self, node: usize) {
        self.host(node).not_ready.remove(&NotReadyCause::External);
        if self.host(node).power == Power::On {
            self.report_ready(node);
        }
    }

    pub(crate) fn late_failure(&mut self, node: usize) {
        let booted = self.host(node).booted.clone();
        if self.setup.flaws.get(&booted) == Some(&Flaw::NotReadyLater) {
            self.host(node).not_ready.insert(NotReadyCause::LateFailure);
            self.log_node(node, &format!("not ready any more, because of {booted}"));
            self.report_ready(node);
        }
    }

    /// Restarts a lost machine.
    pub(crate) fn restart_lost(&mut self, node: usize) {
        if self.host(node).power == Power::Lost {
            self.log_node(node, "restarted by the administrator");
            self.host(node).power = Power::Rebooting;
            let time = self.setup.times.reboot;
            self.queue.push(self.now + time, Event::Boot(node));
        }
    }
}
