//! Watches a single object of the cluster by its name.

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher;
use mco_cluster::{Api, Object, report::chain, watch};
use tracing::{debug, info, warn};

/// Calls `on_change` with the object whenever it changes, and with none while it does not exist. Ends
/// when `on_change` returns `Stop`.
pub(crate) async fn watch_one<K: Object>(
    api: Api<K>,
    name: &str,
    on_change: impl FnMut(Option<K>) -> AfterChange,
) {
    watch_one_with_errors(api, name, on_change, |_| {}).await;
}

/// Like [`watch_one`], and calls `on_error` with each error of the watch.
pub(crate) async fn watch_one_with_errors<K: Object>(
    api: Api<K>,
    name: &str,
    on_change: impl FnMut(Option<K>) -> AfterChange,
    on_error: impl FnMut(&watcher::Error),
) {
    follow(watch::object(&api, name), &K::kind(&()), name, on_change, on_error).await;
}

/// Calls `on_change` with each state of a watched object of this kind, and `on_error` with each error
/// of the watch. Ends when `on_change` returns `Stop`.
pub(crate) async fn follow<K>(
    mut changes: impl Stream<Item = Result<Option<K>, watcher::Error>> + Unpin,
    kind: &str,
    name: &str,
    mut on_change: impl FnMut(Option<K>) -> AfterChange,
    mut on_error: impl FnMut(&watcher::Error),
) {
    let mut log = WatchLog::default();
    while let Some(change) = changes.next().await {
        match change {
            Ok(object) => {
                log.recovered(kind);
                if on_change(object) == AfterChange::Stop {
                    return;
                }
            }
            Err(error) => {
                on_error(&error);
                log.failed(kind, name, &error);
            }
        }
    }
}

/// The decision of a callback after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterChange {
    /// Continue the watch.
    Continue,
    /// Stop the watch.
    Stop,
}

/// Logs a watch error once, however often it repeats.
#[derive(Debug, Default)]
struct WatchLog {
    logged: Option<String>,
}

impl WatchLog {
    fn recovered(&mut self, kind: &str) {
        if self.logged.take().is_some() {
            info!(kind, "Watch recovered");
        }
    }

    fn failed(&mut self, kind: &str, name: &str, error: &watcher::Error) {
        let text = chain(error);
        if self.logged.as_deref() == Some(&text) {
            debug!(kind, name, error = text, "Failed to watch");
            return;
        }
        if is_unknown_kind(error) {
            // The operator creates the CRDs; a daemon that starts earlier waits for them.
            info!(kind, "Waiting for the CRD to be created");
        } else {
            warn!(kind, name, error = text, "Failed to watch");
        }
        self.logged = Some(text);
    }
}

/// Returns true if the API server does not know the kind yet.
fn is_unknown_kind(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source)) =
        error
    else {
        return false;
    };
    matches!(source, kube::Error::Api(status) if status.code == 404)
}
