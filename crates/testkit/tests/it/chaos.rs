//! The proxy applies each fault of its plan to the request it names, and to no other.

use std::{path::Path, time::Duration};

use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::PostParams,
    client::Body,
    config::{Config, KubeConfigOptions, Kubeconfig},
};
use mco_apiserver::{ApiServer, Listener, Settings};
use mco_cluster::client::{self, Deadlines, Options};
use mco_testkit::{
    PATIENCE,
    chaos::{Chaos, Fault, Plan, Proxy},
};
use serde_json::json;

/// Time in which an answer that is not swallowed arrives.
const SHORT: Duration = Duration::from_secs(2);

/// An API server, a proxy in front of it, and a plain client of each.
struct Setup {
    direct: Client,
    through: Client,
    chaos: Chaos,
    proxy: Proxy,
    _folder: tempfile::TempDir,
}

async fn plain(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn setup() -> Setup {
    client::use_ring();
    let folder = tempfile::tempdir().unwrap();
    let api = ApiServer::open_dir(folder.path(), Settings::default()).await.unwrap();
    let listener = Listener::bind(api, folder.path(), ([127, 0, 0, 1], 0).into()).await.unwrap();
    let kubeconfig = listener.kubeconfig().to_owned();
    tokio::spawn(listener.serve(std::future::pending()));
    let chaos = Chaos::default();
    let proxy = Proxy::start(&chaos, &kubeconfig, folder.path()).await.unwrap();
    let (direct, through) = (plain(&kubeconfig).await, plain(proxy.kubeconfig()).await);
    Setup { direct, through, chaos, proxy, _folder: folder }
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": "value"}})).unwrap()
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

impl Setup {
    /// Creates a map through the proxy, with this fault. Returns the result, or none if there is no
    /// answer, and true if the server has the map.
    async fn create(&self, name: &str, fault: Fault) -> (Option<kube::Result<ConfigMap>>, bool) {
        self.chaos.apply(&Plan::single(1, fault));
        let api = maps(&self.through);
        let params = PostParams::default();
        let object = map(name);
        let created = tokio::time::timeout(SHORT, api.create(&params, &object)).await.ok();
        let applied = self.chaos.applied();
        assert_eq!(applied.len(), 1, "{applied:?}");
        assert_eq!((applied[0].number, applied[0].fault), (1, Some(fault)));
        let exists = maps(&self.direct).get_opt(name).await.unwrap().is_some();
        (created, exists)
    }
}

fn code(result: Option<kube::Result<ConfigMap>>) -> u16 {
    match result {
        Some(Err(kube::Error::Api(status))) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_swallowed_cut_answered_and_duplicated() {
    let setup = setup().await;
    let (answer, exists) = setup.create("a", Fault::SwallowRequest).await;
    assert!(answer.is_none() && !exists);
    let (answer, exists) = setup.create("b", Fault::SwallowAnswer).await;
    assert!(answer.is_none() && exists);
    let (answer, exists) = setup.create("c", Fault::CutBefore).await;
    assert!(matches!(answer, Some(Err(kube::Error::HyperError(_) | kube::Error::Service(_)))));
    assert!(!exists);
    let (answer, exists) = setup.create("d", Fault::CutAfter).await;
    assert!(matches!(answer, Some(Err(kube::Error::HyperError(_) | kube::Error::Service(_)))));
    assert!(exists);
    let (answer, exists) = setup.create("e", Fault::CutBody).await;
    assert!(matches!(answer, Some(Err(_))) && exists);
    for status in [429, 500, 503, 504, 410] {
        let (answer, exists) = setup.create("f", Fault::Answer(status)).await;
        assert_eq!(code(answer), status);
        assert!(!exists);
    }
    let (answer, exists) = setup.create("g", Fault::AnswerAfter(504)).await;
    assert!(code(answer) == 504 && exists);
    let (answer, exists) = setup.create("h", Fault::Duplicate).await;
    assert!(code(answer) == 409 && exists, "the second creation is a conflict");
    let (answer, exists) = setup.create("i", Fault::Delay(Duration::from_millis(1))).await;
    assert!(matches!(answer, Some(Ok(_))) && exists);
    assert!(setup.proxy.url().starts_with("https://127.0.0.1:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_after_the_fault_and_those_of_another_kind_pass() {
    let setup = setup().await;
    // Waits for a watch: the reads before it pass.
    setup.chaos.apply(&Plan::single(2, Fault::EndWatch));
    let api = maps(&setup.through);
    for _ in 0..3 {
        assert!(api.get_opt("none").await.unwrap().is_none());
    }
    assert!(setup.chaos.applied().is_empty());
    assert_eq!(setup.chaos.entries().len(), 3);
    let watch = |name: &str| {
        let uri = format!(
            "/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name%3D{name}"
        );
        Request::get(uri).body(Body::empty()).unwrap()
    };
    assert!(next(&setup.through, watch("a"), 1).await.is_empty());
    assert_eq!(setup.chaos.applied()[0].number, 4);
    maps(&setup.direct).create(&PostParams::default(), &map("a")).await.unwrap();
    let text = next(&setup.through, watch("a"), 1).await;
    assert!(text.contains("\"a\""), "{text}");
}

/// Returns the text of a watch until it has a number of lines, ends, or stays silent.
async fn next(client: &Client, request: Request<Body>, lines: usize) -> String {
    use http_body_util::BodyExt as _;
    let response = tokio::time::timeout(PATIENCE, client.send(request)).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut text = String::new();
    while text.matches('\n').count() < lines {
        match tokio::time::timeout(SHORT, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                text += &String::from_utf8_lossy(&frame.into_data().unwrap_or_default());
            }
            Ok(Some(Err(_)) | None) | Err(_) => return text,
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_stalled_and_lag() {
    let setup = setup().await;
    maps(&setup.direct).create(&PostParams::default(), &map("a")).await.unwrap();
    let watch = || {
        let uri =
            "/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name%3Da";
        Request::get(uri).body(Body::empty()).unwrap()
    };
    setup.chaos.apply(&Plan::single(1, Fault::StallWatch));
    assert_eq!(next(&setup.through, watch(), 1).await, "");
    setup.chaos.apply(&Plan::single(1, Fault::LagWatch(Duration::from_millis(500))));
    let start = tokio::time::Instant::now();
    let text = next(&setup.through, watch(), 1).await;
    assert!(text.contains("\"a\""), "{text}");
    assert!(start.elapsed() >= Duration::from_millis(500));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_the_processes_repeats_a_read_whose_answer_was_swallowed() {
    let setup = setup().await;
    let deadlines = Deadlines::new(Duration::from_millis(300), PATIENCE);
    let options = Options { deadlines, ..Options::default() };
    let client = client::connect_with(Some(setup.proxy.kubeconfig()), &options).await.unwrap();
    for fault in [Fault::SwallowAnswer, Fault::CutBefore, Fault::CutBody, Fault::Answer(503)] {
        setup.chaos.apply(&Plan::single(1, fault));
        assert!(maps(&client).get_opt("none").await.unwrap().is_none(), "{fault}");
        assert_eq!(setup.chaos.entries().len(), 2, "{fault}");
    }
}
