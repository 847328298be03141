//! Which node is in which pool, kept up to date node by node.

use std::collections::BTreeMap;

use super::{CustomIgnored, Membership, MembershipError, Pools};

/// Every node's pool. Taking in a node costs as much as there are pools, however many nodes there
/// are. Other pools mean another index.
#[derive(Clone, Debug)]
pub struct Index {
    pools: Pools,
    nodes: BTreeMap<String, Result<Membership, MembershipError>>,
}

/// Where a node was and where it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The pool that managed it before.
    pub from: Option<String>,
    /// The pool that manages it now.
    pub to: Option<String>,
}

impl Moved {
    /// The pools that have to look at their nodes again, each once.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        let from = self.from.as_deref().filter(|from| Some(*from) != self.to.as_deref());
        from.into_iter().chain(self.to.as_deref())
    }
}

impl Index {
    /// No nodes yet.
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self { pools, nodes: BTreeMap::new() }
    }

    /// The pools that it goes by.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Takes in a node, new or changed.
    pub fn set(&mut self, node: &str, labels: &BTreeMap<String, String>) -> Moved {
        let found = self.pools.of(node, labels);
        let to = primary(&found);
        let from = match self.nodes.get_mut(node) {
            Some(known) => primary(&std::mem::replace(known, found)),
            None => self.nodes.insert(node.to_owned(), found).and_then(|known| primary(&known)),
        };
        Moved { from, to }
    }

    /// Lets go of a node that is gone.
    pub fn forget(&mut self, node: &str) -> Moved {
        let from = self.nodes.remove(node).and_then(|known| primary(&known));
        Moved { from, to: None }
    }

    /// The pool that manages a node, or why that cannot be said.
    pub fn pool_of(&self, node: &str) -> Result<Option<&str>, &MembershipError> {
        match self.nodes.get(node) {
            Some(Ok(found)) => Ok(found.primary()),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }

    /// Whether a custom pool fits the node as well and is not heard; `None` for unknown nodes.
    #[must_use]
    pub fn custom_ignored(&self, node: &str) -> Option<CustomIgnored> {
        self.nodes.get(node)?.as_ref().ok().map(|found| found.custom_ignored)
    }
}

fn primary(found: &Result<Membership, MembershipError>) -> Option<String> {
    found.as_ref().ok()?.primary().map(str::to_owned)
}
