//! Input of a forecast, read from files: the manifests before and after the change, the disruption
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
use mco_core::{
    lint::{Fault, FieldPath, Manifests, Object, SpannedValue},
    plan::{default_policies, merge_policies},
};
use serde::de::DeserializeOwned;

use crate::{
    error::{FaultsError, error_with_hint},
    load::{Loaded, Sources, manifests::ManifestsExt as _},
};

/// The input of a forecast.
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

/// The paths of the input.
#[derive(Debug)]
pub(crate) struct InputPaths<'a> {
    /// Current manifests, then those that change them.
    pub(crate) paths: &'a [PathBuf],
    pub(crate) recursive: bool,
    /// Files with the disruption policy, nodes, pods and budgets.
    pub(crate) extra: Vec<&'a PathBuf>,
    /// MachineConfigs that the change deletes.
    pub(crate) without: &'a [String],
}

impl Input {
    /// Reads all files; the faults of all files are reported together.
    pub(crate) fn read(paths: &InputPaths<'_>) -> anyhow::Result<Self> {
        let (current, change) = paths.paths.split_at(1.min(paths.paths.len()));
        if change.is_empty() && paths.without.is_empty() {
            return Err(error_with_hint(
                "no change to plan",
                "name the current manifests with the first -f and those that change them with the \
                 next, or a MachineConfig to delete with --without",
            ));
        }
        let load =
            |files: Vec<PathBuf>| Sources { paths: files, recursive: paths.recursive }.load();
        let extra = load(paths.extra.iter().map(|path| (*path).clone()).collect())?;
        Self::of(load(current.to_vec())?, load(change.to_vec())?, extra, paths.without)
    }

    /// Takes the current objects, those that change them, and objects that describe the cluster. The
    /// change deletes the MachineConfigs `without`.
    pub(crate) fn of(
        mut current: Loaded,
        mut change: Loaded,
        extra: Loaded,
        without: &[String],
    ) -> anyhow::Result<Self> {
        let mut faults = std::mem::take(&mut current.faults);
        faults.append(&mut change.faults);
        faults.extend(extra.faults);
        // All files are searched: `-f cluster.yaml --nodes nodes.yaml` uses the nodes of both.
        let cluster: Vec<Object> = [&current.objects, &change.objects, &extra.objects]
            .into_iter()
            .flatten()
            .filter(|object| is_cluster_object(object))
            .cloned()
            .collect();
        let builder = InputBuilder { objects: cluster, faults };
        builder.build(current.objects, change.objects, without)
    }

    /// Returns the config of this name from the manifests.
    pub(crate) fn config(&self, name: &str) -> Option<&MachineConfig> {
        let mut configs = self.after.all_configs().chain(self.before.all_configs());
        configs.find(|config| config.object.name == name).map(|config| &config.value)
    }

    /// Returns true if the input contains pods or budgets, so that a node without pods has none.
    pub(crate) fn knows_pods(&self) -> bool {
        self.has_pods
    }
}

/// Kinds that describe the cluster and are not rendered.
const CLUSTER_KINDS: [&str; 4] = ["Node", "Pod", "PodDisruptionBudget", "MachineConfiguration"];

fn is_cluster_object(object: &Object) -> bool {
    // OpenShift has a kind Node of its own, with settings.
    CLUSTER_KINDS.contains(&object.kind.as_str()) && !object.api_version.starts_with("config.")
}

struct InputBuilder {
    objects: Vec<Object>,
    faults: Vec<Fault>,
}

impl InputBuilder {
    fn build(
        mut self,
        current: Vec<Object>,
        change: Vec<Object>,
        without: &[String],
    ) -> anyhow::Result<Input> {
        let (nodes, pods) = (self.all::<Node>("Node"), self.all::<Pod>("Pod"));
        let budgets = self.all::<PodDisruptionBudget>("PodDisruptionBudget");
        let configuration = self.all::<MachineConfiguration>("MachineConfiguration").pop();
        let after = changed(&current, change, without)?;
        let machines: Vec<Object> =
            self.objects.iter().filter(|it| it.kind == "Node").cloned().collect();
        let manifests = |objects: Vec<Object>| -> Manifests {
            let mut objects: Vec<Object> =
                objects.into_iter().filter(|object| !is_cluster_object(object)).collect();
            // Their container engines decide the files of some settings.
            objects.extend(machines.iter().cloned());
            Loaded { objects, faults: Vec::new() }.into_manifests()
        };
        let (before, after) = (manifests(current), manifests(after));
        self.faults.extend(after.faults.iter().cloned());
        if self.faults.iter().any(Fault::is_error) {
            return Err(anyhow::Error::new(FaultsError(self.faults)));
        }
        Ok(Input {
            before: before.or_refuse()?,
            after: after.or_refuse()?,
            policies: policies(configuration.as_ref()),
            overrides: configuration
                .and_then(|configuration| configuration.spec.irreconcilable_validation_overrides)
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
            match object.root.typed::<T>() {
                Ok(value) => found.push(value),
                Err(error) => self.faults.push(object.type_fault(error)),
            }
        }
        found
    }
}

/// Returns the objects after the change: objects of the change replace those of the same name.
fn changed(
    current: &[Object],
    change: Vec<Object>,
    without: &[String],
) -> anyhow::Result<Vec<Object>> {
    let is_config = |object: &Object| object.kind == "MachineConfig";
    for name in without {
        if !current.iter().any(|object| is_config(object) && object.name == *name) {
            return Err(error_with_hint(
                format!("unknown MachineConfig {name:?} in --without"),
                "name a MachineConfig of the first -f",
            ));
        }
    }
    let replaced: BTreeSet<String> = change.iter().map(Object::label).collect();
    let stays = |object: &&Object| {
        let deleted = is_config(object) && without.contains(&object.name);
        !replaced.contains(&object.label()) && !deleted && !is_generated_again(object, &change)
    };
    let mut objects: Vec<Object> = current.iter().filter(stays).cloned().collect();
    objects.extend(change);
    Ok(objects)
}

/// Returns true if the controller generated a MachineConfig from an object that the change replaces.
fn is_generated_again(object: &Object, change: &[Object]) -> bool {
    let owners = FieldPath::of("metadata.ownerReferences");
    let owners = object.root.find(&owners).map(SpannedValue::items).unwrap_or_default();
    let text = |owner: &SpannedValue, member: &str| {
        owner.get(member).and_then(SpannedValue::as_str).unwrap_or_default().to_owned()
    };
    let mut changed = change.iter();
    object.kind == "MachineConfig"
        && changed.any(|changed| {
            let is_owner = |owner: &SpannedValue| {
                text(owner, "kind") == changed.kind && text(owner, "name") == changed.name
            };
            owners.iter().any(is_owner)
        })
}

/// Returns the effective policies: those that the operator merged, or else the administrator's
/// merged with the defaults.
pub(crate) fn policies(configuration: Option<&MachineConfiguration>) -> ClusterPolicies {
    let Some(configuration) = configuration else { return default_policies() };
    let status = configuration.status.as_ref();
    let merged = status
        .filter(|status| Some(status.observed_generation) == configuration.metadata.generation)
        .and_then(|status| status.node_disruption_policy_status.as_ref())
        .and_then(|status| status.cluster_policies.clone());
    merged.unwrap_or_else(|| {
        merge_policies(&configuration.spec.node_disruption_policy.clone().unwrap_or_default())
    })
}
