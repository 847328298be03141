//! The objects of a scenario.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::util::intstr::IntOrString,
};
use mco_api::{MachineConfigPool, MachineConfigPoolSpec, annotation, annotation::DaemonState};
use mco_core::{machine::Machine, plan::default_policies};
use mco_ignition::config::File;
use mco_sim::{Budget, Bug, Chooser, Flaw, Setup, StepTimes};
use serde_json::json;

use super::{CALM, MINUTE, Scenario};

pub(super) fn setup(scenario: &Scenario, chooser: Chooser, bug: Option<Bug>) -> Setup {
    let nodes = nodes(scenario);
    let pods = pods(scenario, &nodes);
    let flaws = scenario.flaw.map(|flaw| ("first".to_owned(), flaw));
    let limit = IntOrString::Int(scenario.max_unavailable);
    Setup {
        seed: scenario.seed,
        pools: vec![pool("worker", Some(limit)), pool("infra", None)],
        configs: configs(scenario.reboots),
        policies: default_policies(),
        flaws: flaws.into_iter().collect(),
        budgets: budgets(pods.len(), scenario),
        pods,
        nodes,
        script: scenario.script.clone(),
        faults: scenario.faults.clone(),
        faults_end: CALM,
        deadline: CALM + 48 * 60 * MINUTE,
        times: StepTimes::default(),
        chooser,
        requires_convergence: true,
        bug,
        interruption: scenario.interruption.clone(),
    }
}

fn pool(name: &str, max_unavailable: Option<IntOrString>) -> MachineConfigPool {
    let mut pool = MachineConfigPool::new(name, MachineConfigPoolSpec::default());
    let selector = json!({"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}});
    pool.spec.node_selector = serde_json::from_value(selector).ok();
    pool.spec.max_unavailable = max_unavailable;
    "old".clone_into(&mut pool.spec.configuration.rendered.name);
    pool
}

/// Builds three configs that differ in a file, or in a kernel argument if a reboot is required.
fn configs(reboots: bool) -> BTreeMap<String, Arc<Machine>> {
    let config = |name: &str| {
        let mut machine = Machine::blank();
        name.clone_into(&mut machine.name);
        if reboots {
            machine.spec.kernel_arguments.push(name.to_owned());
        } else {
            // The default policies allow changes of this file without a drain.
            let mut file = File {
                path: "/etc/mco/internal-registry-pull-secret.json".to_owned(),
                ..File::default()
            };
            file.contents.source = Some(format!("data:,{name}"));
            machine.config.storage.files.push(file);
        }
        (name.to_owned(), Arc::new(machine))
    };
    ["old", "first", "second"].map(config).into()
}

fn nodes(scenario: &Scenario) -> Vec<Node> {
    let workers = (0..scenario.workers).map(|index| node("worker", index));
    workers.chain((0..scenario.others).map(|index| node("infra", index))).collect()
}

fn node(role: &str, index: usize) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(format!("{role}-{index}"));
    let zone = ["a", "b", "c"].get(index % 3).copied().unwrap_or_default();
    node.metadata.labels = Some(BTreeMap::from([
        (format!("node-role.kubernetes.io/{role}"), String::new()),
        ("topology.kubernetes.io/zone".to_owned(), zone.to_owned()),
    ]));
    node.metadata.annotations = Some(BTreeMap::from([
        (annotation::CURRENT_CONFIG.name().to_owned(), "old".to_owned()),
        (annotation::DESIRED_CONFIG.name().to_owned(), "old".to_owned()),
        (annotation::STATE.name().to_owned(), DaemonState::Done.as_str().to_owned()),
        // As after the update that brought the node to this config.
        (annotation::DESIRED_DRAIN.name().to_owned(), "uncordon-old".to_owned()),
        (annotation::LAST_APPLIED_DRAIN.name().to_owned(), "uncordon-old".to_owned()),
    ]));
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    node.status = serde_json::from_value(ready).ok();
    node
}

fn pods(scenario: &Scenario, nodes: &[Node]) -> Vec<Pod> {
    let pod = |(index, node): (usize, &Node)| {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("web-{index}"), "namespace": "shop",
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1",
                    "controller": true,
                }],
            },
            "spec": {"nodeName": node.metadata.name, "containers": []},
        }))
        .ok()
    };
    let each = nodes.iter().flat_map(|node| std::iter::repeat_n(node, scenario.pods));
    each.enumerate().filter_map(pod).collect()
}

/// Builds a budget that allows one disruption, if the pods always have another node to go to.
fn budgets(pods: usize, scenario: &Scenario) -> Vec<Budget> {
    let room = usize::try_from(scenario.max_unavailable).is_ok_and(|max| scenario.workers > max);
    if scenario.blocked {
        let name = "shop/web".to_owned();
        return vec![Budget { name, pods: (0..pods).collect(), min_available: pods }];
    }
    let tight = pods > 1 && room && scenario.flaw != Some(Flaw::NotReadyLater);
    let budget = Budget {
        name: "shop/web".to_owned(),
        pods: (0..pods).collect(),
        min_available: pods.saturating_sub(1),
    };
    tight.then_some(budget).into_iter().collect()
}
