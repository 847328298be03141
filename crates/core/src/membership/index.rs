//! Which node is in which pool, kept up to date node by node.

use std::collections::{BTreeMap, BTreeSet};

use super::{MembershipError, Pools};

/// Every node's pool and every pool's nodes. Taking in a node costs as much as there are pools,
/// however many nodes there are.
#[derive(Clone, Debug)]
pub struct Index {
    pools: Pools,
    nodes: BTreeMap<String, Entry>,
    members: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug)]
struct Entry {
    labels: BTreeMap<String, String>,
    pool: Result<Option<String>, MembershipError>,
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
        Self { pools, nodes: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Takes in a node, new or changed.
    pub fn set(&mut self, node: &str, labels: &BTreeMap<String, String>) -> Moved {
        if let Some(entry) = self.nodes.get(node).filter(|entry| entry.labels == *labels) {
            let pool = entry.pool.clone().ok().flatten();
            return Moved { from: pool.clone(), to: pool };
        }
        let from = self.forget(node).from;
        let found = self.pools.of(node, labels);
        let pool = found.map(|found| found.primary().map(str::to_owned));
        let to = pool.clone().ok().flatten();
        if let Some(pool) = &to {
            self.members.entry(pool.clone()).or_default().insert(node.to_owned());
        }
        self.nodes.insert(node.to_owned(), Entry { labels: labels.clone(), pool });
        Moved { from, to }
    }

    /// Lets go of a node that is gone.
    pub fn forget(&mut self, node: &str) -> Moved {
        let pool = self.nodes.remove(node).and_then(|entry| entry.pool.ok().flatten());
        if let Some(members) = pool.as_ref().and_then(|pool| self.members.get_mut(pool)) {
            members.remove(node);
        }
        Moved { from: pool, to: None }
    }

    /// Looks at every node anew because the pools are others.
    pub fn replace(&mut self, pools: Pools) {
        let nodes = std::mem::take(&mut self.nodes);
        *self = Self::new(pools);
        for (node, entry) in nodes {
            self.set(&node, &entry.labels);
        }
    }

    /// The pool that manages a node, or why that cannot be said.
    pub fn pool_of(&self, node: &str) -> Result<Option<&str>, &MembershipError> {
        match self.nodes.get(node).map(|entry| &entry.pool) {
            Some(Ok(pool)) => Ok(pool.as_deref()),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }

    /// The nodes of a pool, by name.
    pub fn nodes_of(&self, pool: &str) -> impl Iterator<Item = &str> {
        self.members.get(pool).into_iter().flatten().map(String::as_str)
    }
}
