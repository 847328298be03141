//! The state of a simulation and its event loop.

mod outcome;
mod pods;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use mco_api::{
    MachineConfigPool,
    annotation::{self, DaemonState, Recovery},
};
use mco_core::membership::Pools;

use self::pods::Pods;
use crate::{
    Bug, Entry, Fault, HandshakePoint, Invariant, InvariantViolation, Millis, Report, SeededRng,
    Setup, UserAction,
    controller::Controller,
    node::Host,
    queue::{Event, Queue, WatchEvent},
};

/// Time after which a machine that was forgotten is managed again.
const FORGOTTEN_TIME: Millis = 20 * 60_000;

/// Runs a simulation to its end.
#[must_use]
pub fn run(setup: Setup) -> Report {
    let mut world = World::new(setup);
    world.start();
    while world.violation.is_none() {
        let Some((at, event)) = world.queue.pop() else { break };
        if at > world.setup.deadline {
            world.now = world.setup.deadline;
            break;
        }
        world.now = at;
        world.steps += 1;
        world.handle(event);
    }
    world.finish()
}

pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) now: Millis,
    pub(crate) faults_ended: bool,
    pub(crate) chance: SeededRng,
    pub(crate) queue: Queue,
    pub(crate) membership: Pools,
    pub(crate) nodes: Vec<Record>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) controller: Controller,
    pub(crate) pods: Pods,
    pub(crate) unavailable: BTreeMap<String, Unavailable>,
    pub(crate) changed: Millis,
    pub(crate) reboots: usize,
    /// Pools that were reverted to an earlier config.
    pub(crate) reverted: BTreeSet<String>,
    earlier: BTreeMap<String, BTreeSet<String>>,
    plans: BTreeMap<(String, String), Disruption>,
    timeline: Vec<Entry>,
    violation: Option<InvariantViolation>,
    steps: usize,
}

/// A node in the API server.
pub(crate) struct Record {
    pub(crate) object: Arc<Node>,
    pub(crate) version: u64,
    pub(crate) name: String,
    /// Pool that manages the node.
    pub(crate) pool: Option<String>,
}

/// The nodes of a pool that the controller made unavailable.
#[derive(Default)]
pub(crate) struct Unavailable {
    pub(crate) now: BTreeSet<usize>,
    pub(crate) most: usize,
    pub(crate) allowed: i64,
}

/// The disruption of a node by a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disruption {
    /// The node cannot apply the change.
    Refused,
    /// The change needs these.
    Needs {
        /// True if the node must be drained.
        drain: bool,
        /// True if the machine reboots.
        reboot: bool,
    },
}

impl World {
    fn new(setup: Setup) -> Self {
        let membership = Pools::new(&setup.pools);
        let record = |object: &Node| {
            let name = object.metadata.name.clone().unwrap_or_default();
            let labels = object.metadata.labels.clone().unwrap_or_default();
            let found = membership.of(&name, &labels).ok();
            let pool = found.and_then(|found| found.primary().map(str::to_owned));
            Record { object: Arc::new(object.clone()), version: 1, name, pool }
        };
        let nodes: Vec<Record> = setup.nodes.iter().map(record).collect();
        let hosts = nodes.iter().map(|record| Host::of(&record.object)).collect();
        let pods = Pods::new(&setup, &nodes);
        Self {
            now: 0,
            faults_ended: false,
            chance: SeededRng::new(setup.seed),
            queue: Queue::default(),
            membership,
            hosts,
            controller: Controller::default(),
            pods,
            unavailable: BTreeMap::new(),
            changed: 0,
            reboots: 0,
            reverted: BTreeSet::new(),
            earlier: BTreeMap::new(),
            plans: BTreeMap::new(),
            timeline: Vec::new(),
            violation: None,
            steps: 0,
            nodes,
            setup,
        }
    }

    fn start(&mut self) {
        self.compute_limits();
        for pool in &self.setup.pools {
            let (name, target) = (outcome::name(pool), outcome::target(pool));
            self.earlier.entry(name).or_default().insert(target);
        }
        for (at, action) in self.setup.script.clone() {
            self.queue.push(at, Event::User(action));
        }
        self.queue.push(self.setup.faults_end, Event::FaultsEnd);
        self.queue.push(0, Event::ControllerUp);
        for node in 0..self.nodes.len() {
            self.queue.push(0, Event::Daemon { node, run: 0 });
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::User(action) => self.apply_action(action),
            Event::ToController(event) => self.controller_receives(&event),
            Event::PoolsToController => self.controller_sees_pools(),
            Event::ToDaemon(event) => self.daemon_receives(&event),
            Event::Sync(pool) => self.sync(&pool),
            Event::ControllerUp => self.controller_up(),
            Event::Drain(node) => self.drain_attempt(node),
            Event::PodGone(pod) => self.pod_gone(pod),
            Event::PodPlaced(pod) => self.place(pod),
            Event::Daemon { node, run } => self.daemon_wakes(node, run),
            Event::Applied { node, run } => self.applied(node, run),
            Event::Boot(node) => self.boot(node),
            Event::Recovers(node) => self.recovers(node),
            Event::LateFailure(node) => self.late_failure(node),
            Event::FaultsEnd => self.end_faults(),
        }
    }

    fn apply_action(&mut self, action: UserAction) {
        match action {
            UserAction::Target { pool, config } => {
                self.log(&pool, format!("target set to {config}"));
                let earlier = self.earlier.entry(pool.clone()).or_default();
                if earlier.insert(config.clone()) {
                    self.reverted.remove(&pool);
                } else {
                    self.reverted.insert(pool.clone());
                }
                self.edit(&pool, |pool| pool.spec.configuration.rendered.name = config);
            }
            UserAction::Pause(pool) => {
                self.log(&pool, "paused".to_owned());
                self.edit(&pool, |pool| pool.spec.paused = true);
            }
            UserAction::Resume(pool) => {
                self.log(&pool, "unpaused".to_owned());
                self.edit(&pool, |pool| pool.spec.paused = false);
            }
            UserAction::RestartController => self.restart_controller(),
            UserAction::Cordon(node)
            | UserAction::Uncordon(node)
            | UserAction::RestartDaemon(node)
            | UserAction::Recover(node, _)
            | UserAction::Manage(node)
                if node >= self.nodes.len() => {}
            UserAction::RestartDaemon(node) => self.crash(node),
            UserAction::Recover(node, request) => self.ask_to_recover(node, &request),
            UserAction::Manage(node) => self.manage_again(node),
            UserAction::Cordon(node) => {
                if !self.is_cordoned(node) {
                    self.log_node(node, "cordoned by the user");
                    self.host(node).cordoned_by_user = true;
                    self.write(node, |object| set_unschedulable(object, true));
                }
            }
            UserAction::Uncordon(node) => {
                let host = self.host(node);
                if std::mem::take(&mut host.cordoned_by_user) && !host.cordoned_by_controller {
                    self.log_node(node, "uncordoned by the user");
                    self.write(node, |object| set_unschedulable(object, false));
                }
            }
        }
    }

    fn ask_to_recover(&mut self, node: usize, request: &Recovery) {
        let key = annotation::RECOVER.name();
        // A machine that is forgotten, or is about to be, stays so until it is managed again.
        if !annotated(&self.node(node).object, key).is_empty() {
            return;
        }
        self.log_node(node, &format!("asked to {}", request.as_str()));
        self.write(node, |object| annotate(object, key, request.as_str()));
        if *request == Recovery::Forget {
            let again = Event::User(UserAction::Manage(node));
            self.queue.push(self.now + FORGOTTEN_TIME, again);
        }
    }

    fn manage_again(&mut self, node: usize) {
        let key = annotation::RECOVER.name();
        let recover = annotated(&self.node(node).object, key);
        if recover == Recovery::Forgotten.as_str() {
            self.log_node(node, "managed again");
            self.write(node, |object| remove(object, key));
        } else if recover == Recovery::Forget.as_str() {
            // An update is completed first.
            self.queue.push(self.now + FORGOTTEN_TIME, Event::User(UserAction::Manage(node)));
        }
    }

    /// Records that a node has reached a point of the handshake; the setup may interrupt it there.
    pub(crate) fn reach(&mut self, point: HandshakePoint, node: usize) {
        let Some((at, delay, action)) = self.setup.interruption.take_if(|(at, ..)| *at == point)
        else {
            return;
        };
        self.log_node(node, &format!("interrupted at {at:?}"));
        let action = if matches!(action, UserAction::RestartDaemon(_)) {
            UserAction::RestartDaemon(node)
        } else if let UserAction::Recover(_, request) = action {
            UserAction::Recover(node, request)
        } else {
            action
        };
        self.queue.push(self.now + delay, Event::User(action));
    }

    fn edit(&mut self, pool: &str, change: impl FnOnce(&mut MachineConfigPool)) {
        if let Some(pool) = self.setup.pools.iter_mut().find(|p| outcome::name(p) == pool) {
            change(pool);
        }
        let delay = self.watch_delay();
        self.queue.push(self.now + delay, Event::PoolsToController);
    }

    /// Changes a node in the API server and delivers the change to all watches.
    pub(crate) fn write(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
        let record = self.nodes.get_mut(node).expect("the index of a simulated node");
        change(Arc::make_mut(&mut record.object));
        record.version += 1;
        let (version, object) = (record.version, record.object.clone());
        let event = WatchEvent { node, version, object };
        let (first, second) = (self.watch_delay(), self.watch_delay());
        self.queue.push(self.now + first, Event::ToController(event.clone()));
        self.queue.push(self.now + second, Event::ToDaemon(event));
        self.changed = self.now;
    }

    pub(crate) fn watch_delay(&mut self) -> Millis {
        if self.fault_occurs(Fault::StaleCache) { 30_000 } else { self.chance.between(2, 200) }
    }

    /// Returns true if a possible fault occurs.
    pub(crate) fn fault_occurs(&mut self, fault: Fault) -> bool {
        let percent = self.setup.faults.percent(fault);
        !self.faults_ended && self.chance.percent(percent)
    }

    pub(crate) fn host(&mut self, node: usize) -> &mut Host {
        self.hosts.get_mut(node).expect("the index of a simulated node")
    }

    pub(crate) fn node(&self, node: usize) -> &Record {
        self.nodes.get(node).expect("the index of a simulated node")
    }

    pub(crate) fn is_cordoned(&self, node: usize) -> bool {
        is_cordoned(&self.node(node).object)
    }

    /// Returns true if pods can be scheduled on a node.
    pub(crate) fn is_schedulable(&self, node: usize) -> bool {
        self.hosts.get(node).is_some_and(Host::is_ready) && !self.is_cordoned(node)
    }

    pub(crate) fn log_node(&mut self, node: usize, what: &str) {
        let who = self.node(node).name.clone();
        self.log(&who, what.to_owned());
    }

    pub(crate) fn log(&mut self, who: &str, what: String) {
        self.timeline.push(Entry { at: self.now, object: who.to_owned(), what });
    }

    pub(crate) fn violate(&mut self, rule: Invariant, who: &str) {
        let violation = InvariantViolation { at: self.now, rule, who: who.to_owned() };
        self.violation.get_or_insert(violation);
    }

    /// Records if the controller made a node unavailable, and checks `maxUnavailable`.
    pub(crate) fn count_unavailable(&mut self, node: usize) {
        let host = self.hosts.get(node).expect("the index of a simulated node");
        let is_unavailable = host.cordoned_by_controller || host.is_rebooting();
        let Some(pool) = self.node(node).pool.clone() else { return };
        let unavailable = self.unavailable.entry(pool.clone()).or_default();
        if is_unavailable {
            unavailable.now.insert(node);
        } else {
            unavailable.now.remove(&node);
        }
        unavailable.most = unavailable.most.max(unavailable.now.len());
        if i64::try_from(unavailable.now.len()).unwrap_or(i64::MAX) > unavailable.allowed {
            self.violate(Invariant::MaxUnavailable, &pool);
        }
    }

    /// Returns the disruption of an update from one config to another, according to the real plan.
    pub(crate) fn disruption(&mut self, from: &str, to: &str) -> Disruption {
        let key = (from.to_owned(), to.to_owned());
        if let Some(disruption) = self.plans.get(&key) {
            return *disruption;
        }
        let disruption = match (self.setup.configs.get(from), self.setup.configs.get(to)) {
            (Some(old), Some(new)) => planned(old, new, &self.setup),
            // One of the configs is unknown, so everything may differ.
            (None, _) | (_, None) => Disruption::Needs { drain: true, reboot: true },
        };
        self.plans.insert(key, disruption);
        disruption
    }

    fn end_faults(&mut self) {
        self.faults_ended = true;
        for node in 0..self.hosts.len() {
            self.restart_by_administrator(node);
        }
    }

    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.setup.bug == Some(bug)
    }
}

fn planned(
    old: &mco_core::machine::Machine,
    new: &mco_core::machine::Machine,
    setup: &Setup,
) -> Disruption {
    let circumstances = mco_core::plan::Circumstances::default();
    match mco_core::plan::node(old, new, &setup.policies, &circumstances) {
        Err(_) => Disruption::Refused,
        Ok(plan) => Disruption::Needs {
            drain: matches!(plan.drain, mco_core::plan::Drain::Needed(_)),
            reboot: plan.reboots(),
        },
    }
}

pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

pub(crate) fn set_unschedulable(node: &mut Node, unschedulable: bool) {
    node.spec.get_or_insert_default().unschedulable = unschedulable.then_some(true);
}

pub(crate) fn annotate(node: &mut Node, key: &str, value: &str) {
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

pub(crate) fn remove(node: &mut Node, key: &str) {
    if let Some(annotations) = node.metadata.annotations.as_mut() {
        annotations.remove(key);
    }
}

pub(crate) fn annotated<'a>(node: &'a Node, key: &str) -> &'a str {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
}

pub(crate) fn set_state(node: &mut Node, state: &DaemonState) {
    annotate(node, annotation::STATE.name(), state.as_str());
}

/// Sets the Ready condition.
pub(crate) fn set_ready(node: &mut Node, status: &str) {
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == "Ready") {
        Some(condition) => status.clone_into(&mut condition.status),
        None => conditions.push(NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            ..NodeCondition::default()
        }),
    }
}
