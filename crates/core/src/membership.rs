//! Which pool a node belongs to.
//!
//! A node's labels may fit several pools, but one pool alone manages it. A custom pool outranks
//! `worker`, and `master` outranks both, because a control plane node must never get a config that
//! somebody wrote with workers in mind. Two custom pools are nobody's guess: the node is left alone.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::{
    MachineConfigPool,
    selector::{self, BadSelector},
};

mod index;
mod syntax;

pub use self::{
    index::{Index, Moved},
    syntax::BadLabel,
};

const OS_LABEL: &str = "kubernetes.io/os";
const MASTER: &str = "master";
const WORKER: &str = "worker";

/// The pools that a node fits, the one that manages it first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The names of the pools; none if nobody manages the node.
    pub pools: Vec<String>,
    /// Whether a custom pool fits too but is not heard, because the node is of the control plane.
    pub custom_ignored: CustomIgnored,
}

/// Whether a custom pool that fits a node is passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CustomIgnored {
    /// There is none.
    #[default]
    No,
    /// There is one.
    Yes,
}

impl Membership {
    /// The pool that manages the node.
    #[must_use]
    pub fn primary(&self) -> Option<&str> {
        self.pools.first().map(String::as_str)
    }
}

/// Why it cannot be said which pool a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The node fits more than one custom pool.
    #[error("node {node} belongs to {count} custom roles, cannot proceed with this Node")]
    SeveralCustom {
        /// The node.
        node: String,
        /// How many custom pools it fits.
        count: usize,
    },
    /// A pool's selector has a key or value that no label can have.
    #[error("invalid label selector of pool {pool}")]
    Label {
        /// The pool.
        pool: String,
        /// The key or value.
        source: BadLabel,
    },
    /// A pool's selector cannot be evaluated.
    #[error("invalid label selector of pool {pool}")]
    Selector {
        /// The pool.
        pool: String,
        /// What is wrong.
        source: BadSelector,
    },
}

/// The pools of a cluster, as far as they select nodes.
///
/// Compat: one pool with a selector that cannot be read makes it impossible to say anything about
/// any node (pkg/helpers/helpers.go), so the fault is kept and given as the answer to every question.
#[derive(Clone, Debug, PartialEq)]
pub struct Pools {
    selectors: Result<Vec<(String, LabelSelector)>, MembershipError>,
}

impl Pools {
    /// Takes in the pools' node selectors.
    #[must_use]
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> Self {
        Self { selectors: selectors(pools) }
    }

    /// Which of the pools a node with these labels belongs to.
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
        // Compat: `worker` stands second only where a custom pool fits as well.
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
        // An empty selector would take every node of the cluster; it takes none.
        if !selector::is_empty(selector) {
            found.push((name, selector.clone()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools with the usual selectors.
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
    fn a_pool_that_selects_everything_or_nothing_has_no_nodes() {
        let mut pools = pools("worker all none");
        pools[1].spec.node_selector = Some(LabelSelector::default());
        pools[2].spec.node_selector = None;
        assert_eq!(answer(&pools, "worker"), "worker");
    }

    #[test]
    fn a_selector_that_cannot_be_read_leaves_all_nodes_alone() {
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
    fn a_node_that_changes_pool_concerns_both() {
        let mut index = Index::new(Pools::new(&pools("worker infra gpu")));
        let mut moves = |roles: &str| {
            let moved = index.set("n", &labels(roles));
            moved.pools().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(moves("worker"), "worker");
        assert_eq!(moves("worker"), "worker", "nothing changed");
        assert_eq!(moves("worker infra"), "worker infra");
        assert_eq!(moves("infra gpu"), "infra", "nobody's guess");
        assert!(index.pool_of("n").is_err());
        index.set("n", &labels("worker"));
        assert_eq!(index.pool_of("n"), Ok(Some("worker")));
        let gone = Moved { from: Some("worker".to_owned()), to: None };
        assert_eq!(index.forget("n"), gone);
        assert_eq!(index.pool_of("n"), Ok(None));
    }
}
