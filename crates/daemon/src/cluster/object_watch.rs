//! Watches a single object of the cluster by its name.

use futures::{Stream, StreamExt as _};
use mco_cluster::{
    Api, Object,
    watch::{self, Config, Observed, WatchError},
};

/// Calls `on_change` with the object whenever it changes, and with none while it does not exist. Ends
/// when `on_change` returns `Stop`.
pub(crate) async fn watch_one<K: Object>(
    api: Api<K>,
    name: &str,
    config: Config,
    on_change: impl FnMut(Option<K>) -> AfterChange,
) {
    watch_one_with_errors(api, name, config, on_change, |_| {}).await;
}

/// Like [`watch_one`], and calls `on_error` with each error of the watch.
pub(crate) async fn watch_one_with_errors<K: Object>(
    api: Api<K>,
    name: &str,
    config: Config,
    mut on_change: impl FnMut(Option<K>) -> AfterChange,
    on_error: impl FnMut(&WatchError),
) {
    let states = watch::object(&api, name, config);
    follow(states, |state| on_change(state.object), on_error).await;
}

/// Calls `on_change` with each state of a watched object, and `on_error` with each error of the watch.
/// Ends when `on_change` returns `Stop`.
pub(crate) async fn follow<K>(
    mut states: impl Stream<Item = Result<Observed<K>, WatchError>> + Unpin,
    mut on_change: impl FnMut(Observed<K>) -> AfterChange,
    mut on_error: impl FnMut(&WatchError),
) {
    while let Some(state) = states.next().await {
        match state {
            Ok(state) => {
                if on_change(state) == AfterChange::Stop {
                    return;
                }
            }
            Err(error) => on_error(&error),
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
