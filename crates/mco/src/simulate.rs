//! Builds a simulation from the output of `kubectl get` and a change.
//!
//! Both configs of a pool are rendered here in the same way, so that only the change differs.

mod pods;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfiguration,
    annotation::{self, DaemonState},
    machine_configuration::disruption::ClusterPolicies,
};
use mco_core::{
    lint::{Manifests, Object, Pool},
    machine::Machine,
    membership::Pools,
    plan::{default_policies, merge_policies},
    render::SelectError,
    rollout::PoolNodes,
};
use mco_sim::{Faults, Millis, Setup, StepTimes, UserAction};
use serde::de::DeserializeOwned;

use crate::{
    error::{FaultsError, error_with_hint},
    load::{Loaded, manifests::ManifestsExt as _},
};

const HOUR: Millis = 3_600_000;

/// Upper bound of the duration of one update; a longer rollout counts as stuck.
const MAX_NODE_TIME: Millis = HOUR / 6;

/// Time at which the change is applied.
const CHANGE_AT: Millis = 1_000;

/// Options of a simulation.
#[derive(Debug)]
pub(crate) struct SimulationOptions {
    pub(crate) seed: u64,
    pub(crate) nodes: Option<usize>,
    pub(crate) faults: Faults,
}

/// The objects that describe the fleet.
#[derive(Default)]
struct FleetObjects {
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    budgets: Vec<PodDisruptionBudget>,
}

/// Builds the simulation of a change to the fleet of the dump.
pub(crate) fn setup(
    dump: Loaded,
    change: &Loaded,
    options: SimulationOptions,
) -> anyhow::Result<Setup> {
    let mut fleet = FleetObjects::of(&dump)?;
    let policies = policies(&dump, change)?;
    let after = changed(&dump, change).into_manifests().or_refuse()?;
    let before = dump.into_manifests().or_refuse()?;
    after.print_notes(false);
    let mut configs = BTreeMap::new();
    for manifest in before.all_configs().chain(after.all_configs()) {
        let name = manifest.object.name.clone();
        if name.starts_with(mco_api::name::RENDERED_PREFIX) {
            configs.insert(name, Arc::new(Machine::read(&manifest.value)?));
        }
    }
    let mut script = Vec::new();
    let mut known = Vec::new();
    for mut pool in pools(&before) {
        let name = pool.metadata.name.clone().unwrap_or_default();
        // A pool without MachineConfigs has no config, and its nodes are not simulated.
        let Some(new) = rendered(&after, &name)? else { continue };
        let old = rendered(&before, &name)?.unwrap_or_else(Machine::blank);
        let target = &mut pool.spec.configuration.rendered.name;
        if target.is_empty() {
            target.clone_from(&old.name);
        }
        if old.name != new.name {
            script.push((CHANGE_AT, UserAction::Target { pool: name, config: new.name.clone() }));
        }
        configs.insert(target.clone(), Arc::new(Machine { name: target.clone(), ..old }));
        configs.insert(new.name.clone(), Arc::new(new));
        known.push(pool);
    }
    let pools = known;
    if let Some(count) = options.nodes {
        fleet.nodes = generated_workers(count);
        fleet.pods.clear();
    }
    if fleet.nodes.is_empty() {
        return Err(error_with_hint(
            "the input contains no Node",
            "pipe `kubectl get mc,mcp,nodes,pods,pdb -A -o yaml` into -f -, or add --nodes N",
        ));
    }
    set_initial_config(&mut fleet.nodes, &pools);
    let deadline = 48 * HOUR + MAX_NODE_TIME * u64::try_from(fleet.nodes.len()).unwrap_or_default();
    Ok(Setup {
        seed: options.seed,
        budgets: pods::budgets(&fleet.pods, &fleet.budgets),
        nodes: fleet.nodes,
        pods: fleet.pods,
        pools,
        configs,
        policies,
        flaws: BTreeMap::new(),
        script,
        faults: options.faults,
        faults_end: 24 * HOUR,
        deadline,
        times: StepTimes::default(),
        chooser: PoolNodes::select,
        requires_convergence: false,
        bug: None,
        interruption: None,
    })
}

impl FleetObjects {
    fn of(loaded: &Loaded) -> anyhow::Result<Self> {
        Ok(Self {
            nodes: all(loaded, "Node")?,
            pods: all(loaded, "Pod")?,
            budgets: all(loaded, "PodDisruptionBudget")?,
        })
    }
}

fn all<T: DeserializeOwned>(loaded: &Loaded, kind: &str) -> anyhow::Result<Vec<T>> {
    let objects = loaded.objects.iter().filter(|object| object.kind == kind);
    let read = |object: &Object| {
        object.root.typed::<T>().map_err(|error| FaultsError(vec![object.type_fault(error)]).into())
    };
    objects.map(read).collect()
}

/// Returns the node disruption policies of the last MachineConfiguration in the input.
fn policies(dump: &Loaded, change: &Loaded) -> anyhow::Result<ClusterPolicies> {
    let kind = "MachineConfiguration";
    let mut given: Vec<MachineConfiguration> = all(dump, kind)?;
    given.extend(all(change, kind)?);
    let policy = given.pop().and_then(|object| object.spec.node_disruption_policy);
    Ok(policy.map_or_else(default_policies, |policy| merge_policies(&policy)))
}

/// Returns the objects of the dump with those of the change put in.
fn changed(dump: &Loaded, change: &Loaded) -> Loaded {
    let is_replaced = |label: &str| change.objects.iter().any(|object| object.label() == label);
    let kept = dump.objects.iter().filter(|object| !is_replaced(&object.label()));
    let objects = kept.cloned().chain(change.objects.iter().cloned()).collect();
    let faults = dump.faults.iter().chain(&change.faults).cloned().collect();
    Loaded { objects, faults }
}

/// Returns the pools; assumed pools select nodes by their role.
fn pools(manifests: &Manifests) -> Vec<MachineConfigPool> {
    let read = |pool: &Pool| {
        let mut value = pool.value.clone();
        let role = (format!("node-role.kubernetes.io/{}", pool.name), String::new());
        let selector = LabelSelector { match_labels: Some([role].into()), match_expressions: None };
        value.spec.node_selector.get_or_insert(selector);
        value
    };
    manifests.pools.iter().map(read).collect()
}

/// Returns the rendered config of a pool; `None` if the pool selects no MachineConfig.
fn rendered(manifests: &Manifests, pool: &str) -> anyhow::Result<Option<Machine>> {
    let Some(pool) = manifests.pools.iter().find(|known| known.name.as_str() == pool) else {
        return Ok(None);
    };
    match manifests.render(pool) {
        Ok(rendered) => {
            let config = MachineConfig::new(rendered.name.as_str(), rendered.spec);
            Ok(Some(Machine::read(&config)?))
        }
        Err(error) => match error.downcast_ref::<SelectError>() {
            Some(SelectError::Nothing(_)) => Ok(None),
            Some(SelectError::BadSelector { .. }) | None => Err(error),
        },
    }
}

/// Returns this many workers.
fn generated_workers(count: usize) -> Vec<Node> {
    let node = |index: usize| {
        let mut node = Node::default();
        node.metadata.name = Some(format!("worker-{index}"));
        let role = ("node-role.kubernetes.io/worker".to_owned(), String::new());
        node.metadata.labels = Some([role].into());
        node
    };
    (0..count).map(node).collect()
}

/// Sets the config of the pool on nodes without a current config.
fn set_initial_config(nodes: &mut [Node], pools: &[MachineConfigPool]) {
    let membership = Pools::new(pools);
    for node in nodes {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let found = membership.of("", &labels).ok();
        let name = found.as_ref().and_then(|found| found.primary());
        let pool = pools.iter().find(|pool| pool.metadata.name.as_deref() == name);
        let Some(pool) = pool.filter(|_| name.is_some()) else { continue };
        let annotations = node.metadata.annotations.get_or_insert_default();
        if annotations.contains_key(annotation::CURRENT_CONFIG.name()) {
            continue;
        }
        let target = &pool.spec.configuration.rendered.name;
        for key in [annotation::CURRENT_CONFIG.name(), annotation::DESIRED_CONFIG.name()] {
            annotations.insert(key.to_owned(), target.clone());
        }
        annotation::STATE.set(annotations, &DaemonState::Done);
    }
}
