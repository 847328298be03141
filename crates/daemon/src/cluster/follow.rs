//! Follows one object of the cluster by its name.

use std::fmt::Debug;

use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watch_object},
    },
};
use mco_cluster::report::chain;
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

/// Calls `tell` with the object whenever it changes, and with none when it is not there; ends when
/// `tell` says that nobody listens any longer.
pub(crate) async fn follow_object<K>(
    api: Api<K>,
    name: &str,
    tell: impl FnMut(Option<K>) -> Listening,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    follow_minding(api, name, tell, |_| {}).await;
}

/// The same, and calls `mind` with what keeps the API from answering.
pub(crate) async fn follow_minding<K>(
    api: Api<K>,
    name: &str,
    mut tell: impl FnMut(Option<K>) -> Listening,
    mut mind: impl FnMut(&watcher::Error),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&());
    let mut changes = std::pin::pin!(watch_object(api, name).default_backoff());
    let mut calm = Calm::default();
    while let Some(change) = changes.next().await {
        match change {
            Ok(object) => {
                calm.works(&kind);
                if tell(object) == Listening::No {
                    return;
                }
            }
            Err(error) => {
                mind(&error);
                calm.fails(&kind, name, &error);
            }
        }
    }
}

/// Whether somebody still wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listening {
    /// Go on.
    Yes,
    /// Stop.
    No,
}

/// Says a fault once, however often it is met.
#[derive(Debug, Default)]
struct Calm {
    said: Option<String>,
}

impl Calm {
    fn works(&mut self, kind: &str) {
        if self.said.take().is_some() {
            info!("The API answers about {kind} again");
        }
    }

    fn fails(&mut self, kind: &str, name: &str, error: &watcher::Error) {
        let text = chain(error);
        if self.said.as_deref() == Some(&text) {
            debug!("Cannot watch {kind} {name}: {text}");
            return;
        }
        if is_absent(error) {
            // The operator brings the kinds; whoever starts before it waits.
            info!("Waiting for the API to know {kind}");
        } else {
            warn!("Cannot watch {kind} {name}: {text}");
        }
        self.said = Some(text);
    }
}

/// Whether the API does not know the kind yet.
fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source)) =
        error
    else {
        return false;
    };
    matches!(source, kube::Error::Api(status) if status.code == 404)
}
