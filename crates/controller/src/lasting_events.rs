//! Warnings about a state that lasts, each published once while its text stays the same.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use kube::ResourceExt as _;
use mco_api::MachineConfigPool;
use mco_cluster::{Note, Reporter};

/// Publishes warnings about pools.
pub(crate) struct LastingEvents {
    reporter: Reporter,
    /// Last texts by pool and reason.
    texts: Mutex<BTreeMap<(String, &'static str), String>>,
}

impl LastingEvents {
    pub(crate) fn new(reporter: Reporter) -> Self {
        Self { reporter, texts: Mutex::default() }
    }

    /// Publishes a warning unless it was the last one with this reason. An empty text ends it.
    pub(crate) async fn publish(&self, pool: &MachineConfigPool, reason: &'static str, text: &str) {
        let before = {
            let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
            texts.insert((pool.name_any(), reason), text.to_owned())
        };
        if !text.is_empty() && before.as_deref() != Some(text) {
            self.reporter.publish(&Note::warning(pool, reason, text)).await;
        }
    }
}
