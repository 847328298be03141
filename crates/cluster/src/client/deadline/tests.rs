//! Deadlines against a real socket.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::TryStreamExt as _;
use kube::api::WatchEvent;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::{
    CallError,
    client::{Client, Options, connect_through},
    report,
};

/// Limits that are long enough for a loaded machine to answer.
const SHORT: Deadlines = Deadlines {
    connect: Duration::from_millis(700),
    first_byte: Duration::from_secs(1),
    answer: Duration::from_secs(2),
    idle: Duration::from_millis(1500),
};

const EVENT: &str = r#"{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"a"}}}"#;

/// A server that answers by path.
struct Server {
    address: std::net::SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, connections }
    }

    async fn client(&self, metrics: &RequestMetrics) -> Client {
        client(&format!("http://{}", self.address), metrics).await
    }
}

async fn client(server: &str, metrics: &RequestMetrics) -> Client {
    let kubeconfig = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{server}', \
             insecure-skip-tls-verify: true}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
    );
    let read = Arc::new(move |_: &str| Ok(kubeconfig.clone().into_bytes()));
    let options = Options { deadlines: SHORT, metrics: metrics.clone(), ..Options::default() };
    connect_through("/kubeconfig", read, &options).await.unwrap()
}

async fn serve(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut path = None;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let target = line.split(' ').nth(1).filter(|_| line.contains(" HTTP/1.1"));
            path = target.map(str::to_owned).or(path);
            if line == "\r\n" {
                break;
            }
        }
        let event = format!("{:x}\r\n{EVENT}\n\r\n", EVENT.len() + 1);
        let answer = match path.unwrap().split('?').next().unwrap() {
            "/silent" => String::new(),
            "/half" => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
            "/events" => format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{event}"),
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn failure(client: &Client, method: Method, path: &str) -> String {
    let request = Request::builder().method(method).uri(path).body(Vec::new()).unwrap();
    let error = client.request_text(request).await.expect_err("it times out");
    report::chain(&CallError::from(error))
}

#[tokio::test]
async fn each_deadline_ends_a_request_and_is_named() {
    let (server, metrics) = (Server::start().await, RequestMetrics::default());
    let plain = server.client(&metrics).await;
    // The kernel accepts connections, but the TLS handshake is never answered.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = client(&format!("https://{}", silent.local_addr().unwrap()), &metrics).await;
    let rows = [
        (&plain, "/silent", "POST /silent timed out: no answer within 1s"),
        (&plain, "/half?a=b", "POST /half timed out: no complete answer within 2s"),
        (&tls, "/ok", "POST /ok timed out: no connection within 700ms"),
    ];
    for (client, path, expected) in rows {
        let text = failure(client, Method::POST, path).await;
        assert_eq!(text, expected);
    }
}

#[tokio::test]
async fn a_watch_lasts_until_it_is_idle() {
    let (server, metrics) = (Server::start().await, RequestMetrics::default());
    let client = server.client(&metrics).await;
    let request = Request::get("/events?watch=true").body(Vec::new()).unwrap();
    let start = Instant::now();
    let events = client.request_events::<Value>(request).await.unwrap();
    let mut events = std::pin::pin!(events);
    let first = events.try_next().await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(_))), "{first:?}");
    let error = events.try_next().await.expect_err("the watch is idle");
    assert!(start.elapsed() >= SHORT.idle);
    let text = report::chain(&CallError::from(error));
    assert!(text.contains("GET /events timed out: no event within 1.5s"), "{text}");
}

#[tokio::test]
async fn a_connection_that_timed_out_is_not_used_again() {
    let (server, metrics) = (Server::start().await, RequestMetrics::default());
    let client = server.client(&metrics).await;
    let connections = || server.connections.load(Ordering::SeqCst);
    let ask =
        async |path: &str| client.request_text(Request::get(path).body(Vec::new()).unwrap()).await;
    for _ in 0..2 {
        ask("/ok").await.unwrap();
    }
    assert_eq!(connections(), 1, "a connection is used again");
    failure(&client, Method::POST, "/silent").await;
    ask("/ok").await.unwrap();
    assert_eq!(connections(), 2, "after a time-out there is a new one");
}

#[test]
fn watches_are_recognised_by_their_query() {
    let rows = [
        (None, false),
        (Some(""), false),
        (Some("&watch=true&timeoutSeconds=290"), true),
        (Some("watch=1"), true),
        (Some("watch=false"), false),
        (Some("allowWatchBookmarks=true"), false),
        (Some("labelSelector=watch%3Dtrue"), false),
    ];
    for (query, expected) in rows {
        assert_eq!(is_watch(query), expected, "{query:?}");
    }
}
