//! The metric `mco_state`: the state of each node's pool. The series are built on scrape, so that
//! the cost of a node's or a pool's event does not depend on the number of nodes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;
use mco_api::meta::LooseCondition;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    node: String,
    pool: String,
    state: String,
    reason: String,
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    kind: String,
    reason: String,
    /// Time at which the controller saw the state first, in Unix seconds.
    since: i64,
}

#[derive(Debug, Default)]
struct Known {
    states: BTreeMap<Arc<str>, State>,
    /// The pool of each node.
    members: BTreeMap<String, Arc<str>>,
}

/// The state of each pool, and the pool of each node.
#[derive(Clone, Debug, Default)]
pub(super) struct States(Arc<Mutex<Known>>);

impl States {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the state of a pool from its conditions.
    ///
    /// Compat: the state is the type of the condition that became true last
    /// (`pkg/controller/node/node_controller.go`); in the reference every earlier one stays beside
    /// it.
    pub(super) fn set_pool(&self, pool: &str, conditions: &[LooseCondition], now: Timestamp) {
        let holding = conditions.iter().filter(|condition| condition.status == "True");
        let latest = holding.max_by(|a, b| a.last_transition_time.cmp(&b.last_transition_time));
        let mut known = self.known();
        let Some(LooseCondition { kind, reason, .. }) = latest else {
            known.states.remove(pool);
            return;
        };
        let is_same = |known: &State| (&known.kind, &known.reason) == (kind, reason);
        if !known.states.get(pool).is_some_and(is_same) {
            let (kind, reason) = (kind.clone(), reason.clone());
            known.states.insert(pool.into(), State { kind, reason, since: now.as_second() });
        }
    }

    /// Removes a deleted pool.
    pub(super) fn remove_pool(&self, pool: &str) {
        self.known().states.remove(pool);
    }

    /// Records the pool of a node; `None` if it belongs to no pool or is deleted.
    pub(super) fn set_node_pool(&self, node: &str, pool: Option<&str>) {
        let mut known = self.known();
        let Some(pool) = pool else {
            known.members.remove(node);
            return;
        };
        if known.members.get(node).is_some_and(|known| **known == *pool) {
            return;
        }
        // All nodes of a pool share one string.
        let shared = known.states.get_key_value(pool).map(|(name, _)| name.clone());
        known.members.insert(node.to_owned(), shared.unwrap_or_else(|| pool.into()));
    }
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let known = self.known();
        let help = "state of a specified pool";
        let mut gauge = encoder.encode_descriptor("mco_state", help, None, MetricType::Gauge)?;
        for (node, pool) in &known.members {
            let Some(State { kind, reason, since }) = known.states.get(pool) else { continue };
            let label = StateLabel {
                node: node.clone(),
                pool: pool.to_string(),
                state: kind.clone(),
                reason: reason.clone(),
            };
            ConstGauge::new(*since).encode(gauge.encode_family(&label)?)?;
        }
        Ok(())
    }
}
