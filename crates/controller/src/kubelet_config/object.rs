//! One KubeletConfig: its MachineConfigs, finalizers, number and status.

use std::sync::Arc;

use kube::ResourceExt;
use mco_api::{KubeletConfig, MachineConfigPool, annotation, selector::SelectorError};
use mco_cluster::{
    Api,
    apply::{self, Precondition},
};
use mco_core::{
    generated,
    kubelet::{self, Inputs, KubeletPlan, Origin, PlanError, is_own_finalizer},
};
use serde_json::{Value, json};
use tracing::info;

use super::{Controller, Pass};
use crate::{error::ActError, generated as write, metrics::Action};

impl Controller {
    /// Brings the MachineConfigs and the status of a KubeletConfig up to date.
    pub(super) async fn reconcile_object(
        &self,
        pass: &Pass,
        config: &Arc<KubeletConfig>,
    ) -> Result<(), ActError> {
        if config.metadata.deletion_timestamp.is_some() {
            return self.delete_object(config).await;
        }
        let wanted = match self.wanted(pass, config) {
            Ok(wanted) => wanted,
            Err(error) => {
                // Settings that are refused leave the nodes of their pools as they are. Without a
                // pool there are no such nodes.
                let config = match &error {
                    PlanError::NoPool => self.release(pass, config, &[]).await?,
                    PlanError::Selector(_) | PlanError::Limit(_) | PlanError::Refused(_) => {
                        config.clone()
                    }
                };
                return self.report(&config, Some(&error.to_string())).await;
            }
        };
        let names: Vec<String> = wanted.configs.iter().map(ResourceExt::name_any).collect();
        // The finalizers come first: no MachineConfig can be left behind by a crash.
        let current = self.own(config, &names, &wanted.suffix).await?;
        for machine_config in &wanted.configs {
            write::apply(&self.context, machine_config).await?;
        }
        let current = self.release(pass, &current, &names).await?;
        self.delete_legacy(pass, &current).await?;
        let now = self.context.clock.now();
        self.context.metrics.record_action(Action::KubeletConfig, &current.name_any(), now);
        self.report(&current, None).await
    }

    /// Generates the MachineConfigs of all pools that the KubeletConfig selects, or none.
    fn wanted(&self, pass: &Pass, config: &KubeletConfig) -> Result<KubeletPlan, PlanError> {
        let caches = &self.context.caches;
        let all = caches.kubelet_configs.list();
        let all: Vec<&KubeletConfig> = all.iter().map(|config| &**config).collect();
        let pools: Vec<_> =
            pass.live_pools().map(|pool| (pool, Pass::base(&self.context, pool))).collect();
        let inputs = pools.iter().map(|(pool, base)| pass.inputs(pool, base.as_deref()));
        let inputs: Vec<Inputs<'_>> = inputs.collect();
        let exists = |name: &str| caches.configs.get(name).is_some();
        kubelet::plan(config, &all, &inputs, exists, &self.context.build)
    }

    /// Records the number and the names of the MachineConfigs on the KubeletConfig. All other
    /// annotations and finalizers stay.
    async fn own(
        &self,
        config: &Arc<KubeletConfig>,
        names: &[String],
        suffix: &str,
    ) -> Result<Arc<KubeletConfig>, ActError> {
        let mut finalizers = config.finalizers().to_vec();
        let missing = names.iter().filter(|name| !config.finalizers().contains(name));
        finalizers.extend(missing.cloned());
        let key = annotation::CONFIG_NAME_SUFFIX.name();
        let known = config.annotations().get(key).map(String::as_str);
        if known == Some(suffix) && finalizers == config.finalizers() {
            return Ok(config.clone());
        }
        let metadata = json!({"annotations": {key: suffix}, "finalizers": finalizers});
        self.patch(config, metadata).await
    }

    /// Deletes the MachineConfigs of pools that are no longer selected, and their finalizers.
    async fn release(
        &self,
        pass: &Pass,
        config: &Arc<KubeletConfig>,
        names: &[String],
    ) -> Result<Arc<KubeletConfig>, ActError> {
        let (kept, obsolete): (Vec<String>, Vec<String>) = config
            .finalizers()
            .iter()
            .cloned()
            .partition(|name| !is_own_finalizer(name) || names.contains(name));
        // A pool that cannot be decoded may still be selected.
        if obsolete.is_empty() || !self.context.caches.pools.unreadable().is_empty() {
            return Ok(config.clone());
        }
        let legacy: Vec<String> =
            pass.live_pools().filter_map(|pool| Origin::KubeletConfig.legacy_name(pool)).collect();
        for name in &obsolete {
            if !legacy.contains(name) {
                self.delete_finalized(config, name).await?;
            }
        }
        self.patch(config, json!({"finalizers": kept})).await
    }

    /// Deletes the MachineConfigs that had the names of older releases.
    async fn delete_legacy(&self, pass: &Pass, config: &KubeletConfig) -> Result<(), ActError> {
        for pool in selected(pass, config).unwrap_or_default() {
            self.delete_legacy_of(Origin::KubeletConfig, pool).await?;
        }
        Ok(())
    }

    /// Deletes the MachineConfigs of a KubeletConfig that is being deleted, then the finalizers.
    async fn delete_object(&self, config: &Arc<KubeletConfig>) -> Result<(), ActError> {
        let (ours, others): (Vec<String>, Vec<String>) =
            config.finalizers().iter().cloned().partition(|name| is_own_finalizer(name));
        if ours.is_empty() {
            return Ok(());
        }
        for name in &ours {
            self.delete_finalized(config, name).await?;
        }
        self.patch(config, json!({"finalizers": others})).await?;
        info!(config = config.name_any(), "Deleted the MachineConfigs of KubeletConfig");
        Ok(())
    }

    /// Deletes the MachineConfig that a finalizer names, or whose UID it is, unless it belongs to
    /// another KubeletConfig.
    async fn delete_finalized(
        &self,
        config: &KubeletConfig,
        finalizer: &str,
    ) -> Result<(), ActError> {
        let configs = self.context.caches.configs.list();
        let found = configs
            .iter()
            .find(|one| one.name_any() == finalizer || one.uid().as_deref() == Some(finalizer));
        let Some(found) = found else { return Ok(()) };
        let mut owners = found.owner_references().iter().filter(|one| one.kind == "KubeletConfig");
        if owners.next().is_some_and(|owner| Some(&owner.uid) != config.uid().as_ref()) {
            return Ok(());
        }
        write::delete(&self.context, &found.name_any()).await
    }

    async fn patch(
        &self,
        config: &KubeletConfig,
        metadata: Value,
    ) -> Result<Arc<KubeletConfig>, ActError> {
        let (name, version) = (config.name_any(), config.resource_version().unwrap_or_default());
        let api = Api::<KubeletConfig>::all(self.context.client.clone());
        // The list of finalizers is written as a whole.
        let guard = Precondition::Unchanged(&version);
        let patched = apply::merge(&api, &name, json!({"metadata": metadata}), guard).await;
        let patched = patched.map_err(|source| ActError::UpdateKubeletConfig { name, source })?;
        self.context.caches.kubelet_configs.learn(patched.clone());
        Ok(Arc::new(patched))
    }

    /// Writes the result into the status, unless the status has it already.
    pub(super) async fn report(
        &self,
        config: &KubeletConfig,
        failure: Option<&str>,
    ) -> Result<(), ActError> {
        if kubelet::is_reported(config, failure) {
            return Ok(());
        }
        let before = config.status.clone().unwrap_or_default().conditions;
        let conditions = kubelet::conditions(&before, failure, self.context.clock.now());
        let status = json!({
            "observedGeneration": config.metadata.generation.unwrap_or_default(),
            "conditions": conditions,
        });
        let (name, version) = (config.name_any(), config.resource_version().unwrap_or_default());
        let api = Api::<KubeletConfig>::all(self.context.client.clone());
        let guard = Precondition::Unchanged(&version);
        let patched = apply::merge_status(&api, &name, status, guard).await;
        let source = |source| ActError::UpdateKubeletConfig { name: name.clone(), source };
        self.context.caches.kubelet_configs.learn(patched.map_err(source)?);
        info!(config = name, failure, "Reported the result of KubeletConfig");
        Ok(())
    }
}

/// Returns the pools that a KubeletConfig selects.
fn selected<'a>(
    pass: &'a Pass,
    config: &KubeletConfig,
) -> Result<Vec<&'a Arc<MachineConfigPool>>, SelectorError> {
    let selector = config.spec.machine_config_pool_selector.as_ref();
    let mut pools = Vec::new();
    for pool in pass.live_pools() {
        if generated::selects(selector, pool)? {
            pools.push(pool);
        }
    }
    Ok(pools)
}
