use std::{convert::Infallible, sync::Mutex, time::Duration};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{storage::Stored, *};
use crate::watch::{Page, Text};

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    object
}

/// Applies a script to the cache and returns the changes. `"+a5"` adds or changes, `"-a6"` deletes,
/// `"learn a5"` is the result of a write, `"made a5"` that of a create. `"send"` requests a list,
/// `"list 7 a5 b6"` is its answer with version 7, requested right before unless there was a `"send"`.
/// `"mark 7"` is a bookmark. A lost write adds the line `"lost"`.
fn changes(script: &[&str]) -> Vec<String> {
    let told = changes_of(&Cache::new(trim::metadata), script);
    // The storage format makes no difference.
    assert_eq!(changes_of(&Cache::compressed(trim::metadata), script), told);
    told
}

fn changes_of(cache: &Cache<ConfigMap>, script: &[&str]) -> Vec<String> {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = told.clone();
    cache.on_change(move |change| {
        let version = |object: Option<&Arc<ConfigMap>>| {
            object.map_or("none".to_owned(), |object| object.resource_version().unwrap())
        };
        let name = change.object().unwrap().name_any();
        let line = format!("{name} {} -> {}", version(change.before), version(change.after));
        heard.lock().unwrap().push(line);
    });
    let parse = |word: &str| object(&word[..1], "u", word[1..].parse().unwrap_or(0));
    let text = |word: &str| serde_json::to_value(parse(word)).unwrap();
    let mut is_sent = false;
    for step in script {
        if let Some(word) = step.strip_prefix("learn ") {
            cache.learn(parse(word));
        } else if let Some(word) = step.strip_prefix("made ") {
            cache.learn_new(parse(word));
        } else if *step == "send" {
            is_sent = true;
            cache.take::<ConfigMap>(Event::ListStarted);
        } else if let Some(words) = step.strip_prefix("list ") {
            if !std::mem::take(&mut is_sent) {
                cache.take::<ConfigMap>(Event::ListStarted);
            }
            let mut words = words.split_whitespace();
            let version = words.next().unwrap().to_owned();
            let items: Vec<Value> = words.map(text).collect();
            cache.take::<ConfigMap>(Event::Page(Page::of(&items), version));
            cache.take::<ConfigMap>(Event::Listed);
        } else if let Some(version) = step.strip_prefix("mark ") {
            cache.take::<ConfigMap>(Event::Bookmark(version.to_owned()));
        } else if let Some(word) = step.strip_prefix('+') {
            cache.take::<ConfigMap>(Event::Applied(Text::from_value(&text(word))));
        } else if let Some(word) = step.strip_prefix('-') {
            cache.take::<ConfigMap>(Event::Deleted(Text::from_value(&text(word))));
        }
        if cache.read().has_lost_write() {
            told.lock().unwrap().push("lost".to_owned());
        }
    }
    told.lock().unwrap().clone()
}

#[test]
fn listeners_are_called_once_for_every_change_with_both_states() {
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("new, changed, gone", &["+a1", "+a2", "-a3"], &["a none -> 1", "a 1 -> 2", "a 2 -> none"]),
        ("a repeated state is no change", &["+a1", "+a1"], &["a none -> 1"]),
        (
            "a late event does not undo a write",
            &["+a1", "learn a3", "+a2", "+a3", "+a4"],
            &["a none -> 1", "a 1 -> 3", "a 3 -> 4"],
        ),
        (
            "a late response does not restore a deleted object",
            &["+a1", "-a2", "learn a2", "+a3"],
            &["a none -> 1", "a 1 -> none", "a none -> 3"],
        ),
        (
            "a created object is cached before the watch delivers it",
            &["+a1", "made b2", "+b2", "+b3"],
            &["a none -> 1", "b none -> 2", "b 2 -> 3"],
        ),
        (
            "a late response to a create does not restore a deleted object",
            &["+a1", "+b2", "-b3", "made b2", "+c4", "made d4"],
            &["a none -> 1", "b none -> 2", "b 2 -> none", "c none -> 4"],
        ),
        (
            "a new list delivers added, changed and deleted objects",
            &["+a1", "+b2", "+c3", "list 5 a1 b4 d5"],
            &[
                "a none -> 1",
                "b none -> 2",
                "c none -> 3",
                "b 2 -> 4",
                "d none -> 5",
                "c 3 -> none",
            ],
        ),
        ("deleting the unknown is no change", &["-a1"], &[]),
    ];
    for (case, script, expected) in rows {
        assert_eq!(changes(script), *expected, "{case}");
    }
}

#[test]
fn a_list_replaces_the_cache_and_a_learned_write_does_not_outlive_a_restore() {
    let rows: &[(&str, &[&str], &[&str])] = &[
        (
            "versions went back",
            &["list 90 a80 b90", "list 50 a40 c50", "+a51"],
            &[
                "a none -> 80",
                "b none -> 90",
                "a 80 -> 40",
                "c none -> 50",
                "b 90 -> none",
                "a 40 -> 51",
            ],
        ),
        (
            "a write that was finished before the list was requested is in it, or undone",
            &["list 90 a80", "learn a95", "list 50 a40", "mark 60"],
            &["a none -> 80", "a 80 -> 95", "a 95 -> 40"],
        ),
        (
            "a created object, likewise",
            &["list 90 a80", "made b95", "list 50 a40"],
            &["a none -> 80", "b none -> 95", "a 80 -> 40", "b 95 -> none"],
        ),
        (
            "a write that was finished after the list was requested is later than the list",
            &[
                "list 90 a80",
                "send",
                "learn a95",
                "made b96",
                "list 92 a80",
                "+a95",
                "+b96",
                "mark 99",
            ],
            &["a none -> 80", "a 80 -> 95", "b none -> 96"],
        ),
        (
            "the list already has the write",
            &["list 90 a80", "send", "learn a95", "list 97 a97", "mark 98"],
            &["a none -> 80", "a 80 -> 95", "a 95 -> 97"],
        ),
    ];
    for (case, script, expected) in rows {
        assert_eq!(changes(script), *expected, "{case}");
    }
}

#[test]
fn the_watch_confirms_a_learned_write_or_it_is_lost() {
    let rows: &[(&str, &[&str], &[&str])] = &[
        (
            "a server that lags delivers the write later, and older events do not undo it",
            &["list 90 a80", "learn a95", "mark 92", "+a93", "+a95", "mark 95"],
            &["a none -> 80", "a 80 -> 95"],
        ),
        (
            "a write that the watch passes without delivering it is lost",
            &[
                "list 90 a80",
                "send",
                "learn a95",
                "list 50 a40",
                "mark 94",
                "mark 95",
                "list 96 a40",
            ],
            &["a none -> 80", "a 80 -> 95", "lost", "a 95 -> 40"],
        ),
        (
            "a response that the watch is past changes nothing",
            &["list 90 a80", "learn a85", "mark 91"],
            &["a none -> 80"],
        ),
        (
            "deleted and created again between two lists",
            &["list 90 a80", "-a91", "+a92", "list 95 a92"],
            &["a none -> 80", "a 80 -> none", "a none -> 92"],
        ),
    ];
    for (case, script, expected) in rows {
        assert_eq!(changes(script), *expected, "{case}");
    }
}

#[test]
fn another_history_can_have_the_same_version_with_other_contents() {
    let cache = Cache::<ConfigMap>::new(trim::metadata);
    let list = |data: &str| {
        let mut one = serde_json::to_value(object("a", "u", 7)).unwrap();
        one["data"] = json!({"key": data});
        cache.take::<ConfigMap>(Event::ListStarted);
        cache.take::<ConfigMap>(Event::Page(Page::of(&[one]), "9".to_owned()));
        cache.take::<ConfigMap>(Event::Listed);
        cache.get("a").unwrap().data.clone().unwrap()["key"].clone()
    };
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    cache.on_change(move |_| *count.lock().unwrap() += 1);
    assert_eq!((list("old"), list("new"), list("new")), ("old".into(), "new".into(), "new".into()));
    assert_eq!(*told.lock().unwrap(), 2, "the same contents are no change");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_watch_never_delivers_is_lost_after_a_while() {
    let cache = Cache::new(trim::metadata);
    cache.learn_new(object("a", "u", 7));
    assert!(!cache.read().has_lost_write());
    tokio::time::advance(crate::watch::IDLE_LIMIT + Duration::from_secs(1)).await;
    assert!(cache.read().has_lost_write());
}

#[test]
fn an_object_that_cannot_be_decoded_is_left_out_and_named_without_its_contents() {
    let cache = Cache::<ConfigMap>::new(trim::metadata);
    let (told, changed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (heard, log) = (told.clone(), changed.clone());
    cache.on_unreadable(move |change| {
        heard.lock().unwrap().push(match change {
            Decoding::Failed(object) => object.to_string(),
            Decoding::Resolved(object) => format!("{} resolved", object.name),
        });
    });
    cache.on_change(move |change| {
        let gone = change.after.is_none();
        log.lock().unwrap().push(format!("{} {gone}", change.object().unwrap().name_any()));
    });
    let good = |name: &str, version| serde_json::to_value(object(name, "u", version)).unwrap();
    let bad = |version| {
        let mut bad = good("b", version);
        bad["data"] = json!({"key": ["SECRET"]});
        bad
    };
    cache.take::<ConfigMap>(Event::ListStarted);
    cache.take::<ConfigMap>(Event::Page(
        Page::of(&[good("a", 1), bad(2), good("c", 3)]),
        "3".into(),
    ));
    cache.take::<ConfigMap>(Event::Listed);
    assert_eq!(cache.list().len(), 2);
    let lines = told.lock().unwrap().clone();
    assert!(lines[0].starts_with("ConfigMap b cannot be decoded: unexpected type"), "{lines:?}");
    assert!(lines[0].contains("at data.key") && !lines[0].contains("SECRET"), "{lines:?}");
    // Its repair is heard, its next fault removes it again, and its deletion ends the matter.
    cache.take::<ConfigMap>(Event::Applied(Text::from_value(&good("b", 4))));
    assert!(cache.unreadable().is_empty() && cache.get("b").is_some());
    cache.take::<ConfigMap>(Event::Applied(Text::from_value(&bad(5))));
    assert!(cache.unreadable().len() == 1 && cache.get("b").is_none());
    cache.take::<ConfigMap>(Event::Deleted(Text::from_value(&bad(6))));
    assert!(cache.unreadable().is_empty());
    assert_eq!(*changed.lock().unwrap(), ["a false", "c false", "b false", "b true"]);
    let lines = told.lock().unwrap().clone();
    assert_eq!((lines.len(), &*lines[1], &*lines[3]), (4, "b resolved", "b resolved"), "{lines:?}");
}

#[test]
fn a_recreated_object_is_newer_whatever_its_version() {
    let cache = Cache::new(trim::metadata);
    cache.learn_new(object("a", "first", 9));
    cache.learn_new(object("a", "second", 3));
    // A response about the first object says nothing about the second.
    cache.learn(object("a", "first", 10));
    assert_eq!(cache.get("a").unwrap().metadata.uid.as_deref(), Some("second"));
}

#[test]
fn a_late_deletion_does_not_remove_a_recreated_object() {
    let cache = Cache::new(trim::metadata);
    cache.learn_new(object("a", "second", 7));
    let deleted = serde_json::to_value(object("a", "first", 6)).unwrap();
    cache.take::<ConfigMap>(Event::Deleted(Text::from_value(&deleted)));
    assert_eq!(cache.get("a").unwrap().metadata.uid.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_absent_if_the_api_server_says_so_and_not_if_it_does_not_answer() {
    for (code, is_absent) in [(404, true), (403, true), (500, false), (503, false), (429, false)] {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let refusal = json!({"kind": "Status", "status": "Failure", "code": code,
                "message": "no", "reason": ""});
            let mut response = Response::new(Body::from(refusal.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(response)
        });
        let api = Api::<ConfigMap>::all(Client::new(service, "default"));
        let (cache, shutdown) = (Cache::new(trim::metadata), Shutdown::new());
        let known = tokio::select! {
            () = cache.run(api, Config::default(), &shutdown) => panic!("it goes on"),
            known = tokio::time::timeout(Duration::from_hours(1), cache.ready_or_absent()) => known,
        };
        assert_eq!(known.is_ok(), is_absent, "{code}");
    }
}

#[test]
fn a_compressed_object_is_small_and_unchanged_when_it_is_loaded() {
    let conditions = (0..15).map(|number| {
        let message = "Action during update to rendered-worker-0123456789abcdef0123456789abcdef";
        (format!("Condition{number}"), format!("{message}, step {number}"))
    });
    let mut report = object("worker-0", "u", 7);
    report.data = Some(conditions.collect());
    let report = Arc::new(report);
    let Stored::Compressed(bytes, decode) = Storage::compressed().store(&report) else {
        panic!("not compressed")
    };
    assert_eq!(decode(&bytes), report);
    let text = serde_json::to_vec(&*report).unwrap();
    assert!(5 * bytes.len() < text.len(), "{} of {}", bytes.len(), text.len());
}
