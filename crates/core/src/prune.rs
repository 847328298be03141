//! Pruning of rendered configs that are no longer in use.
//!
//! A rendered config is kept while a node has it, is to have it or was first booted with it; while
//! a pool or a build refers to it; and as one of the newest of its pool, so that a pool can roll
//! back. The reference keeps all of them for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild};

use crate::rollout::NodeView;

/// Number of a pool's newest configs that are always kept.
pub const HISTORY: usize = 10;

/// The parts of a rendered config that pruning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedView {
    /// Name of the config.
    pub name: String,
    /// Pool that owns the config.
    pub pool: String,
    /// Creation time.
    pub created: Option<Time>,
}

impl RenderedView {
    /// Reads the relevant fields of a MachineConfig; `None` if no pool owns it.
    #[must_use]
    pub fn of(config: &MachineConfig) -> Option<Self> {
        let mut owners = config.metadata.owner_references.iter().flatten();
        let owner = owners
            .find(|owner| owner.kind == "MachineConfigPool" && owner.controller == Some(true))?;
        let name = config.metadata.name.clone()?;
        let pool = owner.name.clone();
        Some(Self { name, pool, created: config.metadata.creation_timestamp.clone() })
    }
}

/// The decision on one rendered config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PruneDecision {
    /// Delete: no object refers to the config, and there are enough newer ones.
    Delete,
    /// Keep, for this reason.
    Keep(KeepReason),
}

/// The reason to keep a rendered config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// This node has the config or is to have it.
    Node(String),
    /// This pool has the config or is to have it.
    Pool(String),
    /// This build contains the config.
    Build(String),
    /// The config is one of the newest of its pool.
    History,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node} uses it"),
            Self::Pool(pool) => write!(f, "pool {pool} uses it"),
            Self::Build(build) => write!(f, "build {build} uses it"),
            Self::History => f.write_str("it is one of the newest of its pool"),
        }
    }
}

/// The references from other objects to rendered configs.
#[derive(Clone, Debug, Default)]
pub struct References {
    by_config: BTreeMap<String, KeepReason>,
}

impl References {
    /// Collects the references of nodes, pools and builds.
    #[must_use]
    pub fn of(
        nodes: &[NodeView],
        pools: &[&MachineConfigPool],
        builds: &[&MachineOSBuild],
    ) -> Self {
        let mut references = Self::default();
        for node in nodes {
            let first = node.first_config.iter();
            for config in [&node.current, &node.desired].into_iter().chain(first) {
                references.add(config, || KeepReason::Node(node.name.clone()));
            }
        }
        for pool in pools {
            let reason = || KeepReason::Pool(pool.metadata.name.clone().unwrap_or_default());
            references.add(&pool.spec.configuration.rendered.name, reason);
            if let Some(status) = &pool.status {
                references.add(&status.configuration.rendered.name, reason);
            }
        }
        for build in builds {
            let reason = || KeepReason::Build(build.metadata.name.clone().unwrap_or_default());
            references.add(&build.spec.machine_config.name, reason);
        }
        references
    }

    /// Adds the references of `MachineConfigNodes`.
    #[must_use]
    pub fn with_machine_config_nodes<'a>(
        mut self,
        nodes: impl IntoIterator<Item = &'a MachineConfigNode>,
    ) -> Self {
        for node in nodes {
            let reason = || KeepReason::Node(node.metadata.name.clone().unwrap_or_default());
            self.add(&node.spec.config_version.desired, reason);
            let version = node.status.as_ref().and_then(|status| status.config_version.as_ref());
            for config in version.iter().flat_map(|one| [&one.current, &one.desired]) {
                self.add(config, reason);
            }
        }
        self
    }

    fn add(&mut self, config: &str, reason: impl FnOnce() -> KeepReason) {
        if !config.is_empty() {
            self.by_config.entry(config.to_owned()).or_insert_with(reason);
        }
    }
}

/// Decides which rendered configs to keep, in the given order.
#[must_use]
pub fn rendered(
    configs: &[RenderedView],
    references: &References,
    history: usize,
) -> Vec<(String, PruneDecision)> {
    let mut newest: BTreeSet<&str> = BTreeSet::new();
    let mut by_pool: BTreeMap<&str, Vec<&RenderedView>> = BTreeMap::new();
    for config in configs {
        by_pool.entry(&config.pool).or_default().push(config);
    }
    for mut of_pool in by_pool.into_values() {
        // A config without a creation time counts as new, because its age is unknown.
        let age = |config: &&RenderedView| (config.created.clone(), config.name.clone());
        of_pool.sort_by_key(age);
        let (known, unknown): (Vec<&RenderedView>, Vec<_>) =
            of_pool.into_iter().partition(|config| config.created.is_some());
        let kept = known.iter().rev().take(history).chain(&unknown);
        newest.extend(kept.map(|config| config.name.as_str()));
    }
    let decision = |config: &RenderedView| match references.by_config.get(&config.name) {
        Some(reason) => PruneDecision::Keep(reason.clone()),
        None if newest.contains(config.name.as_str()) => PruneDecision::Keep(KeepReason::History),
        None => PruneDecision::Delete,
    };
    configs.iter().map(|config| (config.name.clone(), decision(config))).collect()
}

#[cfg(test)]
mod tests {
    use mco_api::machine_config_node::{ConfigVersion, MachineConfigNodeSpec};

    use super::*;
    use crate::fixture::nodes;

    /// Builds configs of the pool `worker` from `name/day`.
    fn configs(text: &str) -> Vec<RenderedView> {
        let view = |word: &str| {
            let (name, day) = word.split_once('/').unwrap();
            let created = serde_json::from_str(&format!("\"2026-01-{day:0>2}T00:00:00Z\"")).ok();
            RenderedView { name: name.to_owned(), pool: "worker".to_owned(), created }
        };
        text.split_whitespace().map(view).collect()
    }

    fn gone(text: &str, references: &References, history: usize) -> String {
        let decisions = rendered(&configs(text), references, history);
        let gone = decisions.into_iter().filter(|(_, decision)| *decision == PruneDecision::Delete);
        gone.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_unreferenced_and_old_configs_are_deleted() {
        let mut pool = MachineConfigPool::default();
        pool.metadata.name = Some("worker".to_owned());
        pool.spec.configuration.rendered.name = "new".to_owned();
        pool.status.get_or_insert_default().configuration.rendered.name = "before".to_owned();
        let used = References::of(&nodes("a=old b=failed-other"), &[&pool], &[]);
        let all = "older/1 old/2 bad/3 before/4 between/5 new/6";
        let cases =
            [(0, "older between"), (1, "older between"), (2, "older"), (5, "older"), (6, "")];
        for (history, expected) in cases {
            assert_eq!(gone(all, &used, history), expected, "history of {history}");
        }
        assert_eq!(gone("unknown/x old/1", &References::default(), 0), "old");
    }

    #[test]
    fn a_pool_keeps_its_ten_newest_configs() {
        let all = "a/1 b/2 c/3 d/4 e/5 f/6 g/7 h/8 i/9 j/10 k/11 l/12";
        assert_eq!(gone(all, &References::default(), HISTORY), "a b");
    }

    #[test]
    fn the_configs_of_machine_config_nodes_and_of_first_boot_are_kept() {
        let mut report = MachineConfigNode::new("a", MachineConfigNodeSpec::default());
        report.spec.config_version.desired = "next".to_owned();
        let mut booted = nodes("b=done");
        for node in &mut booted {
            node.first_config = Some("first".to_owned());
        }
        let version = ConfigVersion { current: "now".to_owned(), desired: "next".to_owned() };
        report.status.get_or_insert_default().config_version = Some(version);
        let used = References::of(&booted, &[], &[]).with_machine_config_nodes([&report]);
        assert_eq!(gone("first/1 now/2 next/3 other/4 new/5", &used, 0), "other");
    }

    #[test]
    fn a_kept_config_has_a_reason() {
        let used = References::of(&nodes("a=old"), &[], &[]);
        let decisions = rendered(&configs("old/1 x/2"), &used, 1);
        let texts: Vec<String> = decisions
            .into_iter()
            .map(|(name, decision)| match decision {
                PruneDecision::Delete => format!("{name} goes"),
                PruneDecision::Keep(reason) => format!("{name}: {reason}"),
            })
            .collect();
        assert_eq!(texts, ["old: node a uses it", "x: it is one of the newest of its pool"]);
    }
}
