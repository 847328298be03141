//! Makes a simulation from what `kubectl get` prints: the fleet as it is, and the change.
//!
//! Both configs of a pool are rendered here, in the same way, so that only the change differs.

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
    machine::Machine,
    membership::Pools,
    plan::{default_policies, merge_policies},
    render::SelectError,
    rollout::Fleet,
};
use mco_sim::{Action, Faults, Millis, Pace, Setup};
use serde::de::DeserializeOwned;

use crate::{
    fault::{Advice, Refused},
    load::{Loaded, manifests::Manifests},
};

const HOUR: Millis = 3_600_000;

/// Far more than one node takes; a roll-out that takes longer for each does not end at all.
const A_NODE: Millis = HOUR / 6;

/// When the change is made.
const CHANGE: Millis = 1_000;

/// What a person asks for besides the input.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) seed: u64,
    pub(crate) nodes: Option<usize>,
    pub(crate) faults: Faults,
}

/// The objects that say what the fleet is like.
#[derive(Default)]
struct Cluster {
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    budgets: Vec<PodDisruptionBudget>,
}

/// The fleet of the dump, and the change made to it.
pub(crate) fn setup(dump: Loaded, change: &Loaded, wishes: Wishes) -> anyhow::Result<Setup> {
    let mut cluster = Cluster::of(&dump)?;
    let policies = policies(&dump, change)?;
    let after = Manifests::new(changed(&dump, change)).or_refuse()?;
    let before = Manifests::new(dump).or_refuse()?;
    after.tell(false);
    let mut configs = BTreeMap::new();
    for manifest in before.configs.iter().chain(&after.configs) {
        let name = manifest.object.name.clone();
        if name.starts_with(mco_api::name::RENDERED_PREFIX) {
            configs.insert(name, Arc::new(Machine::read(&manifest.value)?));
        }
    }
    let mut script = Vec::new();
    let mut known = Vec::new();
    for mut pool in pools(&before) {
        let name = pool.metadata.name.clone().unwrap_or_default();
        // A pool that nothing is written for has no config to run, and its nodes are left alone.
        let Some(new) = rendered(&after, &name)? else { continue };
        let old = rendered(&before, &name)?.unwrap_or_else(Machine::blank);
        let target = &mut pool.spec.configuration.rendered.name;
        if target.is_empty() {
            target.clone_from(&old.name);
        }
        if old.name != new.name {
            script.push((CHANGE, Action::Target { pool: name, config: new.name.clone() }));
        }
        configs.insert(target.clone(), Arc::new(Machine { name: target.clone(), ..old }));
        configs.insert(new.name.clone(), Arc::new(new));
        known.push(pool);
    }
    let pools = known;
    if let Some(count) = wishes.nodes {
        cluster.nodes = made_up(count);
        cluster.pods.clear();
    }
    if cluster.nodes.is_empty() {
        return Err(Advice::error(
            "the input holds no Node",
            "pipe `kubectl get mc,mcp,nodes,pods,pdb -A -o yaml` into -f -, or say --nodes N",
        ));
    }
    settle(&mut cluster.nodes, &pools);
    let deadline = 48 * HOUR + A_NODE * u64::try_from(cluster.nodes.len()).unwrap_or_default();
    Ok(Setup {
        seed: wishes.seed,
        budgets: pods::budgets(&cluster.pods, &cluster.budgets),
        nodes: cluster.nodes,
        pods: cluster.pods,
        pools,
        configs,
        policies,
        flaws: BTreeMap::new(),
        script,
        faults: wishes.faults,
        calm: 24 * HOUR,
        deadline,
        pace: Pace::default(),
        chooser: Fleet::choose,
        judges: false,
        bug: None,
    })
}

impl Cluster {
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
    let read = |object: &crate::load::Object| {
        object.node.typed::<T>().map_err(|misfit| Refused(vec![object.misfit(misfit)]).into())
    };
    objects.map(read).collect()
}

/// What the administrator wants changes to ask of nodes, as the input has it last.
fn policies(dump: &Loaded, change: &Loaded) -> anyhow::Result<ClusterPolicies> {
    let kind = "MachineConfiguration";
    let mut given: Vec<MachineConfiguration> = all(dump, kind)?;
    given.extend(all(change, kind)?);
    let policy = given.pop().and_then(|object| object.spec.node_disruption_policy);
    Ok(policy.map_or_else(default_policies, |policy| merge_policies(&policy)))
}

/// The objects of the dump with those of the change put in.
fn changed(dump: &Loaded, change: &Loaded) -> Loaded {
    let is_replaced = |label: &str| change.objects.iter().any(|object| object.label() == label);
    let kept = dump.objects.iter().filter(|object| !is_replaced(&object.label()));
    let objects = kept.cloned().chain(change.objects.iter().cloned()).collect();
    let faults = dump.faults.iter().chain(&change.faults).cloned().collect();
    Loaded { objects, faults }
}

/// The pools; those that were assumed select nodes by their role.
fn pools(manifests: &Manifests) -> Vec<MachineConfigPool> {
    let read = |pool: &crate::load::manifests::Pool| {
        let mut value = pool.value.clone();
        let role = (format!("node-role.kubernetes.io/{}", pool.name), String::new());
        let selector = LabelSelector { match_labels: Some([role].into()), match_expressions: None };
        value.spec.node_selector.get_or_insert(selector);
        value
    };
    manifests.pools.iter().map(read).collect()
}

/// What a pool's configs come to; nothing if there are none.
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

/// So many workers.
fn made_up(count: usize) -> Vec<Node> {
    let node = |index: usize| {
        let mut node = Node::default();
        node.metadata.name = Some(format!("worker-{index}"));
        let role = ("node-role.kubernetes.io/worker".to_owned(), String::new());
        node.metadata.labels = Some([role].into());
        node
    };
    (0..count).map(node).collect()
}

/// Gives nodes of which nothing is known the config of their pool.
fn settle(nodes: &mut [Node], pools: &[MachineConfigPool]) {
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
