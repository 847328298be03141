//! Wakes drains that wait when their node changes.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// The drains that are going on, by node.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakes(Arc<Mutex<BTreeMap<String, Arc<Notify>>>>);

/// One of them, for as long as it is held.
pub(super) struct Wake {
    node: String,
    notify: Arc<Notify>,
    all: Wakes,
}

impl Wakes {
    /// Has the drain of this node woken from now on.
    pub(super) fn of(&self, node: &str) -> Wake {
        let notify = Arc::new(Notify::new());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(node.to_owned(), notify.clone());
        Wake { node: node.to_owned(), notify, all: self.clone() }
    }

    /// Wakes the drain of this node, if one is going on.
    pub(super) fn wake(&self, node: &str) {
        if let Some(notify) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(node) {
            notify.notify_one();
        }
    }
}

impl Deref for Wake {
    type Target = Notify;

    fn deref(&self) -> &Notify {
        &self.notify
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.node);
    }
}
