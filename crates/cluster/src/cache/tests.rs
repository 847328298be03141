use std::{convert::Infallible, sync::Mutex, time::Duration};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use serde_json::json;

use super::*;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    object
}

/// Applies a script to the cache and returns the changes. `"+a5"` adds or changes, `"-a6"` deletes,
/// `"learn a5"` is the result of a write, `"made a5"` that of a create, `"list a5 b6"` a new list.
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
    let mut listed = None;
    for step in script {
        if let Some(word) = step.strip_prefix("learn ") {
            cache.learn(parse(word));
        } else if let Some(word) = step.strip_prefix("made ") {
            cache.learn_new(parse(word));
        } else if let Some(words) = step.strip_prefix("list") {
            cache.take(Event::<ConfigMap>::Init, &mut listed);
            for word in words.split_whitespace() {
                cache.take(Event::InitApply(parse(word)), &mut listed);
            }
            cache.take(Event::<ConfigMap>::InitDone, &mut listed);
        } else if let Some(word) = step.strip_prefix('+') {
            cache.take(Event::Apply(parse(word)), &mut listed);
        } else if let Some(word) = step.strip_prefix('-') {
            cache.take(Event::Delete(parse(word)), &mut listed);
        }
    }
    told.lock().unwrap().clone()
}

#[test]
fn listeners_are_called_once_for_every_change_with_both_states() {
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("new, changed, gone", &["+a1", "+a2", "-a"], &["a none -> 1", "a 1 -> 2", "a 2 -> none"]),
        ("a repeated state is no change", &["+a1", "+a1"], &["a none -> 1"]),
        (
            "a late event does not undo a write",
            &["+a1", "learn a3", "+a2", "+a3", "+a4"],
            &["a none -> 1", "a 1 -> 3", "a 3 -> 4"],
        ),
        (
            "a late response does not restore a deleted object",
            &["+a1", "-a", "learn a2", "+a3"],
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
            &["+a1", "+b2", "+c3", "list a1 b4 d5"],
            &[
                "a none -> 1",
                "b none -> 2",
                "c none -> 3",
                "b 2 -> 4",
                "d none -> 5",
                "c 3 -> none",
            ],
        ),
        ("deleting the unknown is no change", &["-a"], &[]),
    ];
    for (case, script, expected) in rows {
        assert_eq!(changes(script), *expected, "{case}");
    }
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
    cache.take(Event::Delete(object("a", "first", 6)), &mut None);
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
            () = cache.run(api, watcher::Config::default(), &shutdown) => panic!("it goes on"),
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
