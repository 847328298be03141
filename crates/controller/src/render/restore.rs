//! Puts a rendered config back as it was made when somebody has edited it.
//!
//! The cache keeps no contents of rendered configs, which are large. The generation says whether
//! there is anything to look at: it changes with every edit. The last few that each pool had are kept as
//! they were made, because nodes may still be on their way to them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use kube::{Api, ResourceExt as _, api::PostParams};
use mco_api::{MachineConfig, MachineConfigSpec};
use mco_cluster::{CallError, Note, Reporter};

use crate::{Context, error::ActError};

/// Identity and generation of an object.
type Version = (Option<String>, Option<i64>);

/// How many earlier configs of each pool are kept as they were made.
const EARLIER: usize = 3;

/// The rendered configs that are known to be as they were made.
#[derive(Debug, Default)]
pub(crate) struct Sound {
    /// By name.
    versions: Mutex<BTreeMap<String, Version>>,
    /// By pool, the newest first.
    made: Mutex<BTreeMap<String, VecDeque<Arc<MachineConfig>>>>,
}

impl Sound {
    fn is_known(&self, config: &MachineConfig) -> bool {
        let known = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&config.name_any()) == Some(&version(config))
    }

    fn note(&self, config: &MachineConfig) {
        let mut known = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(config.name_any(), version(config));
    }

    /// Keeps what was made for a pool.
    pub(super) fn keep(&self, pool: &str, made: &MachineConfig) {
        let mut all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pool = all.entry(pool.to_owned()).or_default();
        if of_pool.front().is_none_or(|newest| newest.name_any() != made.name_any()) {
            of_pool.retain(|earlier| earlier.name_any() != made.name_any());
            of_pool.push_front(Arc::new(made.clone()));
            of_pool.truncate(EARLIER + 1);
        }
    }

    /// Forgets a pool that is gone.
    pub(super) fn forget(&self, pool: &str) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }

    fn earlier(&self, pool: &str) -> Vec<Arc<MachineConfig>> {
        let all = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(pool).into_iter().flatten().skip(1).cloned().collect()
    }
}

/// Puts back the configs that the pool had before and somebody has edited since.
pub(super) async fn restore_earlier(
    context: &Context,
    reporter: &Reporter,
    pool: &str,
) -> Result<(), ActError> {
    for made in context.sound.earlier(pool) {
        // One that is gone is not needed any longer.
        if let Some(known) = context.caches.configs.get(&made.name_any()) {
            restore(context, reporter, &known, &made).await?;
        }
    }
    Ok(())
}

fn version(config: &MachineConfig) -> Version {
    (config.uid(), config.metadata.generation)
}

/// Whether two configs say the same. An API server keeps what a text says and not how it is written:
/// members come back in another order.
fn is_same(left: &MachineConfigSpec, right: &MachineConfigSpec) -> bool {
    left == right || {
        let said = |spec: &MachineConfigSpec| serde_json::to_value(spec).ok();
        let (left, right) = (said(left), said(right));
        left.is_some() && left == right
    }
}

/// Looks at the config unless it is known to be sound, and makes it what it was made as.
pub(super) async fn restore(
    context: &Context,
    reporter: &Reporter,
    known: &MachineConfig,
    made: &MachineConfig,
) -> Result<(), ActError> {
    if context.sound.is_known(known) {
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
        let text = format!("{name} was edited and is as it was made again");
        reporter.publish(&Note::warning(&live, "RenderedConfigRestored", text)).await;
    }
    context.sound.note(&live);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mco_api::RawConfig;

    use super::*;

    #[test]
    fn a_config_is_the_same_in_whatever_order_it_comes_back() {
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
