//! Tests of the store.

use super::{encode::MAX_DEPTH, *};
use crate::object as fields;
use serde_json::json;

fn write(name: &str, expect: Option<u64>, put: Put) -> Write {
    Write { collection: "things".into(), key: Key::new("", name), expect, put }
}

fn thing(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

async fn add(store: &Store, name: &str) -> u64 {
    store.commit(write(name, None, Put::Keep(thing(name)))).await.unwrap().version
}

#[tokio::test]
async fn a_write_at_the_wrong_version_is_rejected() {
    let store = Store::in_memory(10);
    let first = add(&store, "a").await;
    let again = store.commit(write("a", None, Put::Keep(thing("a")))).await;
    assert_eq!(again.unwrap_err(), WriteError::Stale);
    let stale = store.commit(write("a", Some(first + 7), Put::Keep(thing("a")))).await;
    assert_eq!(stale.unwrap_err(), WriteError::Stale);
    let good = store.commit(write("a", Some(first), Put::Keep(thing("a")))).await.unwrap();
    assert_eq!(fields::meta(&good.value(), "resourceVersion"), good.version.to_string());
    assert!(good.version > first);
}

#[tokio::test]
async fn a_reader_of_the_log_sees_each_change_once_and_in_order() {
    let store = Store::in_memory(10);
    let start = store.version();
    let a = add(&store, "a").await;
    let b = add(&store, "b").await;
    store.commit(write("a", Some(a), Put::Remove(thing("a")))).await.unwrap();
    let (changes, complete) = store.since("things", start).unwrap();
    let seen: Vec<_> = changes.iter().map(|c| (c.kind, c.object.version)).collect();
    assert_eq!(
        seen,
        [(ChangeKind::Added, a), (ChangeKind::Added, b), (ChangeKind::Deleted, b + 1)]
    );
    assert_eq!(complete, b + 1);
    assert_eq!(store.since("things", b).unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_reader_that_is_behind_gets_a_part_of_the_changes() {
    let store = Store::in_memory(1_000);
    let start = store.version();
    for number in 0..=MAX_CHANGES {
        add(&store, &number.to_string()).await;
    }
    let (changes, complete) = store.since("things", start).unwrap();
    assert_eq!((changes.len(), complete), (MAX_CHANGES, start + MAX_CHANGES as u64));
    assert_eq!(store.since("things", complete).unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_version_older_than_the_log_is_an_error() {
    let store = Store::in_memory(2);
    let start = store.version();
    let first = add(&store, "a").await;
    add(&store, "b").await;
    assert!(store.since("things", start).is_ok());
    add(&store, "c").await;
    assert_eq!(store.since("things", start).unwrap_err(), TooOld { oldest: first });
    assert_eq!(store.since("things", first).unwrap().0.len(), 2);
}

#[tokio::test]
async fn a_reopened_store_continues_at_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Store::open(&path, 10).unwrap();
    let a = add(&store, "a").await;
    let b = add(&store, "b").await;
    store.commit(write("a", Some(a), Put::Remove(thing("a")))).await.unwrap();
    drop(store);
    let store = Store::open(&path, 10).unwrap();
    assert_eq!(store.version(), b + 1);
    let (objects, _) = store.list("things", None, None);
    assert_eq!(objects.iter().map(|o| &*o.head.name).collect::<Vec<_>>(), ["b"]);
    assert_eq!(store.since("things", b).unwrap_err(), TooOld { oldest: b + 1 });
    assert_eq!(add(&store, "c").await, b + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_many_concurrent_writers_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(&dir.path().join("state.redb"), 100).unwrap());
    let version = add(&store, "a").await;
    let tries = (0..20).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            store.commit(write("a", Some(version), Put::Keep(thing("a")))).await.is_ok()
        })
    });
    let won = futures::future::join_all(tries).await.into_iter().filter(|r| *r.as_ref().unwrap());
    assert_eq!(won.count(), 1);
}

#[tokio::test]
async fn a_log_of_large_objects_keeps_fewer_changes() {
    let store = Store::in_memory(10_000);
    let mut large = thing("a");
    large["data"] = "x".repeat(MAX_LOG_BYTES / 100).into();
    let mut version = None;
    let mut second = 0;
    for round in 0..200 {
        let done = store.commit(write("a", version, Put::Keep(large.clone()))).await.unwrap();
        version = Some(done.version);
        if round == 1 {
            second = done.version;
        }
    }
    assert!(store.since("things", second).is_err());
    let (recent, _) = store.since("things", store.version() - MIN_LOG_LEN as u64).unwrap();
    assert_eq!(recent.len(), MIN_LOG_LEN);
}

#[tokio::test]
async fn an_object_that_could_not_be_read_again_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let nested = |depth: usize| (0..depth).fold(json!(1), |below, _| json!({"a[\"": below}));
    {
        let store = Store::open(&path, 10).unwrap();
        let put = |name: &str, depth: usize, owners: usize| {
            let mut value = thing(name);
            value["spec"] = nested(depth);
            value["metadata"]["managedFields"] = nested(owners);
            store.commit(write(name, None, Put::Keep(value)))
        };
        assert_eq!(put("deep", MAX_DEPTH, 0).await.unwrap_err(), WriteError::TooDeep);
        assert!(put("less", MAX_DEPTH - 1, 0).await.is_ok());
        let stored = put("owned", 1, MAX_DEPTH).await.unwrap();
        assert_eq!(stored.value()["metadata"].get("managedFields"), None);
    }
    let store = Store::open(&path, 10).unwrap();
    assert_eq!(store.list("things", None, None).0.len(), 2);
}
