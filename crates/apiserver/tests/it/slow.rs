//! Slow and unknown clients: they cost the server little, and keep no other client waiting.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, config::Kubeconfig};
use mco_apiserver::{ApiServer, Settings};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tower::ServiceExt as _;

use crate::{
    fixture::soon,
    listening::{Running, client_by},
};

/// Number of connections that a client holds.
const HELD: usize = 4096;

/// A body of which nothing arrives.
type NoBody = StreamBody<futures::stream::Pending<Result<http_body::Frame<Bytes>, std::io::Error>>>;

async fn send(api: &ApiServer, uri: &str) -> (u16, Value) {
    let body: NoBody = StreamBody::new(futures::stream::pending());
    let request = Request::post(uri).header("content-type", "application/json").body(body);
    let response = api.clone().oneshot(request.unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_ends_its_request() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let begin = tokio::time::Instant::now();
    let (code, _) = send(&api, "/apis/nothing.io/v1/things").await;
    assert_eq!((code, begin.elapsed()), (404, Duration::ZERO), "the body is not waited for");
    let (code, status) = send(&api, "/api/v1/namespaces").await;
    assert_eq!((code, &status["reason"]), (408, &"Timeout".into()));
    assert!(begin.elapsed() < Duration::from_mins(1));
}

/// Opens a connection with TLS and without a client certificate.
async fn connect(dir: &Path, address: SocketAddr) -> tokio_rustls::client::TlsStream<TcpStream> {
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
    let pem = STANDARD.decode(cluster.certificate_authority_data.unwrap()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    connector.connect(ServerName::from(address.ip()), stream).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_client_is_refused_before_its_body_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let mut stream = connect(dir.path(), running.address).await;
    let head = "POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    soon("the answer", stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    drop(stream);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_connections_keep_no_client_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let mut held = Vec::new();
    for _ in 0..HELD {
        held.push(TcpStream::connect(running.address).await.unwrap());
    }
    for context in ["mco", "mco-token"] {
        let api: Api<Namespace> = Api::all(client_by(dir.path(), context).await);
        let found = tokio::time::timeout(Duration::from_secs(10), api.get("default")).await;
        found.expect("the client does not wait").unwrap();
    }
    drop(held);
    running.stop().await;
}
