use k8s_openapi::{
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
    jiff::Timestamp,
};
use proptest::prelude::*;

use super::*;
use crate::{
    check,
    fixture::nodes,
    rollout::{BuiltImages, ControlPlanePeer, select},
    status::{DaemonReport, Images, Inputs},
};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const ROLES: [&str; 6] = ["worker", "worker infra", "infra", "infra gpu", "master infra", ""];
const STATES: [&str; 12] = [
    "old",
    "done",
    "working",
    "failed",
    "failed-other",
    "working-other",
    "drifted",
    "faulty",
    "silent",
    "old+cordoned",
    "working+drained",
    "old+down",
];

fn pool(name: &str, target: &str) -> MachineConfigPool {
    let mut pool = MachineConfigPool::default();
    pool.metadata.name = Some(name.to_owned());
    target.clone_into(&mut pool.spec.configuration.rendered.name);
    let role = (format!("node-role.kubernetes.io/{name}"), String::new());
    pool.spec.node_selector =
        Some(LabelSelector { match_labels: Some([role].into()), match_expressions: None });
    pool
}

fn labels(roles: &str) -> BTreeMap<String, String> {
    let label = |role: &str| (format!("node-role.kubernetes.io/{role}"), String::new());
    roles.split_whitespace().map(label).collect()
}

fn view(pool: &MachineConfigPool, phase: PoolPhase) -> PoolView {
    PoolView {
        name: pool.metadata.name.clone().unwrap(),
        target: pool.spec.configuration.rendered.name.clone(),
        phase,
        max_unavailable: 2,
        operator_node: None,
        neighbour: ControlPlanePeer::default(),
        built_images: BuiltImages::default(),
    }
}

/// Builds a node whose age follows the alphabet, so that the order is unique.
fn node(name: &str, state: &str) -> NodeView {
    let age = NAMES.iter().position(|known| *known == name).unwrap();
    nodes(&format!("{name}={state}/{age}")).remove(0)
}

/// An event in the cluster.
#[derive(Clone, Debug)]
enum ClusterEvent {
    Node(usize, usize, usize),
    Gone(usize),
    Report(usize, bool),
    ReportGone(usize),
    Target(usize, usize),
    Pools(Vec<usize>),
    Choice(usize),
}

fn cluster_event() -> impl Strategy<Value = ClusterEvent> {
    use ClusterEvent::{Choice, Gone, Node, Pools, Report, ReportGone, Target};
    let name = 0..NAMES.len();
    prop_oneof![
        8 => (name.clone(), 0..ROLES.len(), 0..STATES.len()).prop_map(|(n, r, s)| Node(n, r, s)),
        2 => name.clone().prop_map(Gone),
        3 => (name.clone(), any::<bool>()).prop_map(|(n, degraded)| Report(n, degraded)),
        1 => name.prop_map(ReportGone),
        2 => (0..4usize, 0..3usize).prop_map(|(pool, target)| Target(pool, target)),
        1 => proptest::sample::subsequence(vec![0, 1, 2, 3], 0..=4).prop_map(Pools),
        2 => (0..4usize).prop_map(Choice),
    ]
}

const POOLS: [&str; 4] = ["worker", "infra", "gpu", "master"];

/// The full state of the cluster after all events.
#[derive(Default)]
struct Model {
    pools: BTreeMap<&'static str, MachineConfigPool>,
    nodes: BTreeMap<&'static str, (NodeView, BTreeMap<String, String>)>,
    reports: BTreeMap<&'static str, MachineConfigNodeView>,
}

impl Model {
    fn members(&self, pool: &str) -> Vec<NodeView> {
        let pools = Pools::new(self.pools.values());
        let fits = |(node, labels): &&(NodeView, BTreeMap<String, String>)| {
            pools.of(&node.name, labels).is_ok_and(|found| found.primary() == Some(pool))
        };
        self.nodes.values().filter(fits).map(|(node, _)| node.clone()).collect()
    }

    fn refill(&self, node_index: &mut NodeIndex) {
        if !node_index.has_pools(self.pools.values()) {
            let nodes = self.nodes.values().map(|(node, labels)| (node.clone(), labels));
            node_index.replace(self.pools.values(), nodes);
        }
    }

    fn apply(&mut self, node_index: &mut NodeIndex, what: ClusterEvent) {
        match what {
            ClusterEvent::Node(name, roles, state) => {
                let node = node(NAMES[name], STATES[state]);
                let labels = labels(ROLES[roles]);
                node_index.set_node(node.clone(), &labels);
                self.nodes.insert(NAMES[name], (node, labels));
            }
            ClusterEvent::Gone(name) => {
                node_index.remove_node(NAMES[name]);
                self.nodes.remove(NAMES[name]);
            }
            ClusterEvent::Report(name, degraded) => {
                let report = MachineConfigNodeView {
                    daemon_report: DaemonReport::Present,
                    degraded: degraded.then(|| "disk full".to_owned()),
                    images: Images::Pulled,
                    ..MachineConfigNodeView::without_report(NAMES[name])
                };
                node_index.set_machine_config_node(report.clone());
                self.reports.insert(NAMES[name], report);
            }
            ClusterEvent::ReportGone(name) => {
                node_index.remove_machine_config_node(NAMES[name]);
                self.reports.remove(NAMES[name]);
            }
            ClusterEvent::Target(name, target) => {
                if let Some(pool) = self.pools.get_mut(POOLS[name]) {
                    ["new", "bad", "old"][target]
                        .clone_into(&mut pool.spec.configuration.rendered.name);
                }
            }
            ClusterEvent::Pools(names) => {
                let before = std::mem::take(&mut self.pools);
                for name in names {
                    let name = POOLS[name];
                    let known = before.get(name).cloned();
                    self.pools.insert(name, known.unwrap_or_else(|| pool(name, "new")));
                }
                self.refill(node_index);
            }
            ClusterEvent::Choice(name) => {
                // A selected node is updating from then on.
                let Some(pool) = self.pools.get(POOLS[name]) else { return };
                let plan = node_index.choose(&view(pool, PoolPhase::Active), None);
                for name in NAMES.iter().filter(|name| plan.starts.iter().any(|s| s == *name)) {
                    let (node, labels) = self.nodes.get_mut(name).expect("only members start");
                    node.desired.clone_from(&plan.target);
                    node_index.set_node(node.clone(), labels);
                }
            }
        }
    }

    fn compare(&self, node_index: &mut NodeIndex) {
        let now = Time(Timestamp::UNIX_EPOCH);
        let reports: Vec<MachineConfigNodeView> = self.reports.values().cloned().collect();
        for (name, pool) in &self.pools {
            let members = self.members(name);
            for phase in [PoolPhase::Active, PoolPhase::Paused] {
                let view = view(pool, phase);
                let expected = select(&view, &members);
                let plan = node_index.choose(&view, None);
                assert_eq!(plan.starts, expected.starts, "{name}");
                assert_eq!(plan.repairs, expected.repairs, "{name}");
                let fleet = node_index.pool_nodes(name).unwrap();
                assert_eq!(check::rollout(&plan, &view, fleet), Ok(()));
                node_index.set_decision(name, RolloutDecision::of(&view, &plan));
                let waits = |node: &&NodeView| !plan.starts.contains(&node.name);
                let holds: BTreeMap<String, Hold> = members
                    .iter()
                    .filter(waits)
                    .filter_map(|node| {
                        Some((node.name.clone(), node_index.pending_update(&node.name)?.hold))
                    })
                    .collect();
                assert_eq!(holds, expected.holds.into_iter().collect(), "{name}");
            }
            let inputs = Inputs {
                pool,
                nodes: &members,
                reports: &reports,
                context: StatusContext::default(),
                now: now.clone(),
            };
            let status = node_index.status(pool, &StatusContext::default(), &now).unwrap();
            assert_eq!(status, status::pool(&inputs), "{name}");
        }
    }
}

proptest! {
    #[test]
    fn the_index_equals_a_full_scan_of_all_nodes(
        story in proptest::collection::vec(cluster_event(), 0..40),
    ) {
        let (mut model, mut node_index) = (Model::default(), NodeIndex::default());
        model.apply(&mut node_index, ClusterEvent::Pools(vec![0, 1, 2, 3]));
        for what in story {
            model.apply(&mut node_index, what);
            model.compare(&mut node_index);
        }
    }
}

// covers: NOD-33
#[test]
fn an_event_affects_only_its_own_pools() {
    let pools = [pool("worker", "new"), pool("infra", "new")];
    let mut node_index = NodeIndex::new(&pools);
    let mut set = |state: &str, roles: &str| node_index.set_node(node("a", state), &labels(roles));
    assert_eq!(set("old", "worker"), ["worker"]);
    assert_eq!(set("old", "worker"), [""; 0], "nothing changed");
    assert_eq!(set("working", "worker"), ["worker"]);
    assert_eq!(set("working", "worker infra"), ["worker", "infra"]);
    assert_eq!(set("working", ""), ["infra"]);
    assert_eq!(set("done", ""), [""; 0], "nobody's");
    assert_eq!(set("done", "infra"), ["infra"]);
    let report = MachineConfigNodeView {
        daemon_report: DaemonReport::Present,
        ..MachineConfigNodeView::without_report("a")
    };
    assert_eq!(node_index.set_machine_config_node(report.clone()).as_deref(), Some("infra"));
    assert_eq!(node_index.set_machine_config_node(report), None, "nothing changed");
    assert_eq!(node_index.remove_node("a"), ["infra"]);
    assert_eq!(node_index.remove_node("a"), [""; 0]);
    assert_eq!(node_index.remove_machine_config_node("a"), None, "its node is gone");
}

#[test]
fn changed_pools_and_selectors_are_detected() {
    let mut pools = vec![pool("worker", "new"), pool("infra", "new")];
    let mut node_index = NodeIndex::new(&pools);
    node_index.set_node(node("a", "old"), &labels("worker infra"));
    assert!(node_index.has_pools(&pools));
    pools[0].spec.configuration.rendered.name = "other".to_owned();
    assert!(node_index.has_pools(&pools), "a changed target is not a changed selector");
    let gone = pools.split_off(1);
    assert!(!node_index.has_pools(&pools));
    let all = labels("worker infra");
    node_index.replace(&pools, [(node("a", "old"), &all)]);
    assert_eq!(node_index.pool_of("a"), Ok(Some("worker")));
    assert!(node_index.pool_nodes(gone[0].metadata.name.as_deref().unwrap()).is_none());
    pools[0].spec.node_selector = None;
    assert!(!node_index.has_pools(&pools));
}

#[test]
fn nodes_have_a_reason_to_wait_while_max_unavailable_is_invalid() {
    let mut pools = [pool("worker", "old")];
    let mut node_index = NodeIndex::new(&pools);
    pools[0].spec.configuration.rendered.name = "new".to_owned();
    node_index.set_node(node("a", "old"), &labels("worker"));
    node_index.set_node(node("b", "done"), &labels("worker"));
    assert_eq!(node_index.pending_update("a"), None, "nothing has been decided yet");
    let fault = || Hold::BadLimit(rollout::BadLimit::NotAPercentage);
    let decision = |phase| RolloutDecision::refused("new", phase, fault());
    assert!(node_index.set_decision("worker", decision(PoolPhase::Active)));
    assert!(!node_index.set_decision("worker", decision(PoolPhase::Active)), "nothing new");
    let wait = node_index.pending_update("a").unwrap();
    assert_eq!(wait.target, "new");
    assert_eq!(
        wait.hold.to_string(),
        "the pool's maxUnavailable: invalid value for IntOrString: invalid type: string is not a \
         percentage"
    );
    assert_eq!(node_index.pending_update("b"), None, "the node has the target already");
    let mut strange = pools[0].clone();
    strange.spec.max_unavailable = Some(IntOrString::String("many".to_owned()));
    let waiting: Vec<String> =
        node_index.holds(&strange).into_iter().map(|(node, _)| node).collect();
    assert_eq!(waiting, ["a"]);
    assert_eq!(node_index.holds(&pools[0]), [], "the node would be selected now");
    assert!(node_index.set_decision("worker", decision(PoolPhase::Paused)));
    assert_eq!(node_index.pending_update("a").unwrap().hold, Hold::Paused);
}
