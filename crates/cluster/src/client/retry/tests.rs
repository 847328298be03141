use std::{
    convert::Infallible,
    sync::atomic::{AtomicU32, Ordering},
};

use kube::Client;
use tokio::time::Instant;

use super::*;
use crate::client::{Deadlines, RequestMetrics, over};

const NODES: &str = "/api/v1/nodes";
const NODE: &str = "/api/v1/nodes/a";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
const EVICTION: &str = "/api/v1/namespaces/a/pods/b/eviction";
const MERGE: &str = "application/merge-patch+json";

/// Returns the number of requests that reach a server which always answers `code`, and the
/// seconds they take.
async fn calls(code: u16, after: Option<&'static str>, path: &str) -> (u32, u64) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        if let Some(after) = after {
            response.headers_mut().insert(RETRY_AFTER, after.parse().unwrap());
        }
        async { Ok::<_, Infallible>(response) }
    });
    let client = over(service, "default", &Options::default());
    let start = Instant::now();
    let request = Request::builder().uri(path).body(Vec::new()).unwrap();
    drop(client.request_text(request).await);
    (count.load(Ordering::SeqCst), start.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_busy_server_are_retried_a_few_times() {
    let rows = [
        (200, None, NODE, 1, 0..=0),
        (404, None, NODE, 1, 0..=0),
        (409, None, NODE, 1, 0..=0),
        (500, None, NODE, 4, 0..=1),
        (429, None, NODE, 4, 0..=1),
        (503, None, NODE, 4, 0..=1),
        (429, Some("1"), NODE, 4, 3..=4),
        (429, Some("60"), NODE, 1, 0..=0),
        (429, None, EVICTION, 1, 0..=0),
        (503, None, LEASE, 1, 0..=0),
    ];
    for (code, after, path, count, seconds) in rows {
        let (called, took) = calls(code, after, path).await;
        assert_eq!(called, count, "{code} {after:?} {path}");
        assert!(seconds.contains(&took), "{code} {after:?} {path}: {took} s");
    }
}

#[test]
fn a_request_is_repeated_only_if_that_changes_nothing() {
    use Fault::{Busy, Gone, Lost, NotSent, ServerError, TimedOut};
    let named = r#"{"metadata": {"name": "a"}, "spec": {}}"#;
    let generated = r#"{"metadata": {"generateName": "a-"}}"#;
    let guarded = r#"{"preconditions": {"uid": "1"}}"#;
    // Method, path, content type, body, and the faults after which it is repeated.
    let all: &[Fault] = &[Busy, NotSent, ServerError, Lost, TimedOut];
    let written: &[Fault] = &[Busy, NotSent, Lost, TimedOut];
    let unsafe_: &[Fault] = &[Busy, NotSent];
    let rows = [
        (Method::GET, NODE, "", "", all),
        (Method::GET, "/api/v1/nodes?watch=true&resourceVersion=1", "", "", &[Busy][..]),
        (Method::GET, "/api/v1/nodes?allowWatchBookmarks=true&watch=1", "", "", &[Busy]),
        (Method::PUT, NODE, "application/json", named, written),
        (Method::PATCH, NODE, MERGE, "{}", written),
        (Method::PATCH, NODE, "application/apply-patch+yaml", "{}", written),
        (Method::PATCH, NODE, "application/json-patch+json", "[]", unsafe_),
        (Method::PATCH, NODE, "application/strategic-merge-patch+json", "{}", unsafe_),
        (Method::POST, NODES, "application/json", named, written),
        (Method::POST, NODES, "application/json", generated, unsafe_),
        (Method::POST, NODES, "application/json", "no JSON", unsafe_),
        (Method::DELETE, NODE, "application/json", guarded, written),
        (Method::DELETE, NODE, "application/json", "{}", unsafe_),
        (Method::DELETE, NODE, "", "", unsafe_),
        (Method::POST, EVICTION, "application/json", named, &[]),
        (Method::PUT, LEASE, "application/json", named, &[]),
        (Method::GET, LEASE, "", "", &[]),
    ];
    for (method, uri, content_type, body, repeated) in rows {
        let uri: http::Uri = uri.parse().unwrap();
        let (path, query) = (uri.path(), uri.query());
        let call = Call { method: &method, path, query, content_type, body: body.as_bytes() };
        for fault in all.iter().chain(&[Gone]) {
            let expected = repeated.contains(fault);
            assert_eq!(may_repeat(&call, *fault), expected, "{fault:?} {method} {uri} {body}");
        }
    }
}

/// A server whose first answers are lost.
fn losing(lost: u32, options: &Options) -> (Client, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        let is_lost = counted.fetch_add(1, Ordering::SeqCst) < lost;
        async move {
            if is_lost {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
        }
    });
    (over(service, "default", options), count)
}

fn request(method: Method, path: &str, body: &str) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, MERGE);
    request.body(body.into()).unwrap()
}

fn encoded(registry: &prometheus_client::registry::Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_seconds_and_is_counted() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = RequestMetrics::default();
    metrics.register(&mut registry);
    let options = Options { metrics: metrics.clone(), ..Options::default() };
    let limit = Deadlines::DEFAULT.first_byte;
    for (method, body) in [(Method::GET, ""), (Method::PATCH, "{}")] {
        let (client, count) = losing(1, &options);
        let start = Instant::now();
        assert_eq!(client.request_text(request(method, NODE, body)).await.unwrap(), "{}");
        assert_eq!(count.load(Ordering::SeqCst), 2);
        assert!(start.elapsed() >= limit && start.elapsed() < limit + Duration::from_secs(1));
    }
    let text = encoded(&registry);
    for line in [
        "mco_api_requests_total{method=\"GET\",result=\"2xx\"} 1",
        "mco_api_requests_total{method=\"GET\",result=\"timeout\"} 1",
        "mco_api_requests_total{method=\"PATCH\",result=\"2xx\"} 1",
        "mco_api_request_timeouts_total{deadline=\"first_byte\"} 2",
        "mco_api_request_retries_total{reason=\"timeout\"} 2",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(metrics.in_flight().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    for (method, body, attempts) in
        [(Method::GET, "", 2), (Method::POST, "{}", 1), (Method::DELETE, "{}", 1)]
    {
        let options = Options::default();
        let (client, count) = losing(u32::MAX, &options);
        let calling = client.request_text(request(method.clone(), "/api/v1/nodes/a?b=c", body));
        let error = crate::CallError::from(calling.await.unwrap_err());
        assert_eq!(count.load(Ordering::SeqCst), attempts, "{method}");
        let text = report::chain(&error);
        let expected = format!("{method} /api/v1/nodes/a timed out: no answer within 20s");
        assert!(text.contains(&expected) && !text.contains("b=c"), "{text}");
    }
}
