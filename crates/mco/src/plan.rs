//! Forecast of a change for every pool.
//!
//! Pure: takes the manifests before and after, the nodes, the pods and their budgets, and returns a
//! forecast. All decisions are those of `mco_core::plan` (steps of a node), `mco_core::rollout`
//! (order of the nodes) and `mco_core::drain` (feasibility of a drain).

pub(crate) mod input;
pub(crate) mod live;
pub(crate) mod show;
mod times;
mod waves;

use std::collections::BTreeMap;

use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::{
    diff::reconcile,
    drain::feasibility::{Feasibility, feasibility},
    membership::Pools,
    plan::{self, Action, Circumstances, Drain, NodePlan, PolicyDecision},
    render::{MAX_SIZE, Origin, Rendered},
    rollout::NodeView,
};
use serde::Serialize;

use self::input::Input;
pub(crate) use self::times::{TimeOverride, Times};
use crate::load::manifests::ManifestsExt as _;

/// The forecast for one pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolForecast {
    pub(crate) pool: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) paused: bool,
    pub(crate) size: Size,
    /// Effect on a node that runs the pool's current config.
    #[serde(flatten)]
    pub(crate) effect: Effect,
    /// Forecasts of the nodes, if they are known.
    pub(crate) nodes: Vec<NodeForecast>,
    /// Nodes that update at the same time, wave by wave.
    pub(crate) waves: Vec<Vec<String>>,
    /// Estimated duration of all waves.
    pub(crate) seconds: u64,
    /// Assumptions of the forecast.
    pub(crate) notes: Vec<String>,
}

/// The size of the rendered config and its limit.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

/// The effect of a change on a node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Effect {
    /// Differences, with their actions and the deciding rules.
    pub(crate) changes: Vec<PolicyDecision>,
    /// Actions of all differences together.
    pub(crate) actions: Vec<String>,
    pub(crate) reboot: bool,
    pub(crate) drain: bool,
    /// The rule that decides about the drain.
    pub(crate) drain_because: String,
    /// Steps in order.
    pub(crate) steps: Vec<String>,
    /// Reason why nodes refuse the change.
    pub(crate) refusal: Option<String>,
    /// Estimated duration per node.
    pub(crate) node_seconds: u64,
}

/// The forecast for one node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeForecast {
    pub(crate) node: String,
    /// Config that the node runs now.
    pub(crate) from: String,
    pub(crate) actions: Vec<String>,
    pub(crate) reboot: bool,
    pub(crate) drain: bool,
    /// Number of the wave, from 1.
    pub(crate) wave: Option<usize>,
    /// Reason why the node is not updated.
    pub(crate) waits: Option<String>,
    /// Result of the drain, if pods are known.
    pub(crate) drained: Option<Feasibility>,
    pub(crate) refusal: Option<String>,
}

impl Effect {
    fn of(plan: &NodePlan, times: &Times) -> Self {
        let (drain, because) = match &plan.drain {
            Drain::Needed(why) => (true, why),
            Drain::NotNeeded(why) => (false, why),
        };
        let actions = plan.actions.iter().filter(|action| **action != Action::None);
        Self {
            changes: plan.decisions.clone(),
            actions: actions.map(ToString::to_string).collect(),
            reboot: plan.reboots(),
            drain,
            drain_because: because.clone(),
            steps: plan.steps.iter().map(ToString::to_string).collect(),
            refusal: None,
            node_seconds: times.of(plan),
        }
    }

    fn refused(why: String) -> Self {
        Self { refusal: Some(why), ..Self::default() }
    }
}

impl PoolForecast {
    /// Returns true if the pool's config changes.
    pub(crate) fn is_change(&self) -> bool {
        self.from != self.to
    }

    /// Returns the nodes whose drain can never finish.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = (&NodeForecast, &Feasibility)> {
        let drained =
            |node: &'_ NodeForecast| node.drained.as_ref().is_some_and(|d| !d.can_finish());
        let nodes = self.nodes.iter().filter(move |node| drained(node));
        nodes.filter_map(|node| Some((node, node.drained.as_ref()?)))
    }
}

/// Returns the forecast for every pool that renders after the change.
pub(crate) fn forecast(input: &Input, times: &Times) -> anyhow::Result<Vec<PoolForecast>> {
    let before: BTreeMap<String, Rendered> = input
        .before
        .render_all(None)?
        .into_iter()
        .map(|(pool, rendered)| (pool.name.to_string(), rendered))
        .collect();
    let pools: Vec<MachineConfigPool> = input.after.pools.iter().map(waves::selectable).collect();
    let membership = Pools::new(&pools);
    let mut forecasts = Vec::new();
    for (pool, rendered) in input.after.render_all(None)? {
        let name = pool.name.as_str();
        let members: Vec<NodeView> = input
            .nodes
            .iter()
            .filter(|node| {
                let labels = node.metadata.labels.clone().unwrap_or_default();
                let found =
                    membership.of(node.metadata.name.as_deref().unwrap_or_default(), &labels);
                found.is_ok_and(|found| found.primary() == Some(name))
            })
            .map(NodeView::of)
            .collect();
        let from = before.get(name).map_or_else(empty_config, object);
        forecasts.push(of_pool(input, &pool.value, &from, &rendered, &members, times));
    }
    Ok(forecasts)
}

fn object(rendered: &Rendered) -> MachineConfig {
    MachineConfig::new(rendered.name.as_str(), rendered.spec.clone())
}

/// Returns the config of a new pool.
fn empty_config() -> MachineConfig {
    let spec = mco_api::MachineConfigSpec {
        config: Some(mco_api::RawConfig::from_json(EMPTY.to_owned()).expect("EMPTY is valid JSON")),
        ..mco_api::MachineConfigSpec::default()
    };
    MachineConfig::new(mco_core::machine::NO_CONFIG, spec)
}

const EMPTY: &str = r#"{"ignition":{"version":"3.5.0"}}"#;

fn of_pool(
    input: &Input,
    pool: &MachineConfigPool,
    from: &MachineConfig,
    rendered: &Rendered,
    members: &[NodeView],
    times: &Times,
) -> PoolForecast {
    let to = &object(rendered);
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let effect = effect(input, from, to, times);
    let mut forecast = PoolForecast {
        pool: pool.metadata.name.clone().unwrap_or_default(),
        from: name(from),
        to: name(to),
        paused: pool.spec.paused,
        size: Size { bytes: size(pool, rendered), limit: MAX_SIZE },
        effect,
        nodes: Vec::new(),
        waves: Vec::new(),
        seconds: 0,
        notes: Vec::new(),
    };
    if !forecast.is_change() || forecast.effect.refusal.is_some() {
        return forecast;
    }
    let order = waves::of(pool, &forecast.from, &forecast.to, members, &mut forecast.notes);
    for node in members {
        let own = input.config(&node.current).filter(|_| node.current != forecast.from);
        let effect = match own {
            Some(own) => self::effect(input, own, to, times),
            None => forecast.effect.clone(),
        };
        let wave = order.waves.iter().position(|wave| wave.contains(&node.name));
        let waits = order.waits.get(&node.name).cloned();
        let drained = (effect.drain && input.knows_pods())
            .then(|| feasibility(&node.name, &input.pods, &input.budgets));
        forecast.nodes.push(NodeForecast {
            node: node.name.clone(),
            from: own.map_or_else(|| forecast.from.clone(), name),
            actions: effect.actions,
            reboot: effect.reboot,
            drain: effect.drain,
            wave: wave.map(|wave| wave + 1),
            waits,
            drained,
            refusal: effect.refusal,
        });
    }
    let count = u64::try_from(order.waves.len()).unwrap_or(u64::MAX);
    forecast.seconds = forecast.effect.node_seconds.saturating_mul(count.max(1));
    forecast.waves = order.waves;
    forecast
}

fn effect(input: &Input, from: &MachineConfig, to: &MachineConfig, times: &Times) -> Effect {
    let at = Circumstances { overrides: input.overrides.clone(), ..Circumstances::default() };
    let machines = match reconcile::read(from, to) {
        Ok(machines) => machines,
        Err(obstacle) => return Effect::refused(obstacle.to_string()),
    };
    match plan::node(&machines.0, &machines.1, &input.policies, &at) {
        Ok(plan) => Effect::of(&plan, times),
        Err(refusal) => Effect::refused(refusal.to_string()),
    }
}

/// Returns the size of the rendered object in the cluster.
fn size(pool: &MachineConfigPool, rendered: &Rendered) -> usize {
    // Placeholders with the length of the values in a cluster.
    let (controller_version, release_version) = ("0".repeat(40), "0.0.0".to_owned());
    let made = rendered.object(pool, &Origin { controller_version, release_version });
    let object = made.unwrap_or_else(|_| object(rendered));
    serde_json::to_vec(&object).map(|bytes| bytes.len()).unwrap_or_default()
}
