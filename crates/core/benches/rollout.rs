//! Benchmark of node selection, and of one node event in pools of different sizes.
//!
//! `select` starts from nothing, as after a restart. `event` is the work of a running controller:
//! update one changed node, find its pool, select again, count again. Its cost must not grow with
//! the number of nodes. A selection costs time in proportion to the selected nodes, so every pool
//! has room for one.

use std::{collections::BTreeMap, hint::black_box};

use criterion::{BenchmarkId, Criterion};
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
    jiff::Timestamp,
};
use mco_api::{MachineConfigPool, MachineConfigPoolSpec, annotation, annotation::DaemonState};
use mco_core::{
    membership::Pools,
    node_index::NodeIndex,
    rollout::{self, BuiltImages, ControlPlanePeer, NodeView, PoolPhase, PoolView},
    status::StatusContext,
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
            (0..size).map(|index| NodeView::of(&node(index, index, "p0"))).collect();
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

/// A node becomes unready and ready again; each time its pool is found, selected from and counted.
fn event(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rollout/event");
    for (size, count) in SIZES.into_iter().flat_map(|size| POOLS.map(|count| (size, count))) {
        let pools = pools(count);
        let mut node_index = NodeIndex::new(&pools);
        for number in 0..size {
            set_node(&mut node_index, &node(number / count, number, &role(number, count)));
        }
        let pool = pools.first().expect("there are pools");
        let well = node(4, 4 * count, &role(0, count));
        let mut down = well.clone();
        let annotations = down.metadata.annotations.get_or_insert_default();
        annotation::REASON.set(annotations, &"a disk is slow".to_owned());
        let slots = node_index.pool_nodes("p0").expect("a pool").counts().slots;
        let view = PoolView {
            max_unavailable: i64::try_from(slots + 1).expect("small"),
            ..pool_view(size)
        };
        let id = BenchmarkId::new(format!("{count}-pools"), size);
        group.bench_function(id, |bencher| {
            let mut turn = false;
            bencher.iter(|| {
                turn = !turn;
                set_node(&mut node_index, if turn { &down } else { &well });
                let plan = node_index.choose(&view, None);
                assert_eq!(plan.starts.len(), 1, "every pool selects the same number of nodes");
                let now = Time(Timestamp::UNIX_EPOCH);
                black_box((plan, node_index.status(pool, &StatusContext::default(), &now)))
            });
        });
    }
    group.finish();
}

fn set_node(node_index: &mut NodeIndex, node: &Node) {
    black_box(
        node_index.set_node(NodeView::of(node), node.metadata.labels.as_ref().expect("labels")),
    );
}

fn pool_view(size: usize) -> PoolView {
    PoolView {
        name: "p0".to_owned(),
        target: "rendered-new".to_owned(),
        phase: PoolPhase::Active,
        max_unavailable: i64::try_from(size / 10 + 2).expect("small"),
        operator_node: None,
        neighbour: ControlPlanePeer::default(),
        built_images: BuiltImages::default(),
    }
}

fn pools(count: usize) -> Vec<MachineConfigPool> {
    let pool = |index: usize| {
        let mut pool =
            MachineConfigPool::new(&format!("p{index}"), MachineConfigPoolSpec::default());
        "rendered-new".clone_into(&mut pool.spec.configuration.rendered.name);
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

/// Builds the `place`th node of its pool, in one of the states of a running rollout: three of ten
/// are done, one is working.
fn node(place: usize, index: usize, role: &str) -> Node {
    let (current, desired, state) = match place % 10 {
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
