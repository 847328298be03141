//! A small model of everything around a daemon: its node, its disk, its machine, the drain
//! controller and the administrator. Explores every order of their events.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher as _},
    sync::Arc,
    time::Duration,
};

use mco_api::{
    RenderedName,
    annotation::{DaemonState, DrainVerb, DriftPolicy, Recovery},
};

use super::{observe::drain_request, *};
use crate::{drift::Drift, machine::Machine};

/// A daemon and everything around it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct World {
    pub(super) state: State,
    outcome: Outcome,
    has_joined: bool,
    node: NodeAnnotations,
    disk: DiskView,
    /// Config whose system the machine runs.
    booted: RenderedName,
    /// True if an update drains the node and reboots the machine.
    disrupts: bool,
    /// True while the machine is down.
    is_down: bool,
    /// True if the administrator may force the node and have it forgotten. Damaged records, repairs and
    /// late proofs of health are left to the other worlds, so that the model stays small.
    is_administered: bool,
}

/// Everything that can happen in the model.
#[derive(Debug, Default)]
pub(super) struct Exploration {
    /// Changes of the phase, with the actions that they begin with.
    pub(super) edges: BTreeMap<(Phase, Phase), BTreeSet<&'static str>>,
    /// All situations.
    pub(super) worlds: Vec<World>,
    /// Positions of the situations from which no sequence of events leads to Done.
    pub(super) dead_ends: Vec<usize>,
    /// Updates that were applied without the drain that they need.
    pub(super) undrained: Vec<String>,
}

/// More situations than the model has.
const MOST: usize = 200_000;

fn name(text: &str) -> RenderedName {
    text.parse().unwrap()
}

/// Explores every order of events from a node that has config `a`.
pub(super) fn explore() -> Exploration {
    let kinds = [(true, false), (false, false), (true, true), (false, true)];
    let worlds = kinds.map(|(disrupts, administered)| World::new(disrupts, administered)).to_vec();
    let mut found = Exploration { worlds, ..Exploration::default() };
    let mut index: HashMap<u64, usize> =
        found.worlds.iter().enumerate().map(|(at, world)| (world.key(), at)).collect();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); found.worlds.len()];
    let mut at = 0;
    while at < found.worlds.len() {
        assert!(at < MOST, "the model is too large: {:#?}", found.worlds[at]);
        let world = found.worlds[at].clone();
        for later in world.successors(&mut found) {
            let to = *index.entry(later.key()).or_insert_with(|| {
                found.worlds.push(later);
                before.push(Vec::new());
                found.worlds.len() - 1
            });
            before[to].push(at);
        }
        at += 1;
    }
    let mut pending: Vec<usize> =
        (0..found.worlds.len()).filter(|at| found.worlds[*at].is_done()).collect();
    let mut leads: BTreeSet<usize> = pending.iter().copied().collect();
    while let Some(at) = pending.pop() {
        pending.extend(before[at].iter().filter(|earlier| leads.insert(**earlier)));
    }
    found.dead_ends = (0..found.worlds.len()).filter(|at| !leads.contains(at)).collect();
    found
}

/// Hashes text while it is formatted.
struct KeyHasher(DefaultHasher);

impl fmt::Write for KeyHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl World {
    fn new(disrupts: bool, is_administered: bool) -> Self {
        let current = Some(name("a"));
        let node = NodeAnnotations {
            current: current.clone(),
            desired: current.clone(),
            state: Some(DaemonState::Done),
            ..NodeAnnotations::default()
        };
        Self {
            state: State::default(),
            outcome: Outcome::Started,
            has_joined: false,
            node,
            disk: DiskView { current, boot_id: "0".to_owned(), ..DiskView::default() },
            booted: name("a"),
            disrupts,
            is_down: false,
            is_administered,
        }
    }

    /// Returns a number that differs from that of any other situation.
    fn key(&self) -> u64 {
        let mut hasher = KeyHasher(DefaultHasher::new());
        write!(hasher, "{self:?}").unwrap();
        hasher.0.finish()
    }

    fn is_done(&self) -> bool {
        self.state.phase == Phase::Done && self.node.current == self.node.desired
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    fn restarted(&self) -> Self {
        self.with(|world| {
            world.state = State::default();
            world.outcome = Outcome::Started;
            world.has_joined = false;
        })
    }

    /// Returns everything that can happen next.
    fn successors(&self, found: &mut Exploration) -> Vec<Self> {
        if self.is_down {
            return self.boots();
        }
        let mut all = vec![self.restarted()];
        // Times are all zero: a limit of zero has passed, any other has not.
        let passed = Duration::ZERO;
        let late = Limits {
            drain: passed,
            uncordon: passed,
            kubelet: passed,
            reboot: passed,
            ..Limits::default()
        };
        for limits in [Limits::default(), late] {
            let seen = Observation {
                node: self.has_joined.then(|| self.node.clone()),
                disk: self.disk.clone(),
                certificates: None,
                outcome: self.outcome.clone(),
            };
            let decision = next(self.state.clone(), &seen, &limits, Duration::ZERO);
            let Decision { mut state, action, wait } = decision;
            state.failures = 0;
            state.repairs = RepairHistory::default();
            state.has_completed = false;
            let (from, to) = (self.state.phase, state.phase);
            found.edges.entry((from, to)).or_default().insert(label(&action));
            self.check(&action, found);
            let after = self.with(|world| world.state = state);
            for mut world in after.results(&action) {
                if wait != Wait::No {
                    all.extend(world.wakes());
                    continue;
                }
                if world.disk.update.is_none() {
                    world.disk.boot_id = "0".to_owned();
                }
                all.push(world);
            }
        }
        all
    }

    fn check(&self, action: &Action, found: &mut Exploration) {
        let Action::Apply(update) = action else { return };
        let request = Some(drain_request(DrainVerb::Drain, &update.to));
        let is_drained =
            self.node.requested_drain == request && self.node.last_applied_drain == request;
        if self.disrupts && !is_drained {
            found.undrained.push(format!("{self:?}"));
        }
    }

    /// Returns the machine after its boot: with the system of its config, or with the old one.
    fn boots(&self) -> Vec<Self> {
        let mut booted = self.restarted();
        booted.is_down = false;
        booted.renumber_boots();
        let mut all = vec![booted.clone()];
        // A forgotten machine has no record, and boots what it ran.
        if let Some(current) = booted.disk.current.clone() {
            booted.booted = current;
            all.push(booted);
        }
        for world in &mut all {
            if let Some(update) = &mut world.disk.update {
                update.is_booted = update.to == world.booted.as_str();
            }
        }
        all
    }

    /// Gives the boots that the ledger names, and the new one, the lowest numbers.
    fn renumber_boots(&mut self) {
        let Some(update) = &mut self.disk.update else { return };
        let mut known: Vec<String> = Vec::new();
        let mut number = |id: &mut String| {
            let at = known.iter().position(|known| known == id).unwrap_or_else(|| {
                known.push(id.clone());
                known.len() - 1
            });
            *id = at.to_string();
        };
        number(&mut update.began_in);
        let progress = &mut update.progress;
        let later = progress.again_in.iter_mut().chain(&mut progress.back_in);
        later.chain(&mut progress.completed_in).for_each(number);
        self.disk.boot_id = known.len().to_string();
    }

    /// Returns the ends of a wait.
    fn wakes(&self) -> Vec<Self> {
        let wake = |wake| self.with(|world| world.outcome = Outcome::Woken(wake));
        let mut all = vec![wake(Wake::Deadline)];
        if self.state.phase == Phase::Draining {
            all.push(wake(Wake::Disk));
        }
        // The drain controller answers, the controller sets another config.
        all.push(wake(Wake::Change).with(|world| {
            world.node.last_applied_drain.clone_from(&world.node.requested_drain);
        }));
        for config in ["a", "b"] {
            all.push(wake(Wake::Change).with(|world| world.node.desired = Some(name(config))));
        }
        all.extend(
            self.requests()
                .into_iter()
                .map(|recover| wake(Wake::Change).with(|world| world.node.recover = recover)),
        );
        // The administrator reboots the machine.
        if self.state.phase == Phase::Failed {
            all.push(self.with(|world| world.is_down = true));
        }
        all
    }

    /// Returns what the administrator may ask for during a wait.
    fn requests(&self) -> Vec<Option<Recovery>> {
        if self.node.recover == Some(Recovery::Forgotten) {
            // The machine is managed again.
            return vec![None];
        }
        let mut all = Vec::new();
        if self.is_administered {
            all.push(Some(Recovery::Forget));
        }
        if self.state.phase == Phase::Failed {
            if self.is_administered {
                all.push(Some(Recovery::Force));
            }
            if self.disk.update.is_some() || self.disk.unreadable.is_some() {
                all.push(Some(Recovery::Abandon));
            }
        }
        all
    }

    /// Returns the world with this outcome of the last action.
    fn outcome(&self, outcome: Outcome) -> Self {
        self.with(|world| world.outcome = outcome)
    }

    fn failed(&self) -> Self {
        self.outcome(Outcome::Failed(Severity::Degraded))
    }

    /// Returns the world after each outcome of an action.
    fn results(&self, action: &Action) -> Vec<Self> {
        match action {
            // A node that has joined before keeps its annotations.
            Action::Wait | Action::RecordWait(_) | Action::Adopt => vec![self.done()],
            Action::SetInitialAnnotations(annotations) => {
                let current = mco_api::annotation::CURRENT_CONFIG.get(annotations).ok().flatten();
                vec![self.done().with(|world| world.node.current = current)]
            }
            Action::Connect => vec![self.done().with(|world| world.has_joined = true)],
            Action::Prepare => vec![self.outcome(Outcome::Prepared), self.failed()],
            Action::ClearRebooting => {
                vec![self.done().with(|world| world.node.rebooting = false)]
            }
            Action::Verify(config, occasion) => self.verify(config, *occasion),
            Action::Repair(..) => vec![self.outcome(Outcome::Repaired), self.failed()],
            Action::Begin(update) => self.begins(update),
            Action::Plan(_) => self.plans(),
            Action::Request(request) => vec![self.done().with(|world| {
                world.node.requested_drain = Some(request.clone());
                // An answer to another request is no answer.
                world.node.last_applied_drain.take_if(|last| last != request);
            })],
            Action::Apply(update) => self.applies(update),
            Action::Continue(_) => self.executes(),
            Action::ApplyAgain => {
                let again_in = Some(self.disk.boot_id.clone());
                self.progress(Progress { again_in, ..Progress::default() }).executes()
            }
            Action::Undo => self.undoes(),
            Action::Abandon => vec![self.done().with(|world| {
                world.disk.force = world.is_administered;
                world.disk.update = None;
                world.disk.unreadable = None;
                world.node.recover = None;
            })],
            Action::Force => vec![self.done().with(|world| {
                world.disk.force = true;
                world.node.recover = None;
            })],
            Action::Forget => self.forgets(),
            Action::Reboot(config) => self.reboots(config),
            Action::Close => vec![self.done().with(|world| world.disk.update = None)],
            Action::CheckHealth => self.checks(),
            Action::Confirm => {
                let progress = self.disk.update.clone().unwrap().progress;
                vec![self.progress(Progress { confirmed: true, ..progress }).done()]
            }
            Action::RollBack(_) => self.rolls_back(),
            Action::CheckKubelet => [CheckResult::Passed, ill()]
                .map(|answer| self.outcome(Outcome::Kubelet(answer)))
                .to_vec(),
            Action::RemoveForceFile(_) => {
                vec![self.done().with(|world| world.disk.force = false), self.failed()]
            }
            Action::ReportDone(config, _) => vec![self.outcome(Outcome::Reported).with(|world| {
                world.disk.rolled_back.take_if(|back| back.config != config.as_str());
                world.node.current = Some(config.clone());
                (world.node.state, world.node.reason) = (Some(DaemonState::Done), String::new());
            })],
            Action::Fail(_) => vec![self.done().with(|world| {
                world.node.state = Some(DaemonState::Degraded);
                world.node.reason = "it failed".to_owned();
            })],
        }
    }

    fn begins(&self, update: &Update) -> Vec<Self> {
        let begun = self.outcome(Outcome::Begun(update.clone())).with(|world| {
            let is_over = |back: &mut RolledBackConfig| back.config != update.to.as_str();
            world.disk.rolled_back.take_if(is_over);
        });
        vec![begun, self.outcome(Outcome::Failed(Severity::Transient))]
    }

    fn plans(&self) -> Vec<Self> {
        let planned = Planned { drain: self.disrupts, drain_limit: None };
        let planned = self.outcome(Outcome::Planned(planned)).with(|world| {
            if world.node.is_done() {
                world.node.state = Some(DaemonState::Working);
            }
        });
        vec![planned, self.outcome(Outcome::Failed(Severity::Unreconcilable))]
    }

    /// Records an update, whose time to prove healthy is over at once or never, and executes it.
    fn applies(&self, update: &Update) -> Vec<Self> {
        let begun = |deadline| {
            self.with(|world| {
                world.disk.update = Some(UnfinishedUpdate {
                    from: update.from.to_string(),
                    to: update.to.to_string(),
                    began_in: world.disk.boot_id.clone(),
                    deadline: Some(deadline),
                    ..UnfinishedUpdate::default()
                });
            })
        };
        let (late, early) = (begun(Duration::ZERO), begun(Duration::from_hours(1)));
        if self.is_administered {
            return early.executes();
        }
        [late.executes(), early.executes()].concat()
    }

    /// Tells the machine to reboot: it goes down, or does not, or the command fails.
    fn reboots(&self, config: &str) -> Vec<Self> {
        let down = self.with(|world| {
            world.node.rebooting = world.has_joined;
            world.is_down = true;
        });
        vec![self.outcome(Outcome::RebootStarted(config.to_owned())), down, self.failed()]
    }

    /// Removes the records: all of them, or some before a crash or a failure.
    fn forgets(&self) -> Vec<Self> {
        let removed = self.with(|world| {
            world.disk.current = None;
            world.disk.rolled_back = None;
            world.disk.force = false;
        });
        let answered = removed.done().with(|world| {
            world.node.recover = Some(Recovery::Forgotten);
        });
        vec![answered, removed.restarted(), self.failed()]
    }

    fn checks(&self) -> Vec<Self> {
        let checked = |kubelet| {
            let (cluster, skipped) = (CheckResult::Passed, CheckResult::Skipped);
            let (network, checks) = (skipped.clone(), skipped);
            self.outcome(Outcome::Health(Health { cluster, network, kubelet, checks }))
        };
        vec![checked(CheckResult::Passed), checked(ill())]
    }

    fn rolls_back(&self) -> Vec<Self> {
        let back_in = Some(self.disk.boot_id.clone());
        let progress = Progress { stage: Stage::Undoing, back_in, ..Progress::default() };
        let begun = self.progress(progress);
        vec![begun.restarted(), begun.returns(), self.failed()]
    }

    fn done(&self) -> Self {
        self.outcome(Outcome::Done)
    }

    fn progress(&self, progress: Progress) -> Self {
        self.with(|world| {
            if let Some(update) = &mut world.disk.update {
                update.progress = progress;
            }
        })
    }

    fn verify(&self, config: &RenderedName, occasion: Occasion) -> Vec<Self> {
        let drifted = |drift, policy| {
            let (config, machine, drifts) = (config.clone(), Arc::new(machine()), vec![drift]);
            let found = Drifted { config, occasion, machine, drifts, policy };
            self.with(|world| world.outcome = Outcome::Drifted(found))
        };
        if self.booted != *config {
            let drift = Drift::KernelArguments(vec!["x".to_owned()]);
            return vec![drifted(drift, DriftPolicy::Degrade)];
        }
        let edited = || Drift::Contents("/etc/a".to_owned());
        let verified = Outcome::Verified(config.clone(), occasion);
        let mut all = vec![self.outcome(verified), drifted(edited(), DriftPolicy::Degrade)];
        if !self.is_administered {
            all.push(drifted(edited(), DriftPolicy::Heal));
        }
        all
    }

    /// Executes the recorded update: it succeeds, crashes, or fails and is rolled back or not.
    fn executes(&self) -> Vec<Self> {
        let update = self.disk.update.clone().unwrap();
        let failed = Outcome::Failed(Severity::Degraded);
        let progress = update.progress.clone();
        let undone = self.with(|world| {
            world.disk.update = None;
            world.disk.current = Some(name(&update.from));
            world.outcome = failed.clone();
        });
        let stuck = self.progress(Progress { stage: Stage::Undoing, ..Progress::default() });
        let stuck = stuck.with(|world| world.outcome = failed);
        let applied = self.with(|world| {
            world.disk.current = Some(name(&update.to));
            world.disk.force = false;
            world.outcome = Outcome::Applied;
            if !world.disrupts {
                world.booted = name(&update.to);
                world.disk.update = None;
            }
        });
        let stage = Stage::Rebooting;
        let completed_in = Some(self.disk.boot_id.clone()).filter(|now| *now != update.began_in);
        let applied =
            applied.progress(Progress { stage, fault: None, completed_in, ..progress.clone() });
        // A power cut damages the record.
        let unreadable = self.restarted().with(|world| {
            world.disk.update = None;
            world.disk.unreadable = Some("damaged".to_owned());
        });
        // The disk has the config, and a service cannot be reloaded.
        let fault = Some("no reload".to_owned());
        let again_in = progress.again_in.clone();
        let kept = Progress { fault, again_in, ..Progress::default() };
        let kept = self.progress(kept).with(|world| {
            world.disk.current = Some(name(&update.to));
            world.outcome = Outcome::Failed(Severity::Degraded);
        });
        let cut = self.with(|world| world.is_down = true);
        let mut all = vec![applied, self.restarted(), undone];
        if !self.is_administered {
            all.extend([cut, stuck, unreadable]);
        }
        if !self.disrupts {
            all.push(kept);
        }
        all
    }

    fn undoes(&self) -> Vec<Self> {
        let update = self.disk.update.clone().unwrap();
        let failed = Outcome::Failed(Severity::Degraded);
        let stays = self.with(|world| world.outcome = failed.clone());
        if update.progress.back_in.is_some() && update.progress.stage == Stage::Undoing {
            return vec![self.returns(), stays];
        }
        let is_withdrawn = update.progress.stage == Stage::Applying;
        let undone = self.with(|world| {
            world.disk.update = None;
            world.disk.current = Some(name(&update.from));
            world.outcome = match world.has_joined {
                true if is_withdrawn => Outcome::Applied,
                true => failed,
                false => Outcome::Done,
            };
        });
        let mut all = vec![undone, stays];
        if is_withdrawn {
            let begun = Progress { stage: Stage::Undoing, ..update.progress };
            all.push(self.progress(begun).restarted());
        }
        all
    }

    /// Restores the previous config, which a reboot completes.
    fn returns(&self) -> Self {
        let update = self.disk.update.clone().unwrap();
        let progress = Progress { stage: Stage::Returning, ..update.progress };
        self.progress(progress).done().with(|world| {
            world.disk.current = Some(name(&update.from));
            let why = "ill".to_owned();
            world.disk.rolled_back = Some(RolledBackConfig { config: update.to, why });
        })
    }
}

fn ill() -> CheckResult {
    CheckResult::Failed("ill".to_owned())
}

fn machine() -> Machine {
    let mut machine = Machine::blank();
    let file = mco_ignition::config::File { path: "/etc/a".to_owned(), ..Default::default() };
    machine.config.storage.files.push(file);
    machine
}

/// Returns the name of an action.
fn label(action: &Action) -> &'static str {
    match action {
        Action::Wait => "wait",
        Action::Connect => "connect",
        Action::Prepare => "prepare",
        Action::SetInitialAnnotations(_) => "annotate",
        Action::Adopt => "adopt",
        Action::ClearRebooting => "clear Rebooting",
        Action::Verify(..) => "verify",
        Action::Repair(..) => "repair",
        Action::Begin(_) => "begin",
        Action::Plan(_) => "plan",
        Action::Request(_) => "request",
        Action::Apply(_) => "apply",
        Action::Continue(_) => "continue",
        Action::ApplyAgain => "apply again",
        Action::Undo => "undo",
        Action::Abandon => "abandon",
        Action::Force => "force",
        Action::Forget => "forget",
        Action::Reboot(_) => "reboot",
        Action::Close => "close",
        Action::CheckHealth => "check health",
        Action::RecordWait(_) => "record wait",
        Action::Confirm => "confirm",
        Action::RollBack(_) => "roll back",
        Action::CheckKubelet => "check kubelet",
        Action::RemoveForceFile(_) => "remove the force file",
        Action::ReportDone(..) => "report Done",
        Action::Fail(_) => "report failure",
    }
}
