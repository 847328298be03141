//! Carries out the actions of a daemon on its simulated machine.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use mco_api::annotation::{
    self, DaemonState, DrainRequest, DrainVerb, DriftPolicy, PostConfigAction, Recovery,
};
use mco_core::{
    drift::Drift,
    lifecycle::{
        Action, Cause, CheckResult, Drifted, Health, Occasion, Outcome, Planned, Progress,
        RolledBackConfig, Severity, Stage, UnfinishedUpdate, Update,
    },
    machine::Machine,
};

use super::{Activity, CONFIRM, ConfigRecord, Force, NotReadyCause, is_long};
use crate::{
    Bug, Fault, Flaw, HandshakePoint, Invariant,
    queue::Event,
    world::{Disruption, World, annotate, annotated, remove, set_state},
};

impl World {
    /// Carries out an action; its outcome is observed at the next turn.
    pub(super) fn carry_out(&mut self, node: usize, action: Action) {
        if is_long(&action) {
            return self.begin_apply(node, &action);
        }
        let outcome = match action {
            Action::Connect => {
                self.host(node).has_joined = true;
                Outcome::Done
            }
            Action::Prepare => Outcome::Prepared,
            Action::ClearRebooting => {
                let key = annotation::POST_CONFIG_ACTION.name();
                self.patch(node, |object| annotate(object, key, ""));
                Outcome::Done
            }
            Action::SetInitialAnnotations(annotations) => {
                self.patch(node, |object| {
                    for (key, value) in &annotations {
                        annotate(object, key, value);
                    }
                });
                Outcome::Done
            }
            Action::Adopt => Outcome::NoPool,
            Action::Verify(config, occasion) => self.verify(node, config, occasion),
            Action::Begin(update) => self.begin(node, update),
            Action::Plan(update) => self.plan(node, &update),
            Action::Request(request) => self.request(node, &request),
            Action::Undo => self.undo(node),
            Action::Reboot(_) => return self.reboot(node),
            Action::Close => {
                self.host(node).update = None;
                Outcome::Done
            }
            Action::CheckHealth => {
                let kubelet = self.host(node).kubelet();
                let (cluster, network) = (CheckResult::Passed, CheckResult::Passed);
                let checks = CheckResult::Skipped;
                Outcome::Health(Health { cluster, network, kubelet, checks })
            }
            Action::RecordWait(waited) => {
                self.progress(node, |progress| progress.waited = waited.as_secs());
                Outcome::Done
            }
            Action::Confirm => {
                self.progress(node, |progress| progress.confirmed = true);
                Outcome::Done
            }
            Action::RollBack(why) => self.roll_back(node, why),
            Action::CheckKubelet => Outcome::Kubelet(self.host(node).kubelet()),
            Action::ReportDone(config, _) => self.report_done(node, config.as_str()),
            Action::Fail(cause) => self.fail(node, &cause),
            Action::RemoveForceFile(_) => {
                self.host(node).force = Force::No;
                Outcome::Done
            }
            Action::Abandon => self.abandon(node),
            Action::Force => self.force(node),
            Action::Forget => self.forget(node),
            // The simulated disk does not drift, so that nothing is repaired; long actions are above.
            Action::Wait
            | Action::Repair(..)
            | Action::Apply(_)
            | Action::Continue(_)
            | Action::ApplyAgain => Outcome::Done,
        };
        self.host(node).outcome = outcome;
    }

    /// Forgets an unfinished update, if there is one.
    fn abandon(&mut self, node: usize) -> Outcome {
        if self.host(node).update.take().is_some() {
            return self.force(node);
        }
        self.patch(node, |object| remove(object, annotation::RECOVER.name()));
        Outcome::Done
    }

    /// Has the whole config written again.
    fn force(&mut self, node: usize) -> Outcome {
        self.host(node).force = Force::Requested;
        self.patch(node, |object| remove(object, annotation::RECOVER.name()));
        Outcome::Done
    }

    /// Removes the records of the machine.
    fn forget(&mut self, node: usize) -> Outcome {
        let host = self.host(node);
        host.record = ConfigRecord::Removed;
        (host.rolled_back, host.force) = (None, Force::No);
        if self.fault_occurs(Fault::DaemonCrash) {
            self.crash(node);
            return Outcome::Started;
        }
        let (key, answer) = (annotation::RECOVER.name(), Recovery::Forgotten);
        self.patch(node, |object| annotate(object, key, answer.as_str()));
        Outcome::Done
    }

    fn progress(&mut self, node: usize, change: impl FnOnce(&mut Progress)) {
        if let Some(update) = &mut self.host(node).update {
            change(&mut update.progress);
        }
    }

    /// Compares the machine with a config: a machine that booted another system has drifted.
    fn verify(
        &mut self,
        node: usize,
        config: mco_api::RenderedName,
        occasion: Occasion,
    ) -> Outcome {
        if self.host(node).booted == config.as_str() {
            self.host(node).record = ConfigRecord::Present;
            return Outcome::Verified(config, occasion);
        }
        let drifts = vec![Drift::KernelArguments(vec![config.to_string()])];
        let (machine, policy) = (Arc::new(Machine::blank()), DriftPolicy::Degrade);
        Outcome::Drifted(Drifted { config, occasion, machine, drifts, policy })
    }

    fn begin(&mut self, node: usize, update: Update) -> Outcome {
        let host = self.host(node);
        host.rolled_back.take_if(|back| back.config != update.to.as_str());
        Outcome::Begun(update)
    }

    fn plan(&mut self, node: usize, update: &Update) -> Outcome {
        let (from, to) = (update.from.as_str(), update.to.as_str());
        let now = self.node(node).object.clone();
        let state = annotated(&now, annotation::STATE.name());
        let failed = [DaemonState::Degraded, DaemonState::Unreconcilable];
        if !failed.iter().any(|failed| failed.as_str() == state) {
            self.state(node, &DaemonState::Working, "");
        }
        if self.setup.flaws.get(to) == Some(&Flaw::FailsBeforeDrain) {
            return self.failed(node, to, "the config is invalid", Severity::Degraded);
        }
        match self.disruption(from, to) {
            _ if update.force => Outcome::Planned(Planned { drain: true, drain_limit: None }),
            Disruption::Refused => {
                let why = "a running node cannot apply this change";
                self.failed(node, to, why, Severity::Unreconcilable)
            }
            Disruption::Needs { drain, .. } => {
                let drain = drain && !self.has_bug(Bug::NoDrain);
                Outcome::Planned(Planned { drain, drain_limit: None })
            }
        }
    }

    fn failed(&mut self, node: usize, config: &str, why: &str, severity: Severity) -> Outcome {
        self.host(node).fault = format!("failed to apply {config}: {why}");
        Outcome::Failed(severity)
    }

    fn request(&mut self, node: usize, request: &DrainRequest) -> Outcome {
        if request.verb == DrainVerb::Uncordon && self.has_bug(Bug::NoUncordon) {
            return self.report_done(node, &request.config);
        }
        let text = request.to_string();
        self.patch(node, |object| annotate(object, annotation::DESIRED_DRAIN.name(), &text));
        self.reach(
            match request.verb {
                DrainVerb::Drain => HandshakePoint::DrainRequested,
                DrainVerb::Uncordon => HandshakePoint::UncordonRequested,
            },
            node,
        );
        if self.fault_occurs(Fault::DaemonCrash) {
            self.crash(node);
            return Outcome::Started;
        }
        Outcome::Done
    }

    fn begin_apply(&mut self, node: usize, action: &Action) {
        let slow = self.fault_occurs(Fault::SlowApply);
        let time = self.setup.times.apply * if slow { 10 } else { 1 };
        let host = self.host(node);
        let boot_id = host.boot_id();
        if let Action::Apply(update) = action {
            if update.force {
                host.force = Force::Applying;
            }
            host.update = Some(UnfinishedUpdate {
                from: update.from.to_string(),
                to: update.to.to_string(),
                began_in: boot_id,
                deadline: Some(CONFIRM),
                ..UnfinishedUpdate::default()
            });
        } else if *action == Action::ApplyAgain {
            let again_in = Some(boot_id);
            self.progress(node, |it| *it = Progress { again_in, ..Progress::default() });
        }
        let host = self.host(node);
        host.run += 1;
        host.activity = Activity::Applying;
        let run = host.run;
        self.queue.push(self.now + time, Event::Applied { node, run });
        self.reach(HandshakePoint::Applying, node);
    }

    /// Completes the write of a config.
    pub(crate) fn applied(&mut self, node: usize, run: u64) {
        let host = self.host(node);
        if host.run != run || host.is_rebooting() {
            return;
        }
        let Some(UnfinishedUpdate { from, to, .. }) = host.update.clone() else { return };
        if self.fault_occurs(Fault::DaemonCrash) {
            return self.crash(node);
        }
        self.host(node).outcome = if self.setup.flaws.get(&to) == Some(&Flaw::FailsAfterDrain) {
            self.undo_failed(node, &to, "the config is invalid")
        } else if self.fault_occurs(Fault::FailedApply) {
            self.undo_failed(node, &to, "the disk was full for a moment")
        } else {
            self.finish_apply(node, &from, to)
        };
        self.host(node).activity = Activity::Starting;
        self.turn(node);
    }

    fn undo_failed(&mut self, node: usize, config: &str, why: &str) -> Outcome {
        let host = self.host(node);
        if let Some(update) = host.update.take() {
            host.disk = update.from;
        }
        self.failed(node, config, why, Severity::Degraded)
    }

    fn finish_apply(&mut self, node: usize, from: &str, to: String) -> Outcome {
        let disruption = self.disruption(from, &to);
        let host = self.host(node);
        host.disk.clone_from(&to);
        host.record = ConfigRecord::Present;
        let is_forced = host.force == Force::Applying;
        if is_forced {
            host.force = Force::No;
        }
        let is_rebootless = matches!(disruption, Disruption::Needs { reboot: false, .. });
        if is_rebootless && !is_forced {
            host.booted = to;
            host.update = None;
            host.not_ready.remove(&NotReadyCause::LateFailure);
            self.report_ready(node);
        } else {
            let now = host.boot_id();
            if let Some(update) = &mut host.update {
                update.progress.stage = Stage::Rebooting;
                update.progress.completed_in = Some(now).filter(|now| *now != update.began_in);
            }
        }
        Outcome::Applied
    }

    /// Restores the previous config of an update that the machine has rebooted into.
    fn roll_back(&mut self, node: usize, why: String) -> Outcome {
        let host = self.host(node);
        let boot_id = host.boot_id();
        let Some(update) = &mut host.update else { return Outcome::Done };
        host.disk.clone_from(&update.from);
        update.progress = Progress {
            stage: Stage::Returning,
            back_in: Some(boot_id),
            fault: Some(why.clone()),
            ..Progress::default()
        };
        let config = update.to.clone();
        self.log_node(node, &format!("rolled back {config}: {why}"));
        self.host(node).rolled_back = Some(RolledBackConfig { config, why });
        Outcome::Done
    }

    /// Ends a rollback after its reboot.
    fn undo(&mut self, node: usize) -> Outcome {
        let host = self.host(node);
        if let Some(update) = host.update.take() {
            host.disk = update.from;
        }
        Outcome::Done
    }

    fn report_done(&mut self, node: usize, config: &str) -> Outcome {
        if self.host(node).cordoned_by_controller {
            let name = self.node(node).name.clone();
            self.violate(Invariant::NoCordonLeft, &name);
        }
        self.host(node).rolled_back.take_if(|back| back.config != config);
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
        Outcome::Reported
    }

    fn fail(&mut self, node: usize, cause: &Cause) -> Outcome {
        let text = match cause {
            Cause::Action(_) => self.host(node).fault.clone(),
            Cause::NoDesiredConfig => "the node has no desired config".to_owned(),
            Cause::Drift { config, drift, .. } => format!("differs from {config}: {drift}"),
            Cause::DrainTimeout { verb, limit } => {
                format!(
                    "failed to {} the node within {} minutes",
                    verb.as_str(),
                    limit.as_secs() / 60
                )
            }
            Cause::KubeletUnhealthy(why)
            | Cause::Certificates(why)
            | Cause::UnreadableUpdate(why) => why.clone(),
            Cause::RolledBack(back) => {
                format!("failed to apply {}: rolled back, because {}", back.config, back.why)
            }
            Cause::RebootOverdue { config, .. } => format!("failed to reboot into {config}"),
        };
        let state = if *cause == Cause::Action(Severity::Unreconcilable) {
            DaemonState::Unreconcilable
        } else {
            DaemonState::Degraded
        };
        let now = self.node(node).object.clone();
        if annotated(&now, annotation::REASON.name()) != text {
            self.log_node(node, &text);
        }
        self.state(node, &state, &text);
        Outcome::Done
    }

    pub(super) fn announce_reboot(&mut self, node: usize) {
        let value = PostConfigAction::Rebooting.to_string();
        self.patch(node, |object| {
            annotate(object, annotation::POST_CONFIG_ACTION.name(), &value);
        });
    }

    /// Patches the node; the daemon gets the new object with the response.
    fn patch(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
        self.write(node, change);
        let record = self.node(node);
        let (version, object) = (record.version, record.object.clone());
        let host = self.host(node);
        host.version = version;
        host.seen = object;
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
}
