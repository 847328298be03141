//! Writes base configs and MachineConfigs with SSH keys.

use std::sync::Arc;

use kube::{ResourceExt as _, api::PostParams};
use mco_api::{
    MachineConfig,
    annotation::{self, BaseConfig},
};
use mco_cluster::{Api, CallError};
use mco_core::{
    generated::difference,
    template::{Ownership, ownership},
};
use tracing::{debug, info};

use super::ssh;
use crate::{Context, error::ActError, generated};

/// The writes that lead to the wanted MachineConfigs.
#[derive(Debug, Default)]
pub(super) struct Plan {
    create: Vec<MachineConfig>,
    restore: Vec<MachineConfig>,
    delete: Vec<String>,
    /// Wanted MachineConfigs that exist and were made by others.
    pub(super) kept: Vec<String>,
}

impl Plan {
    /// Returns true if something has to be written.
    pub(super) fn is_needed(&self) -> bool {
        !(self.create.is_empty() && self.restore.is_empty() && self.delete.is_empty())
    }
}

/// Returns true if this controller generated the MachineConfig.
pub(super) fn is_marked(config: &MachineConfig) -> bool {
    let mark = config.annotations().get(annotation::BASE_CONFIG.name());
    mark.is_some_and(|word| BaseConfig::from(&**word) == BaseConfig::Generated)
}

/// Returns the names of the base configs that the cluster has.
pub(super) fn base_configs(context: &Context) -> Vec<String> {
    let names = context.caches.configs.list().into_iter().map(|config| config.name_any());
    let is_base = |name: &String| name.starts_with("00-") || name.starts_with("01-");
    names.filter(is_base).collect()
}

/// Plans the writes for base configs.
pub(super) fn plan(context: &Context, wanted: &[MachineConfig]) -> Plan {
    let base = |config: &Arc<MachineConfig>| !ssh::is_ssh_config(&config.name_any());
    compare(context.caches.configs.list().into_iter().filter(base), wanted)
}

/// Compares the wanted MachineConfigs with those that the cluster has.
pub(super) fn compare(
    found: impl Iterator<Item = Arc<MachineConfig>>,
    wanted: &[MachineConfig],
) -> Plan {
    let found: Vec<_> = found.collect();
    let mut plan = Plan::default();
    for config in wanted {
        let name = config.name_any();
        match found.iter().find(|found| found.name_any() == name) {
            None => plan.create.push(config.clone()),
            Some(found) if ownership(found) == Ownership::Kept => plan.kept.push(name),
            Some(found) if difference(found, config).is_some() => plan.restore.push(config.clone()),
            Some(_) => {}
        }
    }
    let is_wanted = |name: &String| wanted.iter().any(|config| config.name_any() == *name);
    let ours = found.iter().filter(|config| is_marked(config));
    plan.delete = ours.map(|config| config.name_any()).filter(|name| !is_wanted(name)).collect();
    plan
}

/// Carries out the plan.
pub(super) async fn run(context: &Context, plan: &Plan) -> Result<(), ActError> {
    let api = Api::<MachineConfig>::all(context.client.clone());
    for config in &plan.create {
        let name = config.name_any();
        let failed = |source| ActError::CreateConfig { name: name.clone(), source };
        // A config that exists by now is compared when the watch has delivered it: it may be another
        // operator's.
        let made = api.create(&PostParams::default(), config).await.map_err(CallError::from);
        context.caches.configs.learn_new(made.map_err(failed)?);
        info!(config = name, "Created base config");
    }
    for config in &plan.restore {
        generated::apply(context, config).await?;
    }
    for name in &plan.delete {
        generated::delete(context, name).await?;
    }
    if !plan.kept.is_empty() {
        debug!(configs = plan.kept.join(", "), "Kept base configs of another operator");
    }
    Ok(())
}
