//! Which sets the node's pool names, and what they say.

use std::{collections::BTreeMap, sync::Arc};

use kube::{Api, Client};
use mco_api::{MachineConfigNode, MachineConfigPool, PinnedImageSet};
use mco_core::progress::NOT_YET_SET;
use tokio::sync::watch;

use crate::cluster::follow::{Listening, follow_object};

/// Keeps `wanted` at the sets of the node's pool; none while the pool is not known, or one of its sets.
pub(super) async fn follow(
    client: Client,
    mut report: watch::Receiver<Option<MachineConfigNode>>,
    wanted: watch::Sender<Option<Vec<PinnedImageSet>>>,
) {
    loop {
        let pool = pool_of(report.borrow_and_update().as_ref());
        let other = async {
            let is_other = |now: &Option<MachineConfigNode>| pool_of(now.as_ref()) != pool;
            report.wait_for(is_other).await.is_ok()
        };
        let following = follow_pool(&client, pool.as_deref(), &wanted);
        tokio::select! {
            goes_on = other => if !goes_on { return },
            () = following => return,
        }
    }
}

fn pool_of(report: Option<&MachineConfigNode>) -> Option<String> {
    let name = &report?.spec.pool.name;
    (!name.is_empty() && name != NOT_YET_SET).then(|| name.clone())
}

async fn follow_pool(
    client: &Client,
    pool: Option<&str>,
    wanted: &watch::Sender<Option<Vec<PinnedImageSet>>>,
) {
    let Some(pool) = pool else { return std::future::pending().await };
    let (sender, mut sets) = watch::channel(None);
    let tell = |object: Option<MachineConfigPool>| {
        let named = object.map(|pool| {
            pool.spec.pinned_image_sets.into_iter().map(|set| set.name).collect::<Vec<String>>()
        });
        // A pool that is gone pins nothing.
        let named = Some(named.unwrap_or_default());
        sender.send_if_modified(|known| {
            let is_news = *known != named;
            *known = named;
            is_news
        });
        Listening::Yes
    };
    let following = Box::pin(follow_object(Api::all(client.clone()), pool, tell));
    let gathering = async {
        loop {
            let named = sets.borrow_and_update().clone();
            tokio::select! {
                changed = sets.changed() => if changed.is_err() { return },
                () = follow_sets(client, named, wanted) => {}
            }
        }
    };
    tokio::select! {
        () = following => {}
        () = gathering => {}
    }
}

/// Follows each of the sets; never ends.
async fn follow_sets(
    client: &Client,
    names: Option<Vec<String>>,
    wanted: &watch::Sender<Option<Vec<PinnedImageSet>>>,
) {
    let Some(names) = names else { return std::future::pending().await };
    let publish = |sets: Option<Vec<PinnedImageSet>>| {
        wanted.send_if_modified(|known| {
            let is_news = *known != sets;
            *known = sets;
            is_news
        });
    };
    if names.is_empty() {
        publish(Some(Vec::new()));
        return std::future::pending().await;
    }
    let found: Arc<std::sync::Mutex<BTreeMap<String, Option<PinnedImageSet>>>> = Arc::default();
    let each = names.iter().map(|name| {
        let (found, names) = (Arc::clone(&found), &names);
        let tell = move |object: Option<PinnedImageSet>| {
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.insert(name.clone(), object);
            // A set that is deleted pins nothing; one that was not asked for yet is waited for.
            if found.len() == names.len() {
                publish(Some(found.values().flatten().cloned().collect()));
            }
            Listening::Yes
        };
        Box::pin(follow_object(Api::all(client.clone()), name, tell))
    });
    futures::future::join_all(each).await;
}
