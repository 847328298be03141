//! The state of the whole, and the loop that moves it on.

mod outcome;
mod pods;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use mco_api::{
    MachineConfigPool,
    annotation::{self, DaemonState},
};
use mco_core::membership::Pools;

use self::pods::Pods;
use crate::{
    Action, Bug, Chance, Entry, Fault, Millis, Report, Rule, Setup, Violation,
    controller::Controller,
    daemon::Host,
    queue::{Event, Notice, Queue},
};

/// Runs a simulation to its end.
#[must_use]
pub fn run(setup: Setup) -> Report {
    let mut world = World::new(setup);
    world.start();
    while world.violation.is_none() {
        let Some((at, event)) = world.queue.pop() else { break };
        if at > world.setup.deadline {
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
    pub(crate) calm: bool,
    pub(crate) chance: Chance,
    pub(crate) queue: Queue,
    pub(crate) membership: Pools,
    pub(crate) nodes: Vec<Record>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) controller: Controller,
    pub(crate) pods: Pods,
    pub(crate) out: BTreeMap<String, Out>,
    pub(crate) changed: Millis,
    pub(crate) reboots: usize,
    /// Pools that went back to a config they had.
    pub(crate) reverted: BTreeSet<String>,
    past: BTreeMap<String, BTreeSet<String>>,
    plans: BTreeMap<(String, String), Way>,
    timeline: Vec<Entry>,
    violation: Option<Violation>,
    steps: usize,
}

/// A node in the API server.
pub(crate) struct Record {
    pub(crate) object: Arc<Node>,
    pub(crate) version: u64,
    pub(crate) name: String,
    /// The pool that manages it.
    pub(crate) pool: Option<String>,
}

/// How many nodes of a pool are out of service by our doing.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) now: BTreeSet<usize>,
    pub(crate) most: usize,
    pub(crate) allowed: i64,
}

/// What a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It cannot be made.
    None,
    /// These.
    Takes {
        /// Whether pods must leave.
        drain: bool,
        /// Whether the machine reboots.
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
            calm: false,
            chance: Chance::new(setup.seed),
            queue: Queue::default(),
            membership,
            hosts,
            controller: Controller::default(),
            pods,
            out: BTreeMap::new(),
            changed: 0,
            reboots: 0,
            reverted: BTreeSet::new(),
            past: BTreeMap::new(),
            plans: BTreeMap::new(),
            timeline: Vec::new(),
            violation: None,
            steps: 0,
            nodes,
            setup,
        }
    }

    fn start(&mut self) {
        self.measure();
        for pool in &self.setup.pools {
            let (name, target) = (outcome::name(pool), outcome::target(pool));
            self.past.entry(name).or_default().insert(target);
        }
        for (at, action) in self.setup.script.clone() {
            self.queue.push(at, Event::Person(action));
        }
        self.queue.push(self.setup.calm, Event::Calm);
        self.queue.push(0, Event::ControllerUp);
        for node in 0..self.nodes.len() {
            self.queue.push(0, Event::Daemon { node, run: 0 });
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Person(action) => self.person(action),
            Event::ToController(notice) => self.controller_hears(&notice),
            Event::PoolsToController => self.controller_sees_pools(),
            Event::ToDaemon(notice) => self.daemon_hears(&notice),
            Event::Sync(pool) => self.sync(&pool),
            Event::ControllerUp => self.controller_up(),
            Event::Drain(node) => self.drain_attempt(node),
            Event::PodGone(pod) => self.pod_gone(pod),
            Event::PodPlaced(pod) => self.place(pod),
            Event::Daemon { node, run } => self.daemon_wakes(node, run),
            Event::Applied { node, run } => self.applied(node, run),
            Event::Boot(node) => self.boot(node),
            Event::Recovers(node) => self.recovers(node),
            Event::Spoils(node) => self.spoils(node),
            Event::Calm => self.calm_down(),
        }
    }

    fn person(&mut self, action: Action) {
        match action {
            Action::Target { pool, config } => {
                self.note(&pool, format!("gets the config {config}"));
                let past = self.past.entry(pool.clone()).or_default();
                if past.insert(config.clone()) {
                    self.reverted.remove(&pool);
                } else {
                    self.reverted.insert(pool.clone());
                }
                self.edit(&pool, |pool| pool.spec.configuration.rendered.name = config);
            }
            Action::Pause(pool) => {
                self.note(&pool, "is paused".to_owned());
                self.edit(&pool, |pool| pool.spec.paused = true);
            }
            Action::Resume(pool) => {
                self.note(&pool, "goes on".to_owned());
                self.edit(&pool, |pool| pool.spec.paused = false);
            }
            Action::Cordon(node) | Action::Uncordon(node) if node >= self.nodes.len() => {}
            Action::Cordon(node) => {
                if !self.is_closed(node) {
                    self.say(node, "is cordoned by somebody");
                    self.host(node).theirs = true;
                    self.write(node, |object| close(object, true));
                }
            }
            Action::Uncordon(node) => {
                if std::mem::take(&mut self.host(node).theirs) && !self.host(node).ours {
                    self.say(node, "is opened again by somebody");
                    self.write(node, |object| close(object, false));
                }
            }
        }
    }

    fn edit(&mut self, pool: &str, change: impl FnOnce(&mut MachineConfigPool)) {
        if let Some(pool) = self.setup.pools.iter_mut().find(|p| outcome::name(p) == pool) {
            change(pool);
        }
        let lag = self.lag();
        self.queue.push(self.now + lag, Event::PoolsToController);
    }

    /// Changes a node in the API server; everybody who watches it hears of it in time.
    pub(crate) fn write(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
        let record = self.nodes.get_mut(node).expect("a node of ours");
        change(Arc::make_mut(&mut record.object));
        record.version += 1;
        let (version, object) = (record.version, record.object.clone());
        let notice = Notice { node, version, object };
        let (first, second) = (self.lag(), self.lag());
        self.queue.push(self.now + first, Event::ToController(notice.clone()));
        self.queue.push(self.now + second, Event::ToDaemon(notice));
        self.changed = self.now;
    }

    pub(crate) fn lag(&mut self) -> Millis {
        if self.strikes(Fault::StaleCache) { 30_000 } else { self.chance.between(2, 200) }
    }

    /// Whether a fault happens that could happen here.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let percent = self.setup.faults.percent(fault);
        !self.calm && self.chance.percent(percent)
    }

    pub(crate) fn host(&mut self, node: usize) -> &mut Host {
        self.hosts.get_mut(node).expect("a node of ours")
    }

    pub(crate) fn node(&self, node: usize) -> &Record {
        self.nodes.get(node).expect("a node of ours")
    }

    pub(crate) fn is_closed(&self, node: usize) -> bool {
        is_closed(&self.node(node).object)
    }

    /// Whether pods can be put on a node.
    pub(crate) fn is_open(&self, node: usize) -> bool {
        self.hosts.get(node).is_some_and(Host::is_well) && !self.is_closed(node)
    }

    pub(crate) fn say(&mut self, node: usize, what: &str) {
        let who = self.node(node).name.clone();
        self.note(&who, what.to_owned());
    }

    pub(crate) fn note(&mut self, who: &str, what: String) {
        self.timeline.push(Entry { at: self.now, who: who.to_owned(), what });
    }

    pub(crate) fn broke(&mut self, rule: Rule, who: &str) {
        let violation = Violation { at: self.now, rule, who: who.to_owned() };
        self.violation.get_or_insert(violation);
    }

    /// Notes whether a node is out of service by our doing, and checks that not too many are.
    pub(crate) fn count_out(&mut self, node: usize) {
        let host = self.hosts.get(node).expect("a node of ours");
        let is_out = host.ours || host.is_rebooting();
        let Some(pool) = self.node(node).pool.clone() else { return };
        let out = self.out.entry(pool.clone()).or_default();
        if is_out {
            out.now.insert(node);
        } else {
            out.now.remove(&node);
        }
        out.most = out.most.max(out.now.len());
        if i64::try_from(out.now.len()).unwrap_or(i64::MAX) > out.allowed {
            self.broke(Rule::MaxUnavailable, &pool);
        }
    }

    /// What moving from one config to another takes, by the real plan.
    pub(crate) fn way(&mut self, from: &str, to: &str) -> Way {
        let key = (from.to_owned(), to.to_owned());
        if let Some(way) = self.plans.get(&key) {
            return *way;
        }
        let way = match (self.setup.configs.get(from), self.setup.configs.get(to)) {
            (Some(old), Some(new)) => planned(old, new, &self.setup),
            // Nothing is known of one of them, so everything may differ.
            (None, _) | (_, None) => Way::Takes { drain: true, reboot: true },
        };
        self.plans.insert(key, way);
        way
    }

    fn calm_down(&mut self) {
        self.calm = true;
        for node in 0..self.hosts.len() {
            self.see_to(node);
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
) -> Way {
    let circumstances = mco_core::plan::Circumstances::default();
    match mco_core::plan::node(old, new, &setup.policies, &circumstances) {
        Err(_) => Way::None,
        Ok(plan) => Way::Takes {
            drain: matches!(plan.drain, mco_core::plan::Drain::Needed(_)),
            reboot: plan.reboots(),
        },
    }
}

pub(crate) fn is_closed(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

pub(crate) fn close(node: &mut Node, closed: bool) {
    node.spec.get_or_insert_default().unschedulable = closed.then_some(true);
}

pub(crate) fn annotate(node: &mut Node, key: &str, value: &str) {
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

pub(crate) fn annotated<'a>(node: &'a Node, key: &str) -> &'a str {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
}

pub(crate) fn set_state(node: &mut Node, state: &DaemonState) {
    annotate(node, annotation::STATE.name(), state.as_str());
}

/// Writes the Ready condition.
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
