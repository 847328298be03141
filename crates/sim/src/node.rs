//! A simulated machine: its disk, its boots, its power. Every decision about it is that of
//! `mco_core::lifecycle`.

mod carry_out;
mod power;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use mco_api::annotation;
use mco_core::lifecycle::{
    self, Action, CheckResult, DiskView, Limits, NodeAnnotations, Observation, Outcome, Phase,
    RolledBackConfig, State, UnfinishedUpdate, Wait, Wake,
};

use crate::{
    Millis,
    queue::{Event, WatchEvent},
    world::{World, annotated},
};

/// Time in which a machine has to prove healthy after a reboot.
const CONFIRM: Duration = Duration::from_mins(15);

/// A machine and the state of its daemon.
#[derive(Debug)]
pub(crate) struct Host {
    power: Power,
    /// Config on disk.
    disk: String,
    /// Record of that config.
    record: ConfigRecord,
    /// Config that was booted, or applied since.
    booted: String,
    /// Number of boots.
    boots: u64,
    /// Unfinished update on disk.
    update: Option<UnfinishedUpdate>,
    /// Config that was rolled back last.
    rolled_back: Option<RolledBackConfig>,
    /// Request to write the whole config again.
    force: Force,
    /// Number of the daemon's run or wait: events of an earlier one are ignored.
    run: u64,
    activity: Activity,
    /// State of the daemon's decisions.
    state: State,
    /// Outcome of the daemon's last action.
    outcome: Outcome,
    /// True once the daemon has joined the cluster.
    has_joined: bool,
    /// Text of the last failed action.
    fault: String,
    seen: Arc<Node>,
    version: u64,
    /// Causes that keep the node from being ready.
    not_ready: BTreeSet<NotReadyCause>,
    /// True if the controller cordoned the node.
    pub(crate) cordoned_by_controller: bool,
    /// True if the user cordoned the node.
    pub(crate) cordoned_by_user: bool,
}

/// The current activity of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Activity {
    /// The daemon starts.
    Starting,
    /// The daemon writes a config.
    Applying,
    /// The daemon waits for a change.
    Waiting,
}

/// The record of the config on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigRecord {
    /// It is there.
    Present,
    /// The machine was forgotten.
    Removed,
}

/// The request to write the whole config again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    /// There is none.
    No,
    /// The next update does it.
    Requested,
    /// The update that has begun does it.
    Applying,
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

impl Host {
    pub(crate) fn of(node: &Node) -> Self {
        let current = annotated(node, annotation::CURRENT_CONFIG.name()).to_owned();
        let view = mco_core::rollout::NodeView::of(node);
        Self {
            power: Power::On,
            disk: current.clone(),
            record: ConfigRecord::Present,
            booted: current,
            boots: 0,
            update: None,
            rolled_back: None,
            force: Force::No,
            run: 0,
            activity: Activity::Starting,
            state: State::default(),
            outcome: Outcome::Started,
            has_joined: false,
            fault: String::new(),
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

    /// Returns the health of the kubelet.
    fn kubelet(&self) -> CheckResult {
        if self.not_ready.contains(&NotReadyCause::BootFailure) {
            CheckResult::Failed(format!("the kubelet does not run with {}", self.booted))
        } else {
            CheckResult::Passed
        }
    }

    fn boot_id(&self) -> String {
        self.boots.to_string()
    }

    /// Returns everything that the next decision depends on.
    fn observe(&mut self) -> Observation {
        let annotations = self.seen.metadata.annotations.clone().unwrap_or_default();
        let update = self
            .update
            .clone()
            .map(|update| UnfinishedUpdate { is_booted: self.booted == update.to, ..update });
        let node = NodeAnnotations::read(&annotations).ok().filter(|_| self.has_joined);
        Observation {
            node,
            disk: DiskView {
                current: (self.record == ConfigRecord::Present)
                    .then(|| self.disk.parse().ok())
                    .flatten(),
                update,
                boot_id: self.boot_id(),
                rolled_back: self.rolled_back.clone(),
                force: self.force != Force::No,
                ..DiskView::default()
            },
            certificates: None,
            outcome: std::mem::take(&mut self.outcome),
        }
    }

    /// Forgets everything that a daemon remembers only while it runs.
    fn restart_daemon(&mut self) {
        self.run += 1;
        self.state = State::default();
        self.outcome = Outcome::Started;
        self.has_joined = false;
        self.activity = Activity::Starting;
    }
}

impl World {
    pub(crate) fn daemon_receives(&mut self, event: &WatchEvent) {
        let host = self.host(event.node);
        if event.version <= host.version {
            return;
        }
        host.version = event.version;
        let before = std::mem::replace(&mut host.seen, event.object.clone());
        let is_changed = before.metadata.annotations != host.seen.metadata.annotations;
        // A daemon that confirms its config has not joined the cluster yet.
        if is_changed && host.has_joined && host.activity == Activity::Waiting {
            self.wake(event.node, Wake::Change);
        }
    }

    /// Starts a daemon, or ends its wait.
    pub(crate) fn daemon_wakes(&mut self, node: usize, run: u64) {
        let host = self.host(node);
        if host.run != run || host.power != Power::On {
            return;
        }
        match host.activity {
            Activity::Starting => self.turn(node),
            Activity::Waiting => self.wake(node, Wake::Deadline),
            Activity::Applying => {}
        }
    }

    fn wake(&mut self, node: usize, wake: Wake) {
        if self.host(node).power == Power::On {
            self.host(node).outcome = Outcome::Woken(wake);
            self.turn(node);
        }
    }

    /// Observes, decides and acts until the daemon waits.
    fn turn(&mut self, node: usize) {
        loop {
            let now = Duration::from_millis(self.now);
            let host = self.host(node);
            let (run, seen) = (host.run, host.observe());
            // A node without a desired config is not managed.
            if host.has_joined
                && annotated(&host.seen, annotation::DESIRED_CONFIG.name()).is_empty()
            {
                host.activity = Activity::Waiting;
                return;
            }
            let state = std::mem::take(&mut host.state);
            let decision = lifecycle::next(state, &seen, &Limits::default(), now);
            host.state = decision.state;
            self.carry_out(node, decision.action);
            let host = self.host(node);
            if host.run != run || host.power != Power::On || host.activity == Activity::Applying {
                return;
            }
            if let Wait::Until(until) = decision.wait {
                host.run += 1;
                host.activity = Activity::Waiting;
                // The simulated disk does not drift, so that a node that is done has nothing to find.
                if host.state.phase != Phase::Done {
                    let run = host.run;
                    let at = Millis::try_from(until.as_millis()).unwrap_or(Millis::MAX);
                    self.queue.push(at, Event::Daemon { node, run });
                }
                return;
            }
        }
    }

    /// Restarts a daemon.
    pub(crate) fn crash(&mut self, node: usize) {
        let host = self.host(node);
        host.restart_daemon();
        let run = host.run;
        self.log_node(node, "daemon crashed and restarts");
        self.queue.push(self.now + 5_000, Event::Daemon { node, run });
    }
}

/// Returns true if an action needs the simulated disk for a while.
fn is_long(action: &Action) -> bool {
    matches!(action, Action::Apply(_) | Action::Continue(_) | Action::ApplyAgain)
}
