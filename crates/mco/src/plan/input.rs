//! What a forecast needs, gathered from files: the manifests before and after the change, the
//! policy, nodes, pods and budgets.

use std::{collections::BTreeSet, path::PathBuf};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use mco_api::{
    MachineConfig, MachineConfiguration,
    machine_configuration::{StorageOverride, disruption::ClusterPolicies},
};
use mco_core::plan::{default_policies, merge_policies};
use serde::de::DeserializeOwned;

use crate::{
    fault::{Advice, Fault, Refused},
    load::{Loaded, Object, Sources, manifests::Manifests},
};

/// Everything that a forecast needs.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) before: Manifests,
    pub(crate) after: Manifests,
    pub(crate) policies: ClusterPolicies,
    pub(crate) overrides: Vec<StorageOverride>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) budgets: Vec<PodDisruptionBudget>,
    has_pods: bool,
}

/// Where it all is.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    /// The present manifests, then those that change them.
    pub(crate) paths: &'a [PathBuf],
    pub(crate) recursive: bool,
    /// Files with a policy, nodes, pods and budgets besides.
    pub(crate) besides: Vec<&'a PathBuf>,
    /// Configs that the change takes away.
    pub(crate) without: &'a [String],
}

impl Input {
    /// Reads everything; the faults of all files come at once.
    pub(crate) fn read(places: &Places<'_>) -> anyhow::Result<Self> {
        let (current, change) = places.paths.split_at(1.min(places.paths.len()));
        if change.is_empty() && places.without.is_empty() {
            return Err(Advice::error(
                "there is no change to plan",
                "name the present manifests with the first -f and those that change them with the \
                 next, or a MachineConfig to take away with --without",
            ));
        }
        let load = |paths: Vec<PathBuf>| Sources { paths, recursive: places.recursive }.load();
        let mut present = load(current.to_vec())?;
        let mut change = load(change.to_vec())?;
        let besides = load(places.besides.iter().map(|path| (*path).clone()).collect())?;
        let mut faults = std::mem::take(&mut present.faults);
        faults.append(&mut change.faults);
        faults.extend(besides.faults);
        // Twice the same kind of place: `-f cluster.yaml --nodes nodes.yaml` both count.
        let around: Vec<Object> = [&present.objects, &change.objects, &besides.objects]
            .into_iter()
            .flatten()
            .filter(|object| is_around(object))
            .cloned()
            .collect();
        let gather = Gather { objects: around, faults };
        gather.into_input(present.objects, change.objects, places.without)
    }

    /// The config of that name, where the manifests have it.
    pub(crate) fn config(&self, name: &str) -> Option<&MachineConfig> {
        let mut configs = self.after.configs.iter().chain(&self.before.configs);
        configs.find(|config| config.object.name == name).map(|config| &config.value)
    }

    /// Whether anything is known of pods, so that none on a node means that there are none.
    pub(crate) fn knows_pods(&self) -> bool {
        self.has_pods
    }
}

const AROUND: [&str; 4] = ["Node", "Pod", "PodDisruptionBudget", "MachineConfiguration"];

fn is_around(object: &Object) -> bool {
    AROUND.contains(&object.kind.as_str())
}

struct Gather {
    objects: Vec<Object>,
    faults: Vec<Fault>,
}

impl Gather {
    fn into_input(
        mut self,
        present: Vec<Object>,
        change: Vec<Object>,
        without: &[String],
    ) -> anyhow::Result<Input> {
        let (nodes, pods) = (self.all::<Node>("Node"), self.all::<Pod>("Pod"));
        let budgets = self.all::<PodDisruptionBudget>("PodDisruptionBudget");
        let knobs = self.all::<MachineConfiguration>("MachineConfiguration").pop();
        let after = changed(&present, change, without)?;
        let ours = |objects: Vec<Object>| -> Loaded {
            let objects = objects.into_iter().filter(|object| !is_around(object)).collect();
            Loaded { objects, faults: Vec::new() }
        };
        let (before, after) = (Manifests::new(ours(present)), Manifests::new(ours(after)));
        self.faults.extend(after.faults.iter().cloned());
        if self.faults.iter().any(Fault::is_error) {
            return Err(anyhow::Error::new(Refused(self.faults)));
        }
        Ok(Input {
            before: before.or_refuse()?,
            after: after.or_refuse()?,
            policies: policies(knobs.as_ref()),
            overrides: knobs
                .and_then(|knobs| knobs.spec.irreconcilable_validation_overrides)
                .map(|overrides| overrides.storage)
                .unwrap_or_default(),
            has_pods: !pods.is_empty() || !budgets.is_empty(),
            nodes,
            pods,
            budgets,
        })
    }

    fn all<T: DeserializeOwned>(&mut self, kind: &str) -> Vec<T> {
        let mut found = Vec::new();
        for object in self.objects.iter().filter(|object| object.kind == kind) {
            match object.node.typed::<T>() {
                Ok(value) => found.push(value),
                Err(misfit) => self.faults.push(object.misfit(misfit)),
            }
        }
        found
    }
}

/// The objects once the change is applied: those it names replaced, those it lacks kept.
fn changed(
    present: &[Object],
    change: Vec<Object>,
    without: &[String],
) -> anyhow::Result<Vec<Object>> {
    let is_config = |object: &Object| object.kind == "MachineConfig";
    for name in without {
        if !present.iter().any(|object| is_config(object) && object.name == *name) {
            return Err(Advice::error(
                format!("there is no MachineConfig {name} to take away"),
                "the first -f must hold it",
            ));
        }
    }
    let replaced: BTreeSet<String> = change.iter().map(Object::label).collect();
    let stays = |object: &&Object| {
        let taken_away = is_config(object) && without.contains(&object.name);
        !replaced.contains(&object.label()) && !taken_away
    };
    Ok(present.iter().filter(stays).cloned().chain(change).collect())
}

/// The policy in force: the one that the operator merged, else the administrator's over the defaults.
pub(crate) fn policies(knobs: Option<&MachineConfiguration>) -> ClusterPolicies {
    let Some(knobs) = knobs else { return default_policies() };
    let status = knobs.status.as_ref();
    let merged = status
        .filter(|status| Some(status.observed_generation) == knobs.metadata.generation)
        .and_then(|status| status.node_disruption_policy_status.as_ref())
        .and_then(|status| status.cluster_policies.clone());
    merged.unwrap_or_else(|| {
        merge_policies(&knobs.spec.node_disruption_policy.clone().unwrap_or_default())
    })
}
