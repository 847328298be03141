//! Publishes objects that cannot be decoded as events, and enqueues the pools that wait for them.

use std::{borrow::Cow, sync::Arc};

use mco_cluster::{Level, Note, Shutdown, cache::Decoding, watch::Unreadable};
use tokio::sync::mpsc;

use crate::{Context, enqueue};

/// Reason of the events.
const REASON: &str = "Undecodable";

/// Publishes each fault once, until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let (sender, mut found) = mpsc::unbounded_channel();
    let observed = Arc::downgrade(&context);
    context.caches.on_unreadable(move |change| {
        if let Some(context) = observed.upgrade() {
            // A roll-out may wait for the object, or have to wait now.
            enqueue::enqueue_all_pools(&context);
        }
        if let Decoding::Failed(object) = change {
            // The receiver is dropped only at shutdown.
            drop(sender.send(object.clone()));
        }
    });
    let reporter = context.reporter("controller");
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            Some(object) = found.recv() => reporter.publish(&note(&object)).await,
        }
    }
}

fn note(object: &Unreadable) -> Note {
    Note {
        object: object.reference(),
        level: Level::Warning,
        reason: Cow::Borrowed(REASON),
        text: object.to_string(),
    }
}
