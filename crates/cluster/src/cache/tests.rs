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

/// `"+a5"` adds or changes, `"-a6"` deletes, `"learn a5"` is our own write, `"made a5"` our own create,
/// `"list a5 b6"` lists anew.
fn changes(script: &[&str]) -> Vec<String> {
    let told = changes_of(&Cache::new(trim::metadata), script);
    // However its objects are kept, a cache says the same.
    assert_eq!(changes_of(&Cache::packed(trim::metadata), script), told);
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
fn listeners_hear_of_every_change_once_with_both_states() {
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("new, changed, gone", &["+a1", "+a2", "-a"], &["a none -> 1", "a 1 -> 2", "a 2 -> none"]),
        ("a repeated state is no change", &["+a1", "+a1"], &["a none -> 1"]),
        (
            "a late event does not undo our write",
            &["+a1", "learn a3", "+a2", "+a3", "+a4"],
            &["a none -> 1", "a 1 -> 3", "a 3 -> 4"],
        ),
        (
            "an answer that comes late brings nothing back",
            &["+a1", "-a", "learn a2", "+a3"],
            &["a none -> 1", "a 1 -> none", "a none -> 3"],
        ),
        (
            "what we made is known before the watch tells of it",
            &["+a1", "made b2", "+b2", "+b3"],
            &["a none -> 1", "b none -> 2", "b 2 -> 3"],
        ),
        (
            "nor does word of something made that is gone again",
            &["+a1", "+b2", "-b3", "made b2", "+c4", "made d4"],
            &["a none -> 1", "b none -> 2", "b 2 -> none", "c none -> 4"],
        ),
        (
            "a new list tells what came, changed and went",
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
fn an_object_made_anew_is_newer_whatever_its_version() {
    let cache = Cache::new(trim::metadata);
    cache.learn_new(object("a", "first", 9));
    cache.learn_new(object("a", "second", 3));
    // What is answered about the first one says nothing of the second.
    cache.learn(object("a", "first", 10));
    assert_eq!(cache.get("a").unwrap().metadata.uid.as_deref(), Some("second"));
}

#[test]
fn word_of_the_end_of_an_earlier_object_does_not_end_the_one_made_since() {
    let cache = Cache::new(trim::metadata);
    cache.learn_new(object("a", "second", 7));
    cache.take(Event::Delete(object("a", "first", 6)), &mut None);
    assert_eq!(cache.get("a").unwrap().metadata.uid.as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_absent_where_the_server_says_so_and_not_where_it_says_nothing() {
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
fn a_packed_object_takes_little_room_and_comes_out_as_it_went_in() {
    let conditions = (0..15).map(|number| {
        let message = "Action during update to rendered-worker-0123456789abcdef0123456789abcdef";
        (format!("Condition{number}"), format!("{message}, step {number}"))
    });
    let mut report = object("worker-0", "u", 7);
    report.data = Some(conditions.collect());
    let report = Arc::new(report);
    let Kept::Packed(bytes, open) = Keeper::packer().keep(&report) else { panic!("not packed") };
    assert_eq!(open(&bytes), report);
    let text = serde_json::to_vec(&*report).unwrap();
    assert!(5 * bytes.len() < text.len(), "{} of {}", bytes.len(), text.len());
}
