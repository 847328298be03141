//! Watches the PinnedImageSets of the node's pool.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use mco_api::{MachineConfigNode, MachineConfigPool, PinnedImageSet};
use mco_cluster::{Api, watch::Config as WatchConfig};
use mco_core::machine_config_node::NOT_YET_SET;
use tokio::sync::watch;

use crate::cluster::object_watch::{AfterChange, watch_one};

/// Keeps `wanted` at the sets of the node's pool; none until the pool and all of its sets are read.
pub(super) async fn watch_sets(
    client: Client,
    config: WatchConfig,
    mut machine_config_node: watch::Receiver<Option<MachineConfigNode>>,
    wanted: watch::Sender<Option<Vec<PinnedImageSet>>>,
) {
    loop {
        let pool = pool_of(machine_config_node.borrow_and_update().as_ref());
        let other = async {
            let is_other = |now: &Option<MachineConfigNode>| pool_of(now.as_ref()) != pool;
            machine_config_node.wait_for(is_other).await.is_ok()
        };
        let watching = watch_pool(&client, &config, pool.as_deref(), &wanted);
        tokio::select! {
            continues = other => if !continues { return },
            () = watching => return,
        }
    }
}

fn pool_of(machine_config_node: Option<&MachineConfigNode>) -> Option<String> {
    let name = &machine_config_node?.spec.pool.name;
    (!name.is_empty() && name != NOT_YET_SET).then(|| name.clone())
}

async fn watch_pool(
    client: &Client,
    config: &WatchConfig,
    pool: Option<&str>,
    wanted: &watch::Sender<Option<Vec<PinnedImageSet>>>,
) {
    let Some(pool) = pool else { return std::future::pending().await };
    let (sender, mut sets) = watch::channel(None);
    let on_change = |object: Option<MachineConfigPool>| {
        let named = object.map(|pool| {
            pool.spec.pinned_image_sets.into_iter().map(|set| set.name).collect::<Vec<String>>()
        });
        // A deleted pool pins nothing.
        let named = Some(named.unwrap_or_default());
        sender.send_if_modified(|known| {
            let is_new = *known != named;
            *known = named;
            is_new
        });
        AfterChange::Continue
    };
    let watching = Box::pin(watch_one(Api::all(client.clone()), pool, config.clone(), on_change));
    let gathering = async {
        loop {
            let named = sets.borrow_and_update().clone();
            tokio::select! {
                changed = sets.changed() => if changed.is_err() { return },
                () = watch_each(client, config, named, wanted) => {}
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = gathering => {}
    }
}

/// Watches each of the sets; never ends.
async fn watch_each(
    client: &Client,
    config: &WatchConfig,
    names: Option<Vec<String>>,
    wanted: &watch::Sender<Option<Vec<PinnedImageSet>>>,
) {
    let Some(names) = names else { return std::future::pending().await };
    let publish = |sets: Option<Vec<PinnedImageSet>>| {
        wanted.send_if_modified(|known| {
            let is_new = *known != sets;
            *known = sets;
            is_new
        });
    };
    if names.is_empty() {
        publish(Some(Vec::new()));
        return std::future::pending().await;
    }
    let found: Arc<std::sync::Mutex<BTreeMap<String, Option<PinnedImageSet>>>> = Arc::default();
    let each = names.iter().map(|name| {
        let (found, names) = (Arc::clone(&found), &names);
        let on_change = move |object: Option<PinnedImageSet>| {
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.insert(name.clone(), object);
            // A deleted set pins nothing; a set that was not read yet is waited for.
            if found.len() == names.len() {
                publish(Some(found.values().flatten().cloned().collect()));
            }
            AfterChange::Continue
        };
        Box::pin(watch_one(Api::all(client.clone()), name, config.clone(), on_change))
    });
    futures::future::join_all(each).await;
}
