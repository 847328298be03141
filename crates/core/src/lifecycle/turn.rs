//! One turn of the state machine: takes in the outcome of the last action and decides the next.

use std::{collections::BTreeMap, time::Duration};

use mco_api::{
    RenderedName,
    annotation::{self, DaemonState, DrainRequest, DrainVerb, Recovery},
};

use super::{
    Action, Cause, CheckResult, Completion, DRIFT_REASON, Decision, DriftDetected, Drifted,
    KUBELET_INTERVAL, Limits, MAX_BACKOFF, NodeAnnotations, Observation, Occasion, Outcome,
    POOL_INTERVAL, Phase, RepairDecision, State, VERIFY_INTERVAL, Wait, Wake, heal,
    observe::drain_request, state::PreparedUpdate,
};

/// A state, and everything that decides about the next one.
pub(super) struct Turn<'a> {
    pub(super) state: State,
    pub(super) seen: &'a Observation,
    pub(super) limits: &'a Limits,
    pub(super) now: Duration,
}

impl Turn<'_> {
    pub(super) fn decide(mut self) -> Decision {
        let state = &mut self.state;
        match &self.seen.outcome {
            Outcome::Failed(severity) => return self.fail(Cause::Action(*severity)),
            Outcome::Drifted(found) => return self.drifted(found),
            Outcome::NoPool => return self.wait(Phase::Joining, POOL_INTERVAL),
            Outcome::PivotDue(config) => return self.reboot(config.to_string()),
            Outcome::Started | Outcome::Done => {}
            Outcome::Woken(wake) => self.wake(*wake),
            Outcome::Prepared => state.is_prepared = true,
            Outcome::Verified(config, occasion) => self.verified(config, *occasion),
            Outcome::Repaired => state.is_repaired = true,
            Outcome::Begun(update) => state.prepared = Some(PreparedUpdate::of(update)),
            Outcome::Planned(planned) => {
                state.prepared.iter_mut().for_each(|it| it.planned = Some(*planned));
            }
            Outcome::Applied => state.prepared = None,
            Outcome::RebootStarted(config) => state.reboot = Some((config.clone(), self.now)),
            Outcome::Health(health) => state.health = Some(health.clone()),
            Outcome::Kubelet(answer) => state.kubelet = Some(answer.clone()),
            Outcome::Reported => state.has_completed = true,
        }
        self.proceed()
    }

    /// Decides the next action after the outcome of the last.
    fn proceed(self) -> Decision {
        // The machine is going down: everything else waits for the next boot.
        if let Some((config, _)) = self.state.reboot.clone() {
            return self.reboot(config);
        }
        let recover = self.seen.node.as_ref().and_then(|node| node.recover.as_ref());
        match recover {
            Some(Recovery::Abandon) => return self.act(Phase::RollingBack, Action::Abandon),
            Some(Recovery::Force) => {
                let phase = self.state.phase;
                return self.act(phase, Action::Force);
            }
            Some(Recovery::Forgotten) => {
                let phase = self.state.phase;
                return self.wait(phase, VERIFY_INTERVAL);
            }
            // An update that has begun is completed first: it may be half of a machine.
            Some(Recovery::Forget) if !self.has_begun() => return self.forget(),
            Some(Recovery::Forget | Recovery::Other(_)) | None => {}
        }
        match (&self.seen.disk.unreadable, &self.seen.disk.update) {
            (Some(why), _) if self.seen.node.is_some() => {
                self.fail(Cause::UnreadableUpdate(why.clone()))
            }
            (Some(_), _) => self.act(Phase::Starting, Action::Connect),
            (None, Some(update)) => self.unfinished(update),
            (None, None) => self.settled(),
        }
    }

    /// Withdraws the request of a drain, without waiting for the answer, and forgets the machine: the
    /// drain controller may be gone.
    fn forget(mut self) -> Decision {
        let (node, phase) = (self.seen.node.as_ref(), self.state.phase);
        // If it is managed again, its disk has no record any longer.
        (self.state.verified, self.state.prepared, self.state.request) = (None, None, None);
        // An update may be complete and not reported: without its record, only the annotation has it.
        if let (Some(current), Some(node)) = (&self.seen.disk.current, node)
            && node.current.as_ref().is_some_and(|known| known != current)
        {
            let mut annotations = BTreeMap::new();
            annotation::CURRENT_CONFIG.set(&mut annotations, current);
            return self.act(phase, Action::SetInitialAnnotations(annotations));
        }
        let requested = node.and_then(|node| node.requested_drain.as_ref());
        let Some(drain) = requested.filter(|request| request.verb == DrainVerb::Drain) else {
            return self.act(phase, Action::Forget);
        };
        let current = self.seen.disk.current.as_ref();
        let request = match current.or_else(|| node.and_then(|node| node.current.as_ref())) {
            Some(config) => drain_request(DrainVerb::Uncordon, config),
            None => DrainRequest { verb: DrainVerb::Uncordon, ..drain.clone() },
        };
        self.act(phase, Action::Request(request))
    }

    /// Returns true if the disk has the record of an update that is not complete.
    fn has_begun(&self) -> bool {
        self.seen.disk.update.is_some() || self.seen.disk.unreadable.is_some()
    }

    /// Remembers that the disk has a config.
    fn verified(&mut self, config: &RenderedName, occasion: Occasion) {
        self.state.is_repaired = false;
        match occasion {
            Occasion::Complete => self.state.verified = Some(config.clone()),
            Occasion::Preflight => {
                self.state.prepared.iter_mut().for_each(|it| it.is_preflighted = true);
            }
        }
    }

    /// Forgets what may have changed during a wait.
    fn wake(&mut self, wake: Wake) {
        self.state.kubelet = None;
        self.state.health = None;
        let is_over =
            wake == Wake::Deadline && matches!(self.state.phase, Phase::Done | Phase::Failed);
        if is_over || wake == Wake::Disk {
            self.state.verified = None;
        }
        if wake == Wake::Disk || self.state.phase == Phase::Failed {
            self.state.prepared = None;
        }
    }

    /// Decides about a node without an unfinished update.
    fn settled(self) -> Decision {
        let Some(node) = &self.seen.node else { return self.act(Phase::Starting, Action::Connect) };
        if !self.state.is_prepared {
            return self.act(Phase::Starting, Action::Prepare);
        }
        if node.rebooting {
            return self.act(Phase::Starting, Action::ClearRebooting);
        }
        let Some(known) = &node.current else { return self.join() };
        let current = self.seen.disk.current.as_ref().unwrap_or(known);
        let Some(desired) = &node.desired else { return self.fail(Cause::NoDesiredConfig) };
        let again = self.seen.disk.force && !node.is_done();
        if current == desired && !again {
            return self.complete(node, current);
        }
        self.update(node, current, desired)
    }

    fn join(self) -> Decision {
        let disk = &self.seen.disk;
        if let Some(initial_annotations) = &disk.initial_annotations {
            let annotations = initial_annotations.clone();
            return self.act(Phase::Joining, Action::SetInitialAnnotations(annotations));
        }
        let Some(current) = &disk.current else { return self.act(Phase::Joining, Action::Adopt) };
        let mut annotations = BTreeMap::new();
        annotation::CURRENT_CONFIG.set(&mut annotations, current);
        annotation::DESIRED_CONFIG.set(&mut annotations, current);
        annotation::STATE.set(&mut annotations, &DaemonState::Done);
        self.act(Phase::Joining, Action::SetInitialAnnotations(annotations))
    }

    /// Verifies the disk against the config, has the node uncordoned and reports Done.
    fn complete(mut self, node: &NodeAnnotations, config: &RenderedName) -> Decision {
        self.state.prepared = None;
        if self.state.verified.as_ref() != Some(config) {
            return self.act(Phase::Verifying, Action::Verify(config.clone(), Occasion::Complete));
        }
        if let Some(text) = &self.seen.certificates {
            return self.fail(Cause::Certificates(text.clone()));
        }
        if node.is_reported(config) {
            self.state.request = None;
            self.state.has_completed = true;
            if self.seen.disk.force {
                return self.act(Phase::Done, Action::RemoveForceFile(config.clone()));
            }
            return self.wait(Phase::Done, VERIFY_INTERVAL);
        }
        match self.state.kubelet.take() {
            None => return self.act(Phase::AwaitingKubelet, Action::CheckKubelet),
            Some(CheckResult::Failed(why)) => return self.await_kubelet(why),
            answer @ Some(CheckResult::Passed | CheckResult::Skipped) => {
                self.state.kubelet = answer;
                self.state.kubelet_down_since = None;
            }
        }
        let request = drain_request(DrainVerb::Uncordon, config);
        if !(node.has_requested(&request) && node.has_completed(&request)) {
            let limit = self.limits.uncordon;
            return self.request(Phase::Uncordoning, request, limit);
        }
        self.state.request = None;
        let action = Action::ReportDone(config.clone(), Completion::of(node, config));
        self.act(Phase::Uncordoning, action)
    }

    /// Waits for the kubelet, so that a config that breaks it reaches no other node.
    fn await_kubelet(mut self, why: String) -> Decision {
        let since = *self.state.kubelet_down_since.get_or_insert(self.now);
        if self.now >= since + self.limits.kubelet {
            return self.fail(Cause::KubeletUnhealthy(why));
        }
        self.wait(Phase::AwaitingKubelet, KUBELET_INTERVAL)
    }

    /// Makes a request to the drain controller, and waits for its answer.
    pub(super) fn request(
        mut self,
        phase: Phase,
        request: DrainRequest,
        limit: Duration,
    ) -> Decision {
        let since = match &self.state.request {
            Some((pending, since)) if *pending == request => *since,
            Some(_) | None => self.now,
        };
        self.state.request = Some((request.clone(), since));
        if !self.seen.node.as_ref().is_some_and(|node| node.has_requested(&request)) {
            return self.act(phase, Action::Request(request));
        }
        if self.now >= since + limit {
            return self.fail(Cause::DrainTimeout { verb: request.verb, limit });
        }
        self.wait_until(phase, since + limit)
    }

    /// Repairs drift if the pool's policy asks for it, and reports it otherwise.
    fn drifted(mut self, found: &Drifted) -> Decision {
        let Some(drift) = found.drifts.first().cloned() else {
            return self
                .act(Phase::Verifying, Action::Verify(found.config.clone(), found.occasion));
        };
        let (policy, machine) = (&found.policy, &found.machine);
        let left = match heal::decide(policy, machine, &found.drifts, &self.state.repairs, self.now)
        {
            RepairDecision::Leave(why) => Some(why),
            RepairDecision::Repair(..) if self.state.is_repaired => None,
            RepairDecision::Repair(steps, subjects) => {
                self.state.repairs.record(&subjects, self.now);
                let action = Action::Repair(found.config.clone(), steps, subjects);
                let phase = self.state.phase;
                return self.act(phase, action);
            }
        };
        self.state.verified = None;
        let detected = match found.occasion {
            _ if !self.state.has_completed => DriftDetected::AtStart,
            Occasion::Preflight => DriftDetected::BeforeUpdate,
            Occasion::Complete => DriftDetected::WhileRunning,
        };
        self.fail(Cause::Drift { config: found.config.clone(), drift, detected, left })
    }

    /// Reboots the machine, and notices a reboot that does not happen.
    pub(super) fn reboot(mut self, config: String) -> Decision {
        let Some((_, since)) = &self.state.reboot else {
            return self.act(Phase::Rebooting, Action::Reboot(config));
        };
        let limit = self.limits.reboot;
        let end = *since + limit;
        if self.now < end {
            return self.wait_until(Phase::Rebooting, end);
        }
        self.state.reboot = None;
        self.fail(Cause::RebootOverdue { config, limit })
    }

    /// Reports a failure and retries after a while.
    pub(super) fn fail(mut self, cause: Cause) -> Decision {
        let pause = Duration::from_secs(1 << self.state.failures.min(6)).min(MAX_BACKOFF);
        self.state.failures = self.state.failures.saturating_add(1);
        self.state.is_repaired = false;
        self.enter(Phase::Failed);
        let wait = Wait::Until(self.now + pause);
        Decision { state: self.state, action: Action::Fail(cause), wait }
    }

    pub(super) fn act(mut self, phase: Phase, action: Action) -> Decision {
        self.enter(phase);
        Decision { state: self.state, action, wait: Wait::No }
    }

    pub(super) fn wait(self, phase: Phase, pause: Duration) -> Decision {
        let until = self.now + pause;
        self.wait_until(phase, until)
    }

    pub(super) fn wait_until(mut self, phase: Phase, until: Duration) -> Decision {
        self.state.failures = 0;
        self.enter(phase);
        Decision { state: self.state, action: Action::Wait, wait: Wait::Until(until) }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        if self.state.phase != phase {
            self.state.phase = phase;
            self.state.since = self.now;
        }
    }
}

impl Completion {
    /// Returns the event, from the annotations before Done is reported.
    fn of(node: &NodeAnnotations, config: &RenderedName) -> Self {
        let is_current = node.current.as_ref() == Some(config);
        if is_current && node.is_failing() && node.reason.starts_with(DRIFT_REASON) {
            Self::DriftRepair
        } else {
            Self::Update
        }
    }
}
