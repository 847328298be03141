//! Notifies drains in progress when their node changes.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// Notifiers of the drains in progress, by node.
#[derive(Clone, Debug, Default)]
pub(super) struct DrainNotifiers(Arc<Mutex<BTreeMap<String, Arc<Notify>>>>);

/// The notifier of one drain; dropping it unregisters the drain.
pub(super) struct DrainNotifier {
    node: String,
    notify: Arc<Notify>,
    all: DrainNotifiers,
}

impl DrainNotifiers {
    /// Registers the drain of this node.
    pub(super) fn register(&self, node: &str) -> DrainNotifier {
        let notify = Arc::new(Notify::new());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(node.to_owned(), notify.clone());
        DrainNotifier { node: node.to_owned(), notify, all: self.clone() }
    }

    /// Notifies the drain of this node, if one is in progress.
    pub(super) fn notify(&self, node: &str) {
        if let Some(notify) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(node) {
            notify.notify_one();
        }
    }
}

impl Deref for DrainNotifier {
    type Target = Notify;

    fn deref(&self) -> &Notify {
        &self.notify
    }
}

impl Drop for DrainNotifier {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.node);
    }
}
