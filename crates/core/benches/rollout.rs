//! How long it takes to choose nodes, and what one node event costs in pools of different sizes.
//!
//! `select` starts from nothing, as after a restart. `event` is what a running controller does: take
//! in one changed node, find its pool, choose again. It must not grow with the number of nodes.

use std::{collections::BTreeMap, hint::black_box};

use criterion::{BenchmarkId, Criterion};
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
};
use mco_api::{MachineConfigPool, MachineConfigPoolSpec, annotation, annotation::DaemonState};
use mco_core::{
    membership::{Index, Pools},
    rollout::{self, Fleet, Neighbour, NodeView, Phase, PoolView},
};

const SIZES: [usize; 4] = [100, 1_000, 5_000, 20_000];
const POOLS: [usize; 2] = [2, 10];

fn main() {
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    select(&mut criterion);
    membership(&mut criterion);
    event(&mut criterion);
    criterion.final_summary();
}

fn select(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rollout/select");
    for size in SIZES {
        let nodes: Vec<NodeView> =
            (0..size).map(|index| NodeView::of(&node(index, "p0"))).collect();
        let pool = pool_view(size);
        group.bench_function(BenchmarkId::new("nodes", size), |bencher| {
            bencher.iter(|| rollout::select(black_box(&pool), black_box(&nodes)));
        });
    }
    group.finish();
}

fn membership(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("membership/all-nodes");
    for (size, count) in SIZES.into_iter().flat_map(|size| POOLS.map(|count| (size, count))) {
        let pools = Pools::new(&pools(count));
        let labels: Vec<_> = (0..size).map(|index| labels(index, &role(index, count))).collect();
        let id = BenchmarkId::new(format!("{count}-pools"), size);
        group.bench_function(id, |bencher| {
            bencher.iter(|| labels.iter().filter(|labels| pools.of("n", labels).is_ok()).count());
        });
    }
    group.finish();
}

/// One node goes down and comes back; each time its pool is found and chosen for.
fn event(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rollout/event");
    for (size, count) in SIZES.into_iter().flat_map(|size| POOLS.map(|count| (size, count))) {
        let mut index = Index::new(Pools::new(&pools(count)));
        let mut fleets: BTreeMap<String, Fleet> = BTreeMap::new();
        for number in 0..size {
            let node = node(number, &role(number, count));
            take_in(&mut index, &mut fleets, &node);
        }
        let well = node(size / 2, &role(size / 2, count));
        let mut working = well.clone();
        let annotations = working.metadata.annotations.get_or_insert_default();
        annotation::STATE.set(annotations, &DaemonState::Working);
        let pool = pool_view(size);
        let id = BenchmarkId::new(format!("{count}-pools"), size);
        group.bench_function(id, |bencher| {
            let mut turn = false;
            bencher.iter(|| {
                turn = !turn;
                let node = if turn { &working } else { &well };
                let fleet = take_in(&mut index, &mut fleets, node).expect("its pool");
                black_box(fleet.choose(&pool))
            });
        });
    }
    group.finish();
}

fn take_in<'f>(
    index: &mut Index,
    fleets: &'f mut BTreeMap<String, Fleet>,
    node: &Node,
) -> Option<&'f mut Fleet> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let moved = index.set(name, node.metadata.labels.as_ref().expect("labels"));
    let fleet = fleets.entry(moved.to?).or_insert_with(|| Fleet::toward("rendered-new"));
    fleet.set(NodeView::of(node));
    Some(fleet)
}

fn pool_view(size: usize) -> PoolView {
    PoolView {
        name: "p0".to_owned(),
        target: "rendered-new".to_owned(),
        phase: Phase::Active,
        // One more than are out of service, so that every choice has something to choose.
        max_unavailable: i64::try_from(size / 10 + 2).expect("small"),
        operator_node: None,
        neighbour: Neighbour::default(),
    }
}

fn pools(count: usize) -> Vec<MachineConfigPool> {
    let pool = |index: usize| {
        let mut pool =
            MachineConfigPool::new(&format!("p{index}"), MachineConfigPoolSpec::default());
        let role = (format!("node-role.kubernetes.io/p{index}"), String::new());
        pool.spec.node_selector =
            Some(LabelSelector { match_labels: Some([role].into()), match_expressions: None });
        pool
    };
    (0..count).map(pool).collect()
}

fn role(index: usize, pools: usize) -> String {
    format!("p{}", index % pools)
}

fn labels(index: usize, role: &str) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> =
        (0..6).map(|key| (format!("example.com/label-{key}"), format!("value-{index}"))).collect();
    labels.insert(format!("node-role.kubernetes.io/{role}"), String::new());
    labels.insert("topology.kubernetes.io/zone".to_owned(), format!("zone-{}", index % 3));
    labels
}

/// A node in one of the states of a roll-out under way: three of ten done, one at it.
fn node(index: usize, role: &str) -> Node {
    let (current, desired, state) = match index % 10 {
        0..3 => ("rendered-new", "rendered-new", DaemonState::Done),
        3 => ("rendered-old", "rendered-new", DaemonState::Working),
        _ => ("rendered-old", "rendered-old", DaemonState::Done),
    };
    let mut node = Node::default();
    node.metadata.name = Some(format!("node-{index:05}"));
    node.metadata.labels = Some(labels(index, role));
    let mut annotations: BTreeMap<String, String> =
        (0..5).map(|key| (format!("example.com/annotation-{key}"), "value".to_owned())).collect();
    annotations.insert(annotation::CURRENT_CONFIG.name().to_owned(), current.to_owned());
    annotations.insert(annotation::DESIRED_CONFIG.name().to_owned(), desired.to_owned());
    annotation::STATE.set(&mut annotations, &state);
    node.metadata.annotations = Some(annotations);
    let time = format!("\"2026-01-{:02}T00:00:00Z\"", index % 28 + 1);
    node.metadata.creation_timestamp = serde_json::from_str::<Time>(&time).ok();
    node
}
