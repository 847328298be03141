//! Watches: complete, ordered, resumable.

use std::pin::pin;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use mco_apiserver::Settings;
use serde_json::json;

use crate::fixture::{client, client_of, soon};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"n": "0"}})).unwrap()
}

fn version(object: &ConfigMap) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_are_watched_once_and_in_order() {
    const WRITERS: usize = 8;
    const WRITES: usize = 25;
    let client = client().await;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                let mut versions = Vec::new();
                let name = format!("w{writer}");
                let made = api.create(&PostParams::default(), &config_map(&name)).await.unwrap();
                versions.push(version(&made));
                for number in 1..WRITES {
                    let patch = json!({"data": {"n": number.to_string()}});
                    let changed = api
                        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                        .await
                        .unwrap();
                    versions.push(version(&changed));
                }
                versions
            })
        })
        .collect();
    // A watch from the start and one that resumes in the middle see the same changes.
    let watched = watch_versions(&api, &start, WRITERS * WRITES);
    let seen = soon("all changes", watched).await;
    let mut written: Vec<u64> = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    written.sort_unstable();
    assert_eq!(seen, written);
    let middle = seen[seen.len() / 2].to_string();
    let tail = watch_versions(&api, &middle, seen.len() - seen.len() / 2 - 1);
    assert_eq!(soon("the tail", tail).await, seen[seen.len() / 2 + 1..]);
}

async fn watch_versions(api: &Api<ConfigMap>, from: &str, count: usize) -> Vec<u64> {
    let stream = api.watch(&WatchParams::default(), from).await.unwrap();
    let versions = stream.try_filter_map(|event| async move {
        Ok(match event {
            WatchEvent::Added(ref object) | WatchEvent::Modified(ref object) => {
                Some(version(object))
            }
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {
                panic!("{event:?}")
            }
        })
    });
    pin!(versions.take(count)).map(Result::unwrap).collect().await
}

#[tokio::test]
async fn a_watch_that_is_behind_catches_up() {
    let client = client().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let other: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut own = Vec::new();
    for number in 0..600 {
        let api = if number % 300 == 299 { &api } else { &other };
        let mut map = config_map(&format!("c{number}"));
        // Some events fill a batch, and some are larger than one.
        map.data.as_mut().unwrap().insert("x".into(), "x".repeat(number % 7 * 8_000));
        let made = api.create(&PostParams::default(), &map).await.unwrap();
        own.extend((number % 300 == 299).then(|| version(&made)));
    }
    let seen = soon("both changes", watch_versions(&api, &start, 2)).await;
    assert_eq!(seen, own);
    let seen = soon("all changes", watch_versions(&other, &start, 598)).await;
    assert!(seen.is_sorted() && seen.len() == 598);
}

#[tokio::test]
async fn a_version_older_than_the_log_has_expired() {
    let settings = Settings { watch_history: 3, ..Settings::default() };
    let api: Api<ConfigMap> = Api::namespaced(client_of(settings).await, "default");
    let first = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    for number in 0..5 {
        let patch = json!({"data": {"n": format!("x{number}")}});
        api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let from = first.resource_version().unwrap();
    let mut stream = pin!(api.watch(&WatchParams::default(), &from).await.unwrap());
    let event = soon("an error event", stream.try_next()).await.unwrap().unwrap();
    let WatchEvent::Error(status) = event else { panic!("{event:?}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(soon("the end", stream.try_next()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn idle_watches_get_bookmarks_and_time_out() {
    let client = client().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().timeout(100);
    let stream = api.watch(&params, &start).await.unwrap();
    // A write to another collection advances the version; the bookmark reports it.
    let other: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    let node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let made = other.create(&PostParams::default(), &node).await.unwrap();
    let events: Vec<_> = stream.try_collect().await.unwrap();
    let marks: Vec<String> = events
        .into_iter()
        .map(|event| {
            let WatchEvent::Bookmark(mark) = event else { panic!("{event:?}") };
            mark.metadata.resource_version
        })
        .collect();
    assert_eq!(marks.last(), made.resource_version().as_ref());
    assert_eq!(marks.len(), 2);
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_sent_as_deleted() {
    let api: Api<ConfigMap> = Api::namespaced(client().await, "default");
    let params = WatchParams::default().labels("role=x").disable_bookmarks();
    let mut stream = pin!(api.watch(&params, "0").await.unwrap());
    let label = async |name: &str, role: &str| {
        let patch = json!({"metadata": {"labels": {"role": role}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    };
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    label("a", "x").await;
    label("a", "y").await;
    label("a", "x").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(match soon("an event", stream.try_next()).await.unwrap().unwrap() {
            WatchEvent::Added(_) => "added",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        });
    }
    assert_eq!(kinds, ["added", "deleted", "added", "deleted"]);
}

#[tokio::test]
async fn reflectors_work_with_both_list_styles() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api: Api<ConfigMap> = Api::namespaced(client().await, "default");
        api.create(&PostParams::default(), &config_map("a")).await.unwrap();
        let (store, writer) = reflector::store();
        let stream = watcher(api.clone(), config).reflect(writer).applied_objects();
        let follow = tokio::spawn(stream.try_for_each(|_| async { Ok(()) }));
        soon("the first list", store.wait_until_ready()).await.unwrap();
        api.create(&PostParams::default(), &config_map("b")).await.unwrap();
        api.delete("a", &DeleteParams::default()).await.unwrap();
        let names =
            || -> Vec<String> { store.state().iter().map(|object| object.name_any()).collect() };
        soon("the reflector to hold only b", async {
            while names() != ["b"] {
                tokio::task::yield_now().await;
            }
        })
        .await;
        follow.abort();
    }
}
