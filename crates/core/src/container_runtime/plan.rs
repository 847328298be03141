//! The MachineConfigs of a ContainerRuntimeConfig, and the condition that reports them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ResourceExt as _;
use mco_api::{
    ContainerRuntimeConfig, MachineConfig, MachineConfigPool, condition::SettingsCondition,
    meta::LooseCondition, selector::SelectorError,
};

use super::{AdditionalStores, BaseFiles, Engines, RuntimeConfigError, check, files};
use crate::{
    generated::{self, Family, LimitError, Settings},
    image_config::containerd::NoEffect,
    kubelet::Delivery,
    render::Build,
};

/// Name of the base config with the files of the container engine.
#[must_use]
pub fn base_config(role: &str) -> String {
    format!("01-{role}-container-runtime")
}

/// A pool, and what its nodes have.
#[derive(Clone, Debug)]
pub struct PoolFacts<'p> {
    /// The pool.
    pub pool: &'p MachineConfigPool,
    /// Files of the pool's base config.
    pub base: BaseFiles,
    /// Container engines of the nodes.
    pub engines: Engines,
    /// Way in which settings reach the kubelets.
    pub kubelet: Delivery,
}

/// The MachineConfigs of a ContainerRuntimeConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimePlan {
    /// Suffix of their names.
    pub suffix: String,
    /// MachineConfigs by pool.
    pub configs: Vec<(String, MachineConfig)>,
    /// Settings that have no effect on some nodes.
    pub without_effect: Vec<NoEffect>,
}

/// The reason why a ContainerRuntimeConfig has no effect.
///
/// Compat: the texts are the reference's.
#[derive(Debug, thiserror::Error)]
pub enum RuntimePlanError {
    /// The pool selector is invalid.
    #[error("invalid label selector")]
    Selector(#[from] SelectorError),
    /// No pool is selected.
    #[error("could not find any MachineConfigPool set for ContainerRuntimeConfig {0}")]
    NoPool(String),
    /// A pool has too many.
    #[error("could not get ctrcfg key")]
    Limit(#[from] LimitError),
    /// A setting is invalid, or cannot be applied.
    #[error(transparent)]
    Settings(#[from] RuntimeConfigError),
}

/// Builds the MachineConfigs of `config`.
///
/// `all` are all ContainerRuntimeConfigs of the cluster, and `exists` tells if a MachineConfig exists.
pub fn plan(
    config: &ContainerRuntimeConfig,
    all: &[&ContainerRuntimeConfig],
    pools: &[PoolFacts<'_>],
    exists: impl Fn(&str) -> bool,
    build: &Build,
) -> Result<RuntimePlan, RuntimePlanError> {
    let settings = &config.spec.container_runtime_config;
    check(settings).map_err(RuntimeConfigError::from)?;
    let mut selected = Vec::new();
    for facts in pools {
        let selector = config.spec.machine_config_pool_selector.as_ref();
        if generated::selects(selector, facts.pool)? {
            selected.push(facts);
        }
    }
    if selected.is_empty() {
        return Err(RuntimePlanError::NoPool(config.name_any()));
    }
    let all: Vec<_> = all
        .iter()
        .map(|other| (Settings::of(*other), other.spec.machine_config_pool_selector.as_ref()))
        .collect();
    let chosen = selected.iter().map(|facts| facts.pool);
    let (family, object) = (Family::ContainerRuntime, Settings::of(config));
    let suffix = generated::common_suffix(family, &object, chosen, &all, exists)?;
    let mut plan = RuntimePlan { suffix, configs: Vec::new(), without_effect: Vec::new() };
    for facts in selected {
        let (pool, stores) = (facts.pool.name_any(), AdditionalStores::Enabled);
        let made = files(settings, &facts.base, facts.engines, facts.kubelet, stores)?;
        let name = Family::ContainerRuntime.name(&pool, &plan.suffix);
        let spec = generated::spec(&made.files);
        let owner = Some(generated::controller_reference(config));
        let object = generated::machine_config(&name, &pool, spec, build, owner);
        plan.configs.push((pool, object));
        plan.without_effect.extend(made.without_effect);
    }
    plan.without_effect.sort();
    plan.without_effect.dedup();
    Ok(plan)
}

/// Returns true if a finalizer of a ContainerRuntimeConfig names one of its MachineConfigs.
#[must_use]
pub fn is_own_finalizer(finalizer: &str) -> bool {
    finalizer.starts_with("99-") && finalizer.contains("containerruntime")
}

/// Returns true if the MachineConfig of a pool that a ContainerRuntimeConfig selects may still change:
/// its generation is not observed, or the MachineConfig does not exist. One that is refused or deleted
/// is not waited for.
#[must_use]
pub fn is_pending(
    config: &ContainerRuntimeConfig,
    pool: &str,
    exists: impl Fn(&str) -> bool,
) -> bool {
    if config.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let status = config.status.clone().unwrap_or_default();
    let is_observed = status.observed_generation == config.metadata.generation.unwrap_or_default();
    let Some(last) = status.conditions.last().filter(|_| is_observed) else { return true };
    if last.kind == SettingsCondition::Failure.as_str() {
        return false;
    }
    let finalizers = config.finalizers().iter();
    let mut made = finalizers.filter(|name| Family::ContainerRuntime.number(pool, name).is_some());
    !made.any(|name| exists(name))
}

/// Number of conditions that are kept. The reference keeps all.
const MAX_CONDITIONS: usize = 3;

/// Returns the conditions after a reconcile; those from before if they say the same.
///
/// The last condition is the current one.
#[must_use]
pub fn conditions(
    before: &[LooseCondition],
    result: Result<&RuntimePlan, &str>,
    now: Time,
) -> Vec<LooseCondition> {
    let (kind, message) = match result {
        Ok(plan) => (SettingsCondition::Success, success(&plan.without_effect)),
        Err(text) => (SettingsCondition::Failure, text.to_owned()),
    };
    let is_same = |last: &LooseCondition| last.kind == kind.as_str() && last.message == message;
    if before.last().is_some_and(is_same) {
        return before.to_vec();
    }
    let mut conditions = before.to_vec();
    conditions.push(LooseCondition {
        kind: kind.to_string(),
        status: "True".to_owned(),
        last_transition_time: Some(now),
        reason: String::new(),
        message,
    });
    let surplus = conditions.len().saturating_sub(MAX_CONDITIONS);
    conditions.drain(..surplus);
    conditions
}

fn success(without_effect: &[NoEffect]) -> String {
    if without_effect.is_empty() {
        // Compat: the text is the reference's.
        return "Success".to_owned();
    }
    let settings: Vec<String> = without_effect.iter().map(NoEffect::to_string).collect();
    format!("Success, except for settings without effect: {}", settings.join("; "))
}
