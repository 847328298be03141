//! The watcher against scripted servers, in virtual time.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, ResourceExt as _, client::Body};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{Cache, Health, Shutdown, cache::trim};

/// The end of a scripted watch.
#[derive(Clone, Copy)]
enum End {
    /// The server ends it.
    Close,
    /// Nothing more is sent.
    Silence,
}

/// A scripted answer.
enum Answer {
    Status(u16, Value),
    List(&'static str, Vec<Value>),
    Page(&'static str, &'static str, Vec<Value>),
    Lines(Vec<String>, End),
    /// The connection fails.
    Broken,
    /// No answer at all.
    Never,
}

fn object(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "uid": "u",
        "namespace": "n", "resourceVersion": version.to_string()}})
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

fn bookmark(version: u64) -> String {
    event("BOOKMARK", &json!({"metadata": {"resourceVersion": version.to_string()}}))
}

fn gone() -> Value {
    json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"})
}

fn too_large() -> Value {
    json!({"kind": "Status", "status": "Failure", "code": 504, "reason": "Timeout",
        "message": "Too large resource version: 100, current: 50",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}})
}

type BoxBody = UnsyncBoxBody<Bytes, Infallible>;

fn whole(code: u16, body: &Value) -> Response<BoxBody> {
    let body = http_body_util::Full::from(body.to_string()).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

fn list(version: &str, token: &str, items: &[Value]) -> Response<BoxBody> {
    let metadata = json!({"resourceVersion": version, "continue": token});
    whole(200, &json!({"kind": "ConfigMapList", "metadata": metadata, "items": items}))
}

async fn answer(answer: Option<Answer>) -> Result<Response<BoxBody>, std::io::Error> {
    match answer {
        Some(Answer::Status(code, status)) => Ok(whole(code, &status)),
        Some(Answer::List(version, items)) => Ok(list(version, "", &items)),
        Some(Answer::Page(version, token, items)) => Ok(list(version, token, &items)),
        Some(Answer::Lines(lines, end)) => {
            let frames = stream::iter(lines).map(|line| Ok(Frame::data(Bytes::from(line))));
            let body = match end {
                End::Close => StreamBody::new(frames).boxed_unsync(),
                End::Silence => StreamBody::new(frames.chain(stream::pending())).boxed_unsync(),
            };
            Ok(Response::new(body))
        }
        Some(Answer::Broken) => Err(std::io::ErrorKind::ConnectionReset.into()),
        Some(Answer::Never) | None => std::future::pending().await,
    }
}

/// A cache that follows a script, the requests that it sent, and its start.
struct Scripted {
    cache: Cache<ConfigMap>,
    client: Client,
    requests: Arc<Mutex<Vec<String>>>,
    start: Instant,
    health: Health,
}

impl Scripted {
    fn new(script: Vec<Answer>) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (script, log) = (Arc::new(Mutex::new(VecDeque::from(script))), requests.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            log.lock().unwrap().push(summary(request.uri()));
            answer(script.lock().unwrap().pop_front())
        });
        let client = Client::new(service, "default");
        let (cache, start) = (Cache::new(trim::metadata), Instant::now());
        Self { cache, client, requests, start, health: Health::default() }
    }

    /// Runs until as many requests were sent as the script has answers, and one more.
    async fn run(&self, requests: usize) {
        let (api, shutdown) = (Api::all(self.client.clone()), Shutdown::new());
        let config = Config::default().page_size(2).health(&self.health);
        let all_sent = async {
            while self.requests.lock().unwrap().len() < requests {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // The watcher has processed every answer.
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        tokio::select! {
            () = self.cache.run(api, config, &shutdown) => panic!("it goes on"),
            sent = tokio::time::timeout(Duration::from_hours(1), all_sent) => {
                sent.unwrap_or_else(|_| panic!("requests: {:?}", self.requests.lock().unwrap()));
            }
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns names and versions of the cached objects.
    fn objects(&self) -> Vec<String> {
        let objects = self.cache.list();
        let shown = objects.iter().map(|object| {
            format!("{}{}", object.name_any(), object.resource_version().unwrap_or_default())
        });
        shown.collect()
    }
}

/// Returns `list`, `list TOKEN`, `probe` or `watch VERSION`.
fn summary(uri: &http::Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let value = |key: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
    };
    if value("watch").is_none() {
        assert_eq!(value("resourceVersion"), None, "lists are consistent");
        if value("limit").as_deref() == Some("1") {
            return "probe".to_owned();
        }
        return value("continue").map_or("list".to_owned(), |token| format!("list {token}"));
    }
    assert_eq!(value("allowWatchBookmarks").as_deref(), Some("true"));
    let seconds: u64 = value("timeoutSeconds").unwrap().parse().unwrap();
    assert!((300..600).contains(&seconds), "{seconds}");
    format!("watch {}", value("resourceVersion").unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_api_server_whose_history_went_back_is_heard_again() {
    let restored = || Answer::List("50", vec![object("a", 40), object("c", 45)]);
    let silent = Duration::from_mins(3);
    let soon = Duration::from_secs(2);
    let refusals: [(&str, Answer, Duration); 6] = [
        ("too large", Answer::Status(504, too_large()), soon),
        (
            "too large, as an event",
            Answer::Lines(vec![event("ERROR", &too_large())], End::Silence),
            soon,
        ),
        ("gone", Answer::Status(410, gone()), soon),
        ("gone, as an event", Answer::Lines(vec![event("ERROR", &gone())], End::Silence), soon),
        ("a lower bookmark", Answer::Lines(vec![bookmark(51)], End::Silence), soon),
        // kube-apiserver accepts a version from its future and waits for it.
        ("silence", Answer::Lines(Vec::new(), End::Silence), silent + soon),
    ];
    for (case, refusal, within) in refusals {
        let script = vec![
            Answer::List("100", vec![object("a", 90), object("b", 95)]),
            refusal,
            restored(),
            Answer::Lines(vec![event("MODIFIED", &object("a", 55))], End::Silence),
        ];
        let scripted = Scripted::new(script);
        scripted.run(4).await;
        assert_eq!(scripted.requests(), ["list", "watch 100", "list", "watch 50"], "{case}");
        assert_eq!(scripted.objects(), ["a55", "c45"], "{case}");
        assert!(scripted.start.elapsed() < within, "{case}: {:?}", scripted.start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_was_restarted_with_a_restored_etcd_is_heard_within_seconds() {
    for cut in [Answer::Lines(Vec::new(), End::Close), Answer::Broken] {
        let script = vec![
            Answer::List("100", vec![object("a", 90), object("b", 95)]),
            cut,
            Answer::Broken,
            Answer::List("50", vec![object("a", 40)]),
            Answer::List("50", vec![object("a", 40)]),
            Answer::Lines(vec![event("MODIFIED", &object("a", 55))], End::Silence),
        ];
        let scripted = Scripted::new(script);
        scripted.run(6).await;
        let expected = ["list", "watch 100", "probe", "probe", "list", "watch 50"];
        assert_eq!(scripted.requests(), expected);
        assert_eq!(scripted.objects(), ["a55"]);
        assert!(
            scripted.start.elapsed() < Duration::from_secs(5),
            "{:?}",
            scripted.start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_resumes_from_the_last_event_or_bookmark() {
    let script = vec![
        Answer::Page("5", "t", vec![object("a", 1), object("b", 2)]),
        Answer::List("5", vec![object("c", 3)]),
        Answer::Lines(vec![event("ADDED", &object("d", 7)), bookmark(9)], End::Close),
        Answer::List("9", Vec::new()),
        Answer::Broken,
        Answer::List("10", Vec::new()),
        Answer::Lines(vec![event("DELETED", &object("a", 11))], End::Silence),
    ];
    let scripted = Scripted::new(script);
    scripted.run(7).await;
    let expected = ["list", "list t", "watch 5", "probe", "watch 9", "probe", "watch 9"];
    assert_eq!(scripted.requests(), expected);
    assert_eq!(scripted.objects(), ["b2", "c3", "d7"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_again_and_again_is_listed_again() {
    let empty = || Answer::Lines(Vec::new(), End::Close);
    let script = vec![
        Answer::List("5", vec![object("a", 1)]),
        empty(),
        Answer::List("5", Vec::new()),
        empty(),
        Answer::List("5", Vec::new()),
        Answer::Broken,
        Answer::Status(503, json!("busy")),
        Answer::List("9", vec![object("a", 8)]),
    ];
    let scripted = Scripted::new(script);
    scripted.run(9).await;
    let resumes = ["list", "watch 5", "probe", "watch 5", "probe", "watch 5", "probe"];
    assert_eq!(scripted.requests()[..7], resumes);
    assert_eq!(scripted.requests()[7..], ["list", "watch 9"]);
    assert_eq!(scripted.objects(), ["a8"]);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_cannot_be_read_leads_to_a_list() {
    let no_version = event("ADDED", &json!({"metadata": {"name": "x"}}));
    for line in ["{\"type\":\"ADDED\",\"obj\n".to_owned(), no_version, event("NEW", &json!({}))] {
        let script = vec![
            Answer::List("5", vec![object("a", 1)]),
            Answer::Lines(vec![line.clone()], End::Silence),
            Answer::List("9", vec![object("a", 8)]),
        ];
        let scripted = Scripted::new(script);
        scripted.run(4).await;
        assert_eq!(scripted.requests(), ["list", "watch 5", "list", "watch 9"], "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_minutes_and_not_for_ever() {
    let script = vec![
        Answer::Never,
        Answer::List("5", vec![object("a", 1)]),
        Answer::Never,
        Answer::List("5", Vec::new()),
        Answer::Lines(vec![bookmark(6)], End::Silence),
    ];
    let scripted = Scripted::new(script);
    scripted.run(5).await;
    assert_eq!(scripted.requests(), ["list", "list", "watch 5", "probe", "watch 5"]);
    assert!(scripted.start.elapsed() < Duration::from_mins(5), "{:?}", scripted.start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_with_bookmarks_is_left_alone() {
    let bookmarks = stream::iter(1..60).then(|number| async move {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from(bookmark(number))))
    });
    let body = Mutex::new(Some(StreamBody::new(bookmarks).boxed_unsync()));
    let body = Arc::new(body);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let summary = summary(request.uri());
        let is_list = summary == "list";
        log.lock().unwrap().push(summary);
        let body = if is_list { None } else { body.lock().unwrap().take() };
        async move {
            match body {
                Some(body) => Ok::<_, std::io::Error>(Response::new(body)),
                None if is_list => Ok(list("1", "", &[])),
                None => std::future::pending().await,
            }
        }
    });
    let (cache, shutdown) = (Cache::<ConfigMap>::new(trim::metadata), Shutdown::new());
    let health = Health::default();
    let config = Config::default().health(&health);
    tokio::select! {
        () = cache.run(Api::all(Client::new(service, "default")), config, &shutdown) => {}
        () = tokio::time::sleep(Duration::from_mins(30)) => {}
    }
    assert_eq!(*requests.lock().unwrap(), ["list", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_states_of_one_object_follow_a_restored_api_server() {
    let script = vec![
        Answer::List("100", vec![object("a", 90)]),
        Answer::Status(504, too_large()),
        Answer::List("50", vec![object("a", 40)]),
        Answer::Lines(
            vec![event("MODIFIED", &object("a", 51)), event("DELETED", &object("a", 52))],
            End::Silence,
        ),
    ];
    let scripted = Scripted::new(script);
    let api = Api::<ConfigMap>::all(scripted.client.clone());
    let states = super::object(&api, "a", Config::default());
    let states = states.filter_map(|state| async { state.ok() }).take(4);
    let states: Vec<Observed<ConfigMap>> = states.collect().await;
    let versions: Vec<Option<String>> =
        states.iter().map(|state| state.object.as_ref()?.resource_version()).collect();
    let expected = [Some("90"), Some("40"), Some("51"), None].map(|text| text.map(str::to_owned));
    assert_eq!(versions, expected);
    assert!(states[1].list_requested > states[0].list_requested);
    assert_eq!(states[1].list_requested, states[3].list_requested);
}

#[tokio::test(start_paused = true)]
async fn a_stale_watch_is_named_until_it_is_heard_again() {
    let script = vec![
        Answer::List("5", vec![object("a", 1)]),
        Answer::Lines(Vec::new(), End::Silence),
        Answer::Broken,
        Answer::Never,
        Answer::Never,
        Answer::List("9", Vec::new()),
    ];
    let scripted = Scripted::new(script);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (health, log) = (scripted.health.clone(), seen.clone());
    let look = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let stale = health.stale_watches();
            let mut seen = log.lock().unwrap();
            let is_stale = !stale.is_empty();
            if seen.last() != Some(&is_stale) {
                seen.push(is_stale);
            }
        }
    };
    assert!(health.stale_watches().is_empty(), "no watch, no staleness");
    tokio::select! {
        () = scripted.run(7) => {}
        () = look => {}
    }
    assert_eq!(*seen.lock().unwrap(), [false, true, false]);
    assert!(health.stale_watches().is_empty(), "the watch has ended");
}
