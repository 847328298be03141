//! Benchmark of a pool's status: a scan of all nodes, and one node event.
//!
//! The second must not depend on the number of nodes. Nodes are spread over 2 or 10 pools; the
//! results are for all pools together, as in a controller that reconciles every pool once.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mco_api::MachineConfigPool;
use mco_core::{
    rollout::NodeView,
    status::{
        self, DaemonReport, ImageBuild, Inputs, MachineConfigNodeView, StatusContext, StatusCounter,
    },
};
use serde_json::json;

const SIZES: [usize; 4] = [100, 1_000, 5_000, 20_000];

struct Fleet {
    pool: MachineConfigPool,
    nodes: Vec<NodeView>,
    reports: Vec<MachineConfigNodeView>,
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .measurement_time(std::time::Duration::from_secs(2))
        .configure_from_args();
    for pools in [2, 10] {
        let mut group = criterion.benchmark_group(format!("status, {pools} pools"));
        for size in SIZES {
            let fleets: Vec<Fleet> = (0..pools).map(|_| fleet(size / pools)).collect();
            group.bench_function(BenchmarkId::new("all nodes", size), |bencher| {
                bencher.iter(|| fleets.iter().map(whole).count());
            });
            let mut counters: Vec<(StatusCounter, &Fleet)> = fleets.iter().map(counted).collect();
            let (counter, fleet) = counters.first_mut().expect("there are pools");
            group.bench_function(BenchmarkId::new("one event", size), |bencher| {
                bencher.iter(|| event(counter, fleet));
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

fn whole(fleet: &Fleet) -> i32 {
    let Fleet { pool, nodes, reports } = fleet;
    let (now, around) = (now(), StatusContext::default());
    let status = status::pool(black_box(&Inputs { pool, nodes, reports, context: around, now }));
    black_box(status).machine_count
}

fn counted(fleet: &Fleet) -> (StatusCounter, &Fleet) {
    let mut counter = StatusCounter::new(&fleet.pool, &ImageBuild::default());
    for (node, report) in fleet.nodes.iter().zip(&fleet.reports) {
        counter.put(node, Some(report));
    }
    (counter, fleet)
}

/// One MachineConfigNode changes, and the status of its pool is computed again.
fn event(counter: &mut StatusCounter, fleet: &Fleet) -> i32 {
    let middle = fleet.nodes.len() / 2;
    let node = fleet.nodes.get(middle).expect("pools have nodes");
    counter.put(black_box(node), fleet.reports.get(middle));
    let status = status::from_counter(&fleet.pool, counter, &StatusContext::default(), &now());
    black_box(status).updated_machine_count
}

/// Builds a pool during an update: three nodes failed, a third is done.
///
/// A status names every failed node, so its cost grows with those; their number is the same in
/// every pool.
fn fleet(size: usize) -> Fleet {
    let mut pool = MachineConfigPool::default();
    "rendered-worker-new".clone_into(&mut pool.spec.configuration.rendered.name);
    let nodes: Vec<NodeView> = (0..size).map(node).collect();
    let report = |node: &NodeView| MachineConfigNodeView {
        daemon_report: DaemonReport::Present,
        degraded: node.is_degraded().then(|| "disk full".to_owned()),
        ..MachineConfigNodeView::without_report(&node.name)
    };
    let reports = nodes.iter().map(report).collect();
    Fleet { pool, nodes, reports }
}

fn node(number: usize) -> NodeView {
    let (current, desired, state) = match number % 100 {
        _ if number < 3 => ("old", "new", "Degraded"),
        1..=33 => ("new", "new", "Done"),
        _ => ("old", "old", "Done"),
    };
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": format!("worker-{number:05}"),
            "annotations": {
                key("currentConfig"): format!("rendered-worker-{current}"),
                key("desiredConfig"): format!("rendered-worker-{desired}"),
                key("state"): state,
                key("reason"): if state == "Degraded" { "disk full" } else { "" },
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .expect("a node");
    NodeView::of(&node)
}

fn now() -> Time {
    Time(Timestamp::UNIX_EPOCH)
}
