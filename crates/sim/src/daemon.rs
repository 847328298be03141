//! A node's machine and the daemon on it, step by step.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use mco_api::annotation::{self, DaemonState};

use crate::{
    Bug, Fault, Flaw, Rule,
    queue::{Event, Notice},
    world::{Way, World, annotate, annotated, set_ready, set_state},
};

/// A machine and the daemon on it.
#[derive(Debug)]
pub(crate) struct Host {
    power: Power,
    /// The config on the disk.
    disk: String,
    /// The config that the machine booted with, or that was applied since.
    booted: String,
    /// Which run of the daemon this is: what an earlier one began is void.
    run: u64,
    step: Step,
    seen: Arc<Node>,
    version: u64,
    /// What keeps the node from being ready.
    ails: BTreeSet<Ail>,
    /// We have it cordoned.
    pub(crate) ours: bool,
    /// Somebody else has it cordoned.
    pub(crate) theirs: bool,
}

/// What keeps a node from being ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ail {
    /// Something from outside.
    Outside,
    /// A config that goes bad later, and has.
    Spoiled,
    /// A config with a flaw that shows when it is booted.
    Flawed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    Rebooting,
    Lost,
}

/// What the daemon is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing, or it looks what there is to do.
    Idle,
    /// It waits for the drain that it asked for.
    Drain(String),
    /// It writes a config.
    Apply(String),
    /// It waits for the uncordon that it asked for.
    Uncordon(String),
    /// It failed to reach this config and will try again.
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
            ails: BTreeSet::new(),
            ours: view.cordon == mco_core::rollout::Cordon::Ours,
            theirs: view.cordon == mco_core::rollout::Cordon::Theirs,
        }
    }

    pub(crate) fn is_rebooting(&self) -> bool {
        self.power != Power::On
    }

    /// Whether the node is ready.
    pub(crate) fn is_well(&self) -> bool {
        self.power == Power::On && self.ails.is_empty()
    }
}

impl World {
    pub(crate) fn daemon_hears(&mut self, notice: &Notice) {
        let host = self.host(notice.node);
        if notice.version > host.version {
            host.version = notice.version;
            host.seen = notice.object.clone();
            self.work(notice.node);
        }
    }

    pub(crate) fn daemon_wakes(&mut self, node: usize, run: u64) {
        if self.host(node).run == run {
            if matches!(self.host(node).step, Step::Failed(_)) {
                self.host(node).step = Step::Idle;
            }
            self.work(node);
        }
    }

    /// Does what there is to do.
    fn work(&mut self, node: usize) {
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
                    self.begin(node, wanted);
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
                self.look(node, &desired);
            }
        }
    }

    /// Compares what there is with what is wanted.
    fn look(&mut self, node: usize, desired: &str) {
        let host = self.host(node);
        let flawed = host.ails.contains(&Ail::Flawed);
        if host.disk == desired && host.booted == desired {
            // A daemon whose node does not come up with this config does not get through.
            if !flawed {
                self.conclude(node, desired);
            }
            return;
        }
        let from = host.booted.clone();
        let ours = host.ours;
        self.state(node, &DaemonState::Working, "");
        if self.setup.flaws.get(desired) == Some(&Flaw::FailsBeforeDrain) {
            return self.fail(node, desired, "it cannot be applied");
        }
        let drain = match self.way(&from, desired) {
            Way::None => return self.fail(node, desired, "no running node can take this change"),
            Way::Takes { drain, .. } => drain,
        };
        let seen = self.host(node).seen.clone();
        let answered = annotated(&seen, annotation::LAST_APPLIED_DRAIN.name());
        let drained = ours && answered == format!("drain-{desired}");
        if drain && !drained && !self.has_bug(Bug::NoDrain) {
            self.host(node).step = Step::Drain(desired.to_owned());
            self.ask(node, &format!("drain-{desired}"));
        } else {
            self.begin(node, desired.to_owned());
        }
    }

    fn begin(&mut self, node: usize, config: String) {
        let slow = self.strikes(Fault::SlowApply);
        let time = self.setup.pace.apply * if slow { 10 } else { 1 };
        let host = self.host(node);
        host.step = Step::Apply(config);
        let run = host.run;
        self.queue.push(self.now + time, Event::Applied { node, run });
    }

    /// The config is on the disk, or should be.
    pub(crate) fn applied(&mut self, node: usize, run: u64) {
        let host = self.host(node);
        let Step::Apply(config) = host.step.clone() else { return };
        if host.run != run || host.power != Power::On {
            return;
        }
        if self.strikes(Fault::DaemonCrash) {
            return self.crash(node);
        }
        if self.setup.flaws.get(&config) == Some(&Flaw::FailsAfterDrain) {
            return self.fail(node, &config, "it cannot be applied");
        }
        if self.strikes(Fault::FailedApply) {
            return self.fail(node, &config, "the disk was full for a moment");
        }
        let from = self.host(node).booted.clone();
        let way = self.way(&from, &config);
        let host = self.host(node);
        host.step = Step::Idle;
        host.disk.clone_from(&config);
        if let Way::Takes { reboot: false, .. } = way {
            host.booted = config;
            self.work(node);
        } else {
            self.reboot(node, way);
        }
    }

    fn reboot(&mut self, node: usize, way: Way) {
        let drain_due = way != Way::Takes { drain: false, reboot: true };
        if drain_due && !(self.is_closed(node) && self.pods.in_the_way(node).is_empty()) {
            let name = self.node(node).name.clone();
            self.broke(Rule::DrainBeforeReboot, &name);
        }
        self.state(node, &DaemonState::Rebooting, "");
        self.say(node, "reboots");
        self.reboots += 1;
        let lost = self.strikes(Fault::LostMachine);
        let host = self.host(node);
        host.run += 1;
        host.power = if lost { Power::Lost } else { Power::Rebooting };
        self.count_out(node);
        self.write(node, |object| set_ready(object, "Unknown"));
        if !lost {
            let time = self.setup.pace.reboot;
            self.queue.push(self.now + time, Event::Boot(node));
        }
    }

    pub(crate) fn boot(&mut self, node: usize) {
        let old = self.strikes(Fault::OldBoot);
        let late = self.strikes(Fault::LateReady);
        let host = self.host(node);
        host.power = Power::On;
        if !old {
            host.booted = host.disk.clone();
        }
        host.ails.retain(|ail| *ail == Ail::Outside);
        let (booted, run) = (host.booted.clone(), host.run);
        if self.setup.flaws.get(&booted) == Some(&Flaw::NotReadyAtBoot) {
            self.host(node).ails.insert(Ail::Flawed);
        }
        if late {
            self.host(node).ails.insert(Ail::Outside);
            self.queue.push(self.now + 180_000, Event::Recovers(node));
        }
        self.count_out(node);
        self.say(node, &format!("is back with {booted}"));
        self.heartbeat(node);
        self.queue.push(self.now + 1_000, Event::Daemon { node, run });
    }

    /// The disk is as it should be: open the node again, if we closed it, and say so.
    fn conclude(&mut self, node: usize, config: &str) {
        let host = self.host(node);
        let seen = host.seen.clone();
        let asked = annotated(&seen, annotation::DESIRED_DRAIN.name());
        let applied = annotated(&seen, annotation::LAST_APPLIED_DRAIN.name());
        let open = asked.starts_with("uncordon-") && asked == applied;
        if asked.is_empty() || open || self.has_bug(Bug::NoUncordon) {
            let current = annotated(&seen, annotation::CURRENT_CONFIG.name());
            let state = annotated(&seen, annotation::STATE.name());
            if current != config || state != DaemonState::Done.as_str() {
                self.done(node, config);
            }
        } else {
            self.host(node).step = Step::Uncordon(config.to_owned());
            self.ask(node, &format!("uncordon-{config}"));
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
        if self.host(node).ours {
            let name = self.node(node).name.clone();
            self.broke(Rule::NoCordonLeft, &name);
        }
        self.say(node, &format!("runs {config}"));
        self.put(node, |object| {
            annotate(object, annotation::CURRENT_CONFIG.name(), config);
            annotate(object, annotation::REASON.name(), "");
            set_state(object, &DaemonState::Done);
        });
        if self.setup.flaws.get(config) == Some(&Flaw::NotReadyLater) {
            self.queue.push(self.now + 60_000, Event::Spoils(node));
        }
    }

    fn fail(&mut self, node: usize, config: &str, why: &str) {
        let host = self.host(node);
        host.step = Step::Failed(config.to_owned());
        let run = host.run;
        self.say(node, &format!("failed to apply {config}: {why}"));
        self.state(node, &DaemonState::Degraded, &format!("cannot apply {config}: {why}"));
        let pause = self.setup.pace.retry;
        self.queue.push(self.now + pause, Event::Daemon { node, run });
    }

    fn crash(&mut self, node: usize) {
        let host = self.host(node);
        host.run += 1;
        host.step = Step::Idle;
        let run = host.run;
        self.say(node, "loses its daemon, which starts again");
        self.queue.push(self.now + 5_000, Event::Daemon { node, run });
    }

    fn ask(&mut self, node: usize, request: &str) {
        let asked = annotated(&self.host(node).seen, annotation::DESIRED_DRAIN.name()).to_owned();
        if asked != request {
            self.put(node, |object| annotate(object, annotation::DESIRED_DRAIN.name(), request));
        }
    }

    /// A write of the daemon's, whose answer tells it what is there now.
    fn put(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
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
            self.put(node, |object| {
                set_state(object, state);
                annotate(object, annotation::REASON.name(), reason);
            });
        }
    }

    fn heartbeat(&mut self, node: usize) {
        let status = if self.host(node).is_well() { "True" } else { "False" };
        self.write(node, |object| set_ready(object, status));
    }

    /// Something from outside makes a node look bad for some minutes.
    pub(crate) fn blip(&mut self, node: usize) {
        if self.hosts.get(node).is_some_and(Host::is_well) {
            self.host(node).ails.insert(Ail::Outside);
            self.say(node, "is not ready, for no fault of ours");
            self.heartbeat(node);
            self.queue.push(self.now + 180_000, Event::Recovers(node));
        }
    }

    pub(crate) fn recovers(&mut self, node: usize) {
        self.host(node).ails.remove(&Ail::Outside);
        if self.host(node).power == Power::On {
            self.heartbeat(node);
        }
    }

    pub(crate) fn spoils(&mut self, node: usize) {
        let booted = self.host(node).booted.clone();
        if self.setup.flaws.get(&booted) == Some(&Flaw::NotReadyLater) {
            self.host(node).ails.insert(Ail::Spoiled);
            self.say(node, &format!("is not ready any more, because of {booted}"));
            self.heartbeat(node);
        }
    }

    /// Somebody sees to a lost machine.
    pub(crate) fn see_to(&mut self, node: usize) {
        if self.host(node).power == Power::Lost {
            self.say(node, "is seen to by somebody");
            self.host(node).power = Power::Rebooting;
            let time = self.setup.pace.reboot;
            self.queue.push(self.now + time, Event::Boot(node));
        }
    }
}
