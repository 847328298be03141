//! Restores rendered configs that were edited.
//!
//! The cache does not hold the contents of rendered configs, which are large. The generation, which
//! changes with every edit, tells if the config must be read and compared. The last few configs of
//! each pool are kept as generated, because nodes may still be updating to them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use kube::{ResourceExt as _, api::PostParams};
use mco_api::{MachineConfig, MachineConfigSpec};
use mco_cluster::{Api, CallError, Note, Reporter};

use crate::{Context, error::ActError};

/// UID and generation of an object.
type Version = (Option<String>, Option<i64>);

/// Number of previous configs that are kept for each pool.
const PREVIOUS_CONFIGS: usize = 3;

/// Rendered configs as generated, and the versions that were verified to be unedited.
#[derive(Debug, Default)]
pub(crate) struct RenderedConfigs {
    /// Verified versions, by config name.
    verified: Mutex<BTreeMap<String, Version>>,
    /// Generated configs by pool, newest first.
    generated: Mutex<BTreeMap<String, VecDeque<Arc<MachineConfig>>>>,
}

impl RenderedConfigs {
    fn is_verified(&self, config: &MachineConfig) -> bool {
        let known = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&config.name_any()) == Some(&version(config))
    }

    fn record_verified(&self, config: &MachineConfig) {
        let mut known = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(config.name_any(), version(config));
    }

    /// Stores the config that was generated for a pool.
    pub(super) fn store(&self, pool: &str, made: &MachineConfig) {
        let mut all = self.generated.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pool = all.entry(pool.to_owned()).or_default();
        if of_pool.front().is_none_or(|newest| newest.name_any() != made.name_any()) {
            of_pool.retain(|earlier| earlier.name_any() != made.name_any());
            of_pool.push_front(Arc::new(made.clone()));
            of_pool.truncate(PREVIOUS_CONFIGS + 1);
        }
    }

    /// Drops the configs of a deleted pool.
    pub(super) fn remove_pool(&self, pool: &str) {
        self.generated.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }

    fn previous(&self, pool: &str) -> Vec<Arc<MachineConfig>> {
        let all = self.generated.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(pool).into_iter().flatten().skip(1).cloned().collect()
    }
}

/// Restores the previous configs of the pool if they were edited.
pub(super) async fn restore_previous(
    context: &Context,
    reporter: &Reporter,
    pool: &str,
) -> Result<(), ActError> {
    for made in context.rendered.previous(pool) {
        // A deleted config is no longer needed.
        if let Some(known) = context.caches.configs.get(&made.name_any()) {
            restore(context, reporter, &known, &made).await?;
        }
    }
    Ok(())
}

fn version(config: &MachineConfig) -> Version {
    (config.uid(), config.metadata.generation)
}

/// Returns true if two specs are equal as JSON values. The API server does not preserve the order
/// of members.
fn is_same(left: &MachineConfigSpec, right: &MachineConfigSpec) -> bool {
    left == right || {
        let value = |spec: &MachineConfigSpec| serde_json::to_value(spec).ok();
        let (left, right) = (value(left), value(right));
        left.is_some() && left == right
    }
}

/// Reads the config unless its version was verified before, and replaces its spec if it was edited.
pub(super) async fn restore(
    context: &Context,
    reporter: &Reporter,
    known: &MachineConfig,
    made: &MachineConfig,
) -> Result<(), ActError> {
    if context.rendered.is_verified(known) {
        return Ok(());
    }
    let name = made.name_any();
    let api = Api::<MachineConfig>::all(context.client.clone());
    let live = api.get(&name).await.map_err(CallError::from);
    let mut live = live.map_err(|source| ActError::ReadConfig { name: name.clone(), source })?;
    if !is_same(&live.spec, &made.spec) {
        live.spec = made.spec.clone();
        let written = api.replace(&name, &PostParams::default(), &live).await;
        let written = written.map_err(CallError::from);
        live = written.map_err(|source| ActError::RestoreConfig { name: name.clone(), source })?;
        let text = format!("{name} was edited and has been restored");
        reporter.publish(&Note::warning(&live, "RenderedConfigRestored", text)).await;
    }
    context.rendered.record_verified(&live);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mco_api::RawConfig;

    use super::*;

    #[test]
    fn a_config_is_the_same_in_any_order_of_its_members() {
        let spec = |text: &str| MachineConfigSpec {
            config: Some(RawConfig::from_json(text.to_owned()).unwrap()),
            ..MachineConfigSpec::default()
        };
        let made = spec(
            r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","mode":420}]}}"#,
        );
        let back = spec(
            r#"{"storage":{"files":[{"mode":420,"path":"/a"}]},"ignition":{"version":"3.5.0"}}"#,
        );
        let other = spec(
            r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","mode":384}]}}"#,
        );
        assert!(is_same(&made, &back));
        assert!(!is_same(&made, &other));
    }
}
