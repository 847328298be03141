//! Selection of the pool that manages a node.
//!
//! A node's labels may match several pools, but only one pool manages the node. A custom pool
//! outranks `worker`, and `master` outranks both, because a control plane node must never get a
//! config that was written for workers. A node that matches two custom pools is ambiguous and stays
//! unmanaged.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::{
    MachineConfigPool,
    selector::{self, SelectorError},
};

mod index;
mod syntax;

pub use self::{
    index::{MembershipIndex, PoolChange},
    syntax::BadLabel,
};

const OS_LABEL: &str = "kubernetes.io/os";
const MASTER: &str = "master";
const WORKER: &str = "worker";

/// The pools that match a node, starting with the pool that manages it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Names of the pools; empty if no pool manages the node.
    pub pools: Vec<String>,
    /// Set if a custom pool matches too but is ignored, because the node is part of the control
    /// plane.
    pub custom_ignored: CustomIgnored,
}

/// The presence of a matching custom pool that is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CustomIgnored {
    /// No custom pool is ignored.
    #[default]
    No,
    /// A custom pool is ignored.
    Yes,
}

impl Membership {
    /// Returns the pool that manages the node.
    #[must_use]
    pub fn primary(&self) -> Option<&str> {
        self.pools.first().map(String::as_str)
    }
}

/// The reason why the pool of a node cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The node matches more than one custom pool.
    #[error("node {node} belongs to {count} custom roles, cannot proceed with this Node")]
    SeveralCustom {
        /// Name of the node.
        node: String,
        /// Number of matching custom pools.
        count: usize,
    },
    /// A pool's selector has a key or value that is no valid label.
    #[error("invalid label selector of pool {pool}")]
    Label {
        /// Name of the pool.
        pool: String,
        /// The invalid key or value.
        source: BadLabel,
    },
    /// A pool's selector cannot be evaluated.
    #[error("invalid label selector of pool {pool}")]
    Selector {
        /// Name of the pool.
        pool: String,
        /// Error of the selector.
        source: SelectorError,
    },
}

/// The node selectors of all pools.
///
/// Compat: a single pool with an invalid selector makes the membership of every node undeterminable
/// (pkg/helpers/helpers.go), so the error is kept and returned for every node.
#[derive(Clone, Debug, PartialEq)]
pub struct Pools {
    selectors: Result<Vec<(String, LabelSelector)>, MembershipError>,
}

impl Pools {
    /// Reads the pools' node selectors.
    #[must_use]
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> Self {
        Self { selectors: selectors(pools) }
    }

    /// Returns the pools that a node with these labels belongs to.
    pub fn of(
        &self,
        node: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Membership, MembershipError> {
        if labels.get(OS_LABEL).is_some_and(|os| os == "windows") {
            return Ok(Membership::default());
        }
        let (mut master, mut worker, mut custom) = (None, None, Vec::new());
        for (name, selector) in self.selectors.as_ref().map_err(Clone::clone)? {
            let fits = selector::matches(selector, labels);
            if !fits.map_err(|source| MembershipError::Selector { pool: name.clone(), source })? {
                continue;
            }
            match name.as_str() {
                MASTER => master = Some(name),
                WORKER => worker = Some(name),
                _ => custom.push(name),
            }
        }
        if custom.len() > 1 {
            return Err(MembershipError::SeveralCustom {
                node: node.to_owned(),
                count: custom.len(),
            });
        }
        let custom = custom.pop();
        let custom_ignored = if custom.is_some() && master.is_some() {
            CustomIgnored::Yes
        } else {
            CustomIgnored::No
        };
        // Compat: `worker` is listed second only if a custom pool matches as well.
        let second = if custom.is_some() || master.is_none() { worker } else { None };
        let pools = master.or(custom).into_iter().chain(second).cloned().collect();
        Ok(Membership { pools, custom_ignored })
    }
}

fn selectors<'a>(
    pools: impl IntoIterator<Item = &'a MachineConfigPool>,
) -> Result<Vec<(String, LabelSelector)>, MembershipError> {
    let mut found = Vec::new();
    for pool in pools {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let Some(selector) = &pool.spec.node_selector else { continue };
        syntax::check(selector)
            .map_err(|source| MembershipError::Label { pool: name.clone(), source })?;
        selector::matches(selector, &BTreeMap::new())
            .map_err(|source| MembershipError::Selector { pool: name.clone(), source })?;
        // An empty selector would match every node of the cluster; it matches none.
        if !selector::is_empty(selector) {
            found.push((name, selector.clone()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds pools with the usual selectors.
    fn pools(names: &str) -> Vec<MachineConfigPool> {
        names
            .split_whitespace()
            .map(|name| {
                let mut pool = MachineConfigPool::default();
                pool.metadata.name = Some(name.to_owned());
                let role = (format!("node-role.kubernetes.io/{name}"), String::new());
                pool.spec.node_selector = Some(LabelSelector {
                    match_labels: Some([role].into()),
                    match_expressions: None,
                });
                pool
            })
            .collect()
    }

    fn answer(pools: &[MachineConfigPool], roles: &str) -> String {
        let labels = roles.split_whitespace().map(|role| match role.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (format!("node-role.kubernetes.io/{role}"), String::new()),
        });
        match Pools::new(pools).of("n", &labels.collect()) {
            Ok(found) => match found.custom_ignored {
                CustomIgnored::Yes => format!("{} (custom ignored)", found.pools.join(" ")),
                CustomIgnored::No => found.pools.join(" "),
            },
            Err(error) => error.to_string(),
        }
    }

    // covers: NOD-1, NOD-2, NOD-3
    #[test]
    fn one_pool_manages_a_node() {
        let pools = pools("master worker arbiter infra gpu");
        let two = "node n belongs to 2 custom roles, cannot proceed with this Node";
        let cases = [
            ("worker", "worker"),
            ("worker infra", "infra worker"),
            ("infra", "infra"),
            ("master worker", "master"),
            ("master infra", "master (custom ignored)"),
            ("master worker infra", "master worker (custom ignored)"),
            ("arbiter", "arbiter"),
            ("arbiter infra", two),
            ("worker infra gpu", two),
            ("master infra gpu", two),
            ("worker kubernetes.io/os=windows", ""),
            ("edge", ""),
            ("", ""),
        ];
        for (roles, expected) in cases {
            assert_eq!(answer(&pools, roles), expected, "{roles}");
        }
    }

    // covers: NOD-4
    #[test]
    fn a_pool_with_an_empty_or_missing_selector_has_no_nodes() {
        let mut pools = pools("worker all none");
        pools[1].spec.node_selector = Some(LabelSelector::default());
        pools[2].spec.node_selector = None;
        assert_eq!(answer(&pools, "worker"), "worker");
    }

    #[test]
    fn an_invalid_selector_leaves_all_nodes_unmanaged() {
        let mut pools = pools("worker infra");
        let broken = [("no such key!".to_owned(), String::new())];
        pools[1].spec.node_selector.as_mut().unwrap().match_labels = Some(broken.into());
        assert_eq!(answer(&pools, "worker"), "invalid label selector of pool infra");
        assert_eq!(answer(&pools, "worker kubernetes.io/os=windows"), "");
    }

    fn labels(roles: &str) -> BTreeMap<String, String> {
        let label = |role: &str| (format!("node-role.kubernetes.io/{role}"), String::new());
        roles.split_whitespace().map(label).collect()
    }

    // covers: NOD-33
    #[test]
    fn a_node_that_changes_pool_affects_both_pools() {
        let mut index = MembershipIndex::new(Pools::new(&pools("worker infra gpu")));
        let mut moves = |roles: &str| {
            let moved = index.set("n", &labels(roles));
            moved.pools().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(moves("worker"), "worker");
        assert_eq!(moves("worker"), "worker", "nothing changed");
        assert_eq!(moves("worker infra"), "worker infra");
        assert_eq!(moves("infra gpu"), "infra", "the pool is ambiguous");
        assert!(index.pool_of("n").is_err());
        index.set("n", &labels("worker"));
        assert_eq!(index.pool_of("n"), Ok(Some("worker")));
        let gone = PoolChange { from: Some("worker".to_owned()), to: None };
        assert_eq!(index.remove("n"), gone);
        assert_eq!(index.pool_of("n"), Ok(None));
    }
}
