//! Tests of the admission by join tokens.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::{core::v1::Secret, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use mco_api::{
    ControllerConfig, annotation,
    join_token::{Binding, JoinToken, NAMESPACE},
    label,
};
use mco_cluster::{Health, Shutdown};
use mco_core::join::{StoredToken, TokenText, token::secret_name};
use mco_server::{
    Admission,
    admission::{AdmissionSettings, Requirement},
};
use mco_testkit::{log::Lines, object_wait};
use serde_json::json;
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use crate::{
    api_server::{Cluster, on_both},
    client::{Reply, tls},
    fixture::{PATIENCE, Running, source, start},
};

on_both!(
    only_machines_with_a_token_are_served,
    the_mode_follows_the_controller_config,
    two_servers_give_each_use_to_one_machine,
    refusals_are_limited_and_reported,
    a_failed_first_boot_becomes_an_event,
);

/// A server with admission.
struct Guarded {
    running: Running,
    watches: Shutdown,
}

impl Guarded {
    async fn start(cluster: &Cluster, requirement: Requirement) -> Self {
        let watches = Shutdown::new();
        let settings = AdmissionSettings::new(requirement);
        let admission = Admission::watch(&cluster.server, settings, &Health::default(), &watches);
        let running = start(source(), |settings| {
            settings.admission = Some(Arc::clone(&admission));
        });
        Self { running: running.await, watches }
    }

    async fn ask(&self, token: Option<&TokenText>, more: &[(&str, &str)]) -> Reply {
        self.ask_for("/config/worker", token, more).await
    }

    async fn ask_for(&self, path: &str, token: Option<&TokenText>, more: &[(&str, &str)]) -> Reply {
        let bearer = token.map(|token| format!("Bearer {}", token.reveal()));
        let mut request = Request::get(path).header("host", "localhost");
        if let Some(bearer) = bearer {
            request = request.header("authorization", bearer);
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        self.send(request.body(Full::default()).unwrap()).await
    }

    async fn report(&self, token: Option<&TokenText>, body: Vec<u8>) -> Reply {
        let mut request = Request::post("/report").header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.reveal()));
        }
        self.send(request.body(Full::from(body)).unwrap()).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let stream = tls(self.running.authority.roots()).connect(self.running.secure).await;
        let io = TokioIo::new(stream.unwrap());
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        drop(connection.await);
        Reply { status: parts.status, headers: parts.headers, body }
    }

    /// Asks until the response has the status.
    async fn wait_for(&self, what: &str, status: StatusCode, token: Option<&TokenText>) {
        let waiting = async { while self.ask(token, &[]).await.status != status {} };
        timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("timed out: {what}"));
    }

    async fn stop(self) {
        self.watches.request();
        self.running.stop().await;
    }
}

/// Stores a token and returns its text.
async fn make(client: &Client, change: impl FnOnce(&mut JoinToken)) -> TokenText {
    let text = TokenText::generate(|bytes| {
        bytes.fill_with(|| fastrand::u8(..));
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(text) = text;
    let now = Timestamp::now();
    let mut token = JoinToken {
        pool: "worker".to_owned(),
        secret_sha256: text.secret_sha256(),
        created: Time(now),
        expires: Time(now + SignedDuration::from_hours(1)),
        uses: 1,
        binding: Binding::default(),
        description: String::new(),
    };
    change(&mut token);
    let stored = StoredToken { id: text.id().to_owned(), token, joins: Vec::new() };
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &stored.secret()).await.unwrap();
    text
}

async fn stored(client: &Client, token: &TokenText) -> StoredToken {
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    StoredToken::read(&api.get(&secret_name(token.id())).await.unwrap()).unwrap()
}

async fn set_mode(client: &Client, mode: &str) {
    let configs = Api::<ControllerConfig>::all(client.clone());
    let patch = json!({"metadata": {"annotations": {(annotation::JOIN_TOKENS.name()): mode}}});
    let params = PatchParams::default();
    configs.patch(label::CONTROLLER_CONFIG, &params, &Patch::Merge(patch)).await.unwrap();
}

async fn only_machines_with_a_token_are_served(cluster: Cluster) {
    let client = cluster.client.clone();
    let token = make(&client, |_| {}).await;
    let of_infra = make(&client, |token| "infra".clone_into(&mut token.pool)).await;
    let expired = make(&client, |token| token.expires = token.created.clone()).await;
    let bound = make(&client, |token| "192.0.2.1".clone_into(&mut token.binding.address)).await;
    let server = Guarded::start(&cluster, Requirement::Always).await;
    let wrong = TokenText::parse(&format!("{}.{}", token.id(), "0".repeat(32))).unwrap();
    let unknown = TokenText::parse(&format!("zzzzzzzz.{}", "0".repeat(32))).unwrap();

    let none = server.ask(None, &[]).await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    assert!(none.header("mco-reason").unwrap().contains("mco token create"));
    let machine = [("mco-join-id", "machine-1"), ("mco-node-name", "w-1")];
    let refused = [
        (&wrong, "not valid"),
        (&unknown, "not valid"),
        (&of_infra, "for pool infra"),
        (&expired, "expired"),
        (&bound, "its address differs"),
    ];
    for (token, reason) in refused {
        let reply = server.ask(Some(token), &machine).await;
        assert_eq!((reply.status, reply.body.len()), (StatusCode::FORBIDDEN, 0), "{reason}");
        assert!(reply.header("mco-reason").unwrap().contains(reason), "{reply:?}");
    }
    let odd = server.ask(Some(&token), &[("mco-machine-id", "no")]).await;
    assert_eq!(odd.status, StatusCode::BAD_REQUEST);
    assert_eq!(stored(&client, &token).await.joins, [], "no refused request is recorded");

    let reply = server.ask(Some(&token), &machine).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert!(!reply.body.is_empty());
    let joins = stored(&client, &token).await.joins;
    assert_eq!(
        (joins.len(), joins[0].id.as_str(), joins[0].node.as_str()),
        (1, "machine-1", "w-1")
    );
    assert_eq!(server.ask(Some(&token), &machine).await.status, StatusCode::OK, "again");
    let other = server.ask(Some(&token), &[("mco-join-id", "machine-2")]).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN);
    assert!(other.header("mco-reason").unwrap().contains("all uses of the join token (1)"));

    // A revoked token is refused.
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    api.delete(&secret_name(token.id()), &DeleteParams::default()).await.unwrap();
    let waiting =
        async { while server.ask(Some(&token), &machine).await.status == StatusCode::OK {} };
    timeout(PATIENCE, waiting).await.expect("a revoked token is refused");
    server.stop().await;
}

async fn the_mode_follows_the_controller_config(cluster: Cluster) {
    let client = cluster.client.clone();
    let server = Guarded::start(&cluster, Requirement::ByControllerConfig).await;
    assert_eq!(server.ask(None, &[]).await.status, StatusCode::OK, "off by default");
    let mut plain = TcpStream::connect(server.running.plain).await.unwrap();
    let request = b"GET /config/worker HTTP/1.1\r\nhost: x\r\n\r\n";
    assert!(fetch(&mut plain, request).await.starts_with("HTTP/1.1 200"));

    set_mode(&client, "required").await;
    server.wait_for("tokens are required", StatusCode::UNAUTHORIZED, None).await;
    // The connection that was open before is closed without a word, and so is a new one.
    assert_eq!(fetch(&mut plain, request).await, "");
    for path in ["/config/worker", "/healthz", "/report"] {
        let mut plain = TcpStream::connect(server.running.plain).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(fetch(&mut plain, request.as_bytes()).await, "", "{path}");
    }
    let token = make(&client, |_| {}).await;
    server.wait_for("a new token is known", StatusCode::OK, Some(&token)).await;
    // A word that is not known opens nothing.
    set_mode(&client, "of").await;
    assert_eq!(server.ask(None, &[]).await.status, StatusCode::UNAUTHORIZED);

    set_mode(&client, "off").await;
    server.wait_for("tokens are off", StatusCode::OK, None).await;
    // A token that is not required is still recorded, and a wrong one stops no machine.
    let token = make(&client, |_| {}).await;
    let waiting = async {
        loop {
            let machine = [("mco-join-id", "machine-3")];
            assert_eq!(server.ask(Some(&token), &machine).await.status, StatusCode::OK);
            if !stored(&client, &token).await.joins.is_empty() {
                break;
            }
        }
    };
    timeout(PATIENCE, waiting).await.expect("the use is recorded");
    server.stop().await;
}

/// Sends a request and returns the first bytes of the answer; empty if the connection is closed.
async fn fetch(stream: &mut TcpStream, request: &[u8]) -> String {
    drop(stream.write_all(request).await);
    let mut answer = vec![0; 1 << 16];
    let read = timeout(PATIENCE, stream.read(&mut answer)).await.expect("an answer or an end");
    let length = read.unwrap_or_default();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

async fn two_servers_give_each_use_to_one_machine(cluster: Cluster) {
    let client = cluster.client.clone();
    for (uses, rounds) in [(1, 6), (3, 2)] {
        for round in 0..rounds {
            let token = make(&client, |token| token.uses = uses).await;
            let servers = [
                Guarded::start(&cluster, Requirement::Always).await,
                Guarded::start(&cluster, Requirement::Always).await,
            ];
            let asks = (0..10).map(|number| {
                let (server, token) = (&servers[number % 2], &token);
                async move {
                    let id = format!("machine-{number}");
                    server.ask(Some(token), &[("mco-join-id", &id)]).await.status
                }
            });
            let statuses = futures::future::join_all(asks).await;
            let served = statuses.iter().filter(|status| **status == StatusCode::OK).count();
            assert_eq!(served, usize::try_from(uses).unwrap(), "round {round}: {statuses:?}");
            let refused =
                statuses.iter().filter(|status| **status == StatusCode::FORBIDDEN).count();
            assert_eq!(served + refused, statuses.len(), "round {round}: {statuses:?}");
            assert_eq!(stored(&client, &token).await.joins.len(), served);
            for server in servers {
                server.stop().await;
            }
        }
    }
}

async fn events(client: &Client, reason: &str) -> Vec<Event> {
    let api = Api::<Event>::namespaced(client.clone(), label::NAMESPACE);
    let found = api.list(&ListParams::default().fields(&format!("reason={reason}"))).await.unwrap();
    found.items
}

async fn refusals_are_limited_and_reported(cluster: Cluster) {
    let client = cluster.client.clone();
    let before = events(&client, "JoinRefused").await.len();
    let server = Guarded::start(&cluster, Requirement::Always).await;
    let mut statuses = Vec::new();
    for number in 0..60 {
        let wrong = TokenText::parse(&format!("wrong{number:03}.{}", "0".repeat(32))).unwrap();
        statuses.push(server.ask(Some(&wrong), &[]).await.status);
    }
    assert_eq!(statuses[0], StatusCode::FORBIDDEN);
    // Which of the later ones are refused for their number depends on their time.
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
    // A machine with a token behind the same address is served all the same.
    let token = make(&client, |_| {}).await;
    server.wait_for("the token is known", StatusCode::OK, Some(&token)).await;
    let api = Api::<Event>::namespaced(client.clone(), label::NAMESPACE);
    let of_token = format!("with join token {}", token.id());
    let found = object_wait::find(api, |event: Event| {
        let is_it = event.note.as_deref().is_some_and(|note| note.contains(&of_token));
        is_it.then_some(event)
    });
    let found = found.await.expect("an event about the join");
    assert_eq!(found.reason.as_deref(), Some("JoinTokenUsed"));
    let found = events(&client, "JoinRefused").await;
    let new = found.len() - before;
    assert!((1..40).contains(&new), "{new} events");
    for event in &found {
        let note = event.note.as_deref().unwrap_or_default();
        assert!(!note.contains(&"0".repeat(32)), "no event has a secret: {note}");
    }
    server.stop().await;
}

async fn a_failed_first_boot_becomes_an_event(cluster: Cluster) {
    let client = cluster.client.clone();
    let token = make(&client, |token| token.expires = token.created.clone()).await;
    let server = Guarded::start(&cluster, Requirement::Always).await;
    let node = format!("w-{}", token.id());
    let report = json!({"pool": "worker", "node": node, "machineId": "00ff", "step": "fetch",
        "error": "no route\u{1b}[31m", "journal": [format!("token {}", token.reveal())]});
    let body = || report.to_string().into_bytes();
    assert_eq!(server.report(None, body()).await.status, StatusCode::UNAUTHORIZED);
    let waiting = async {
        // The token expired; it still tells who reports.
        while server.report(Some(&token), body()).await.status != StatusCode::NO_CONTENT {}
    };
    timeout(PATIENCE, waiting).await.expect("the report is accepted");
    let api = Api::<Event>::namespaced(client.clone(), label::NAMESPACE);
    let found = object_wait::find(api, |event: Event| {
        let is_it = event.note.as_deref().is_some_and(|note| note.contains(&node));
        is_it.then_some(event)
    });
    let found = found.await.expect("an event about the failure");
    assert_eq!(found.reason.as_deref(), Some("FirstBootFailed"));
    assert_eq!(found.regarding.unwrap().name.as_deref(), Some("worker"));
    let text = found.note.unwrap();
    assert!(text.contains("at step fetch: no route [31m"), "{text}");
    assert!(!text.contains(&token.reveal()), "{text}");

    let rows = [
        (vec![b'x'; 40 * 1024], StatusCode::PAYLOAD_TOO_LARGE),
        (b"{".to_vec(), StatusCode::BAD_REQUEST),
        (b"{\"pool\": 3}".to_vec(), StatusCode::BAD_REQUEST),
    ];
    for (body, expected) in rows {
        assert_eq!(server.report(Some(&token), body).await.status, expected);
    }
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(server.report(Some(&token), body()).await.status);
    }
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
    server.stop().await;
}

/// The server may read and patch tokens, and no other Secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_server_end_at_the_tokens() {
    let Some(cluster) = Cluster::real().await else { return };
    let tokens = Api::<Secret>::namespaced(cluster.server.clone(), NAMESPACE);
    tokens.list(&ListParams::default()).await.expect("the server lists tokens");
    let denied =
        |error: kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    assert!(denied(tokens.delete("x", &DeleteParams::default()).await.unwrap_err()));
    for namespace in [label::NAMESPACE, "kube-system", "default"] {
        let others = Api::<Secret>::namespaced(cluster.server.clone(), namespace);
        assert!(denied(others.list(&ListParams::default()).await.unwrap_err()), "{namespace}");
    }
}

/// Every decision is in the log and in the metrics: pool, token id, address and result, no secret.
#[tokio::test]
async fn every_decision_is_logged_and_counted() {
    let lines = Lines::default();
    // Another subscriber makes the log of this thread independent of that of other tests.
    let capture = tracing::dispatcher::set_default(&lines.dispatch(tracing::Level::INFO));
    let cluster = Cluster::embedded().await;
    let token = make(&cluster.client, |_| {}).await;
    let watches = Shutdown::new();
    let settings = AdmissionSettings::new(Requirement::Always);
    let admission = Admission::watch(&cluster.server, settings, &Health::default(), &watches);
    let mut registry = mco_cluster::admin::Registry::default();
    admission.register(&mut registry);
    let running = start(source(), |settings| settings.admission = Some(admission)).await;
    let server = Guarded { running, watches };
    let machine = [("mco-join-id", "machine-1"), ("mco-node-name", "w-1")];
    let unknown = TokenText::parse(&format!("zzzzzzzz.{}", "0".repeat(32))).unwrap();
    server.ask(None, &[]).await;
    server.ask(Some(&unknown), &[]).await;
    server.ask(Some(&token), &machine).await;
    server.ask(Some(&token), &machine).await;
    server.ask(Some(&token), &[("mco-join-id", "machine-2")]).await;
    server.stop().await;
    drop(capture);

    let log = lines.text();
    let decisions: Vec<&str> = log.lines().filter(|line| line.contains("Join request")).collect();
    let id = format!("token=\"{}\"", token.id());
    let rows = [
        ["refused", "result=\"no-token\"", "token=\"\""],
        ["refused", "result=\"unknown\"", "token=\"zzzzzzzz\""],
        ["admitted", "new=true", &id],
        ["admitted", "new=false", &id],
        ["refused", "result=\"used-up\"", &id],
    ];
    assert_eq!(decisions.len(), rows.len(), "{log}");
    for (line, parts) in decisions.iter().zip(rows) {
        for part in parts.into_iter().chain(["pool=\"worker\"", "peer=127.0.0.1:"]) {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    for token in [&token, &unknown] {
        let secret = token.reveal();
        assert!(!log.contains(secret.split('.').next_back().unwrap()), "{log}");
    }
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).unwrap();
    for (pool, result) in [
        ("", "no-token"),
        ("", "unknown"),
        ("worker", "joined"),
        ("worker", "repeated"),
        ("worker", "used-up"),
    ] {
        let line =
            format!("mco_server_join_requests_total{{pool=\"{pool}\",result=\"{result}\"}} 1");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}
