//! Benchmark of a simulated rollout, which must grow no faster than the number of nodes.

use std::{collections::BTreeMap, hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion};
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use mco_api::{MachineConfigPool, MachineConfigPoolSpec, annotation, annotation::DaemonState};
use mco_core::{machine::Machine, plan::default_policies, rollout::PoolNodes};
use mco_sim::{Faults, Setup, StepTimes, UserAction};

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("simulate");
    for nodes in [100, 1_000, 10_000] {
        let setup = setup(nodes);
        group.bench_function(BenchmarkId::new("nodes", nodes), |bencher| {
            bencher.iter(|| {
                let report = mco_sim::run(black_box(setup.clone()));
                assert!(report.is_complete(), "every node reaches its target");
                report.steps
            });
        });
    }
    group.finish();
    criterion.final_summary();
}

fn setup(nodes: usize) -> Setup {
    let mut pool = MachineConfigPool::new("worker", MachineConfigPoolSpec::default());
    let role = ("node-role.kubernetes.io/worker".to_owned(), String::new());
    pool.spec.node_selector =
        Some(LabelSelector { match_labels: Some([role].into()), match_expressions: None });
    pool.spec.max_unavailable = Some(IntOrString::String("10%".to_owned()));
    "old".clone_into(&mut pool.spec.configuration.rendered.name);
    let change = UserAction::Target { pool: "worker".to_owned(), config: "new".to_owned() };
    Setup {
        seed: 1,
        pools: vec![pool],
        nodes: (0..nodes).map(node).collect(),
        configs: ["old", "new"].map(config).into(),
        policies: default_policies(),
        flaws: BTreeMap::new(),
        pods: Vec::new(),
        budgets: Vec::new(),
        script: vec![(1_000, change)],
        faults: Faults::default(),
        faults_end: 0,
        deadline: 48 * 3_600_000,
        times: StepTimes::default(),
        chooser: PoolNodes::select,
        requires_convergence: true,
        bug: None,
        interruption: None,
    }
}

fn config(name: &str) -> (String, Arc<Machine>) {
    let mut machine = Machine::blank();
    name.clone_into(&mut machine.name);
    machine.spec.kernel_arguments.push(name.to_owned());
    (name.to_owned(), Arc::new(machine))
}

fn node(index: usize) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(format!("worker-{index}"));
    node.metadata.labels = Some(BTreeMap::from([
        ("node-role.kubernetes.io/worker".to_owned(), String::new()),
        ("topology.kubernetes.io/zone".to_owned(), format!("zone-{}", index % 3)),
    ]));
    let mut annotations = BTreeMap::new();
    annotations.insert(annotation::CURRENT_CONFIG.name().to_owned(), "old".to_owned());
    annotations.insert(annotation::DESIRED_CONFIG.name().to_owned(), "old".to_owned());
    annotation::STATE.set(&mut annotations, &DaemonState::Done);
    node.metadata.annotations = Some(annotations);
    node
}
