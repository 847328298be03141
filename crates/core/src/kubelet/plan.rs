//! The MachineConfigs of a KubeletConfig in all its pools.

use kube_core::ResourceExt as _;
use mco_api::{KubeletConfig, MachineConfig, selector::SelectorError};

use super::{Inputs, Refusal, generate};
use crate::{
    generated::{self, Family, LimitError, Settings},
    render::Build,
};

/// The reason why a KubeletConfig has no MachineConfigs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No pool is selected.
    // Compat: the text of the reference.
    #[error("could not find any MachineConfigPool set for KubeletConfig")]
    NoPool,
    /// The pool selector is invalid.
    #[error("spec.machineConfigPoolSelector: {0}")]
    Selector(#[from] SelectorError),
    /// A pool has too many KubeletConfigs.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The settings are refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The MachineConfigs of a KubeletConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeletPlan {
    /// Suffix of their names.
    pub suffix: String,
    /// MachineConfigs, one for each pool.
    pub configs: Vec<MachineConfig>,
}

/// Builds the MachineConfigs of `config` for all pools that it selects, or none.
///
/// `all` are all KubeletConfigs of the cluster, `pools` the inputs of all pools, and `exists` tells if
/// a MachineConfig exists.
pub fn plan(
    config: &KubeletConfig,
    all: &[&KubeletConfig],
    pools: &[Inputs<'_>],
    exists: impl Fn(&str) -> bool,
    build: &Build,
) -> Result<KubeletPlan, PlanError> {
    let mut selected = Vec::new();
    for inputs in pools {
        if generated::selects(config.spec.machine_config_pool_selector.as_ref(), inputs.pool)? {
            selected.push(inputs);
        }
    }
    if selected.is_empty() {
        return Err(PlanError::NoPool);
    }
    let all: Vec<_> = all
        .iter()
        .map(|other| (Settings::of(*other), other.spec.machine_config_pool_selector.as_ref()))
        .collect();
    let chosen = selected.iter().map(|inputs| inputs.pool);
    let suffix =
        generated::common_suffix(Family::Kubelet, &Settings::of(config), chosen, &all, exists)?;
    let owner = generated::controller_reference(config);
    let mut configs = Vec::new();
    for inputs in selected {
        let (pool, files) = (inputs.pool.name_any(), generate(config, inputs, &suffix)?);
        let name = Family::Kubelet.name(&pool, &suffix);
        let spec = generated::spec(&files);
        configs.push(generated::machine_config(&name, &pool, spec, build, Some(owner.clone())));
    }
    Ok(KubeletPlan { suffix, configs })
}
