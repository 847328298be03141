//! An index of nodes by pool, updated node by node.

use std::collections::BTreeMap;

use super::{CustomIgnored, Membership, MembershipError, Pools};

/// The pool of every node. Updating a node costs time in proportion to the number of pools,
/// independent of the number of nodes. Changed pools need a new index.
#[derive(Clone, Debug)]
pub struct MembershipIndex {
    pools: Pools,
    nodes: BTreeMap<String, Result<Membership, MembershipError>>,
}

/// The pool of a node before and after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolChange {
    /// Pool that managed the node before.
    pub from: Option<String>,
    /// Pool that manages the node now.
    pub to: Option<String>,
}

impl PoolChange {
    /// Returns the pools to reconcile, each once.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        let from = self.from.as_deref().filter(|from| Some(*from) != self.to.as_deref());
        from.into_iter().chain(self.to.as_deref())
    }
}

impl MembershipIndex {
    /// Creates an index without nodes.
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self { pools, nodes: BTreeMap::new() }
    }

    /// Returns the pools of the index.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Adds or updates a node.
    pub fn set(&mut self, node: &str, labels: &BTreeMap<String, String>) -> PoolChange {
        let found = self.pools.of(node, labels);
        let to = primary(&found);
        let from = match self.nodes.get_mut(node) {
            Some(known) => primary(&std::mem::replace(known, found)),
            None => self.nodes.insert(node.to_owned(), found).and_then(|known| primary(&known)),
        };
        PoolChange { from, to }
    }

    /// Removes a deleted node.
    pub fn remove(&mut self, node: &str) -> PoolChange {
        let from = self.nodes.remove(node).and_then(|known| primary(&known));
        PoolChange { from, to: None }
    }

    /// Returns the pool that manages a node, or the reason why it cannot be determined.
    pub fn pool_of(&self, node: &str) -> Result<Option<&str>, &MembershipError> {
        match self.nodes.get(node) {
            Some(Ok(found)) => Ok(found.primary()),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }

    /// Returns `Yes` if a matching custom pool is ignored for the node; `None` for unknown nodes.
    #[must_use]
    pub fn custom_ignored(&self, node: &str) -> Option<CustomIgnored> {
        self.nodes.get(node)?.as_ref().ok().map(|found| found.custom_ignored)
    }
}

fn primary(found: &Result<Membership, MembershipError>) -> Option<String> {
    found.as_ref().ok()?.primary().map(str::to_owned)
}
