//! Measures the documents served per second, next to a lower bound.
//!
//! Sixteen clients send requests without pause over open connections. The lower bound is the same
//! client and the same bytes with a server that does not parse requests: it responds to each with
//! the same prepared bytes.

use std::{hint::black_box, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use mco_api::{ControllerConfig, MachineConfig};
use mco_cluster::Shutdown;
use mco_server::{Certificate, FixedSource, Server, Settings};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Concurrent connections, as in the measurements of the reference.
const MACHINES: usize = 16;
/// Bytes of a usual worker's document.
const SIZE: usize = 445_000;
const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1";

struct Pair {
    chain: String,
    key: String,
    roots: RootCertStore,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a pair");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    Pair { chain: made.cert.pem(), key: made.signing_key.serialize_pem(), roots }
}

fn config() -> MachineConfig {
    let file = |index: usize| {
        let source = format!("data:,{}", "x".repeat(1000));
        json!({"path": format!("/etc/{index}"), "mode": 420, "contents": {"source": source}})
    };
    // Each file appears twice, the second time inside the contents of another one.
    let files: Vec<_> = (0..SIZE / 2713).map(file).collect();
    let ignition = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
    let object = json!({"metadata": {"name": "rendered-worker-1"}, "spec": {"config": ignition}});
    serde_json::from_value(object).expect("a config")
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn connect(address: SocketAddr, tls: Option<&TlsConnector>) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let stream: Box<dyn Stream> = match tls {
        Some(tls) => {
            let name = ServerName::try_from("localhost").expect("a name");
            Box::new(tls.connect(name, stream).await.expect("a handshake"))
        }
        None => Box::new(stream),
    };
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    sender
}

/// Fetches one document for each client.
async fn round(machines: &mut [SendRequest<Empty<Bytes>>]) -> usize {
    let mut asks = Vec::new();
    for machine in machines {
        machine.ready().await.expect("an open connection");
        let request = Request::get("/config/worker").header("host", "localhost");
        let request = request.header("accept", ACCEPT).body(Empty::new()).expect("a request");
        let reply = machine.send_request(request);
        asks.push(tokio::spawn(async move {
            let mut body = reply.await.expect("a reply").into_body();
            let mut length = 0;
            while let Some(frame) = body.frame().await {
                length += frame.expect("a frame").data_ref().map_or(0, Bytes::len);
            }
            length
        }));
    }
    let mut length = 0;
    for ask in asks {
        length += ask.await.expect("a document");
    }
    length
}

/// Responds to every request with the same bytes.
async fn fixed(listener: TcpListener, tls: Option<TlsAcceptor>, body: Bytes) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer: Arc<[u8]> = [head.as_bytes(), &body].concat().into();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, answer) = (tls.clone(), answer.clone());
        tokio::spawn(async move {
            let mut stream: Box<dyn Stream> = match tls {
                Some(tls) => Box::new(tls.accept(stream).await.expect("a handshake")),
                None => Box::new(stream),
            };
            let mut request = [0; 4096];
            while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        });
    }
}

fn limit_tls(pair: &Pair) -> TlsAcceptor {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    let chain = CertificateDer::from_pem_slice(pair.chain.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![chain], key).expect("a pair");
    TlsAcceptor::from(Arc::new(config))
}

fn serve(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let pair = pair();
    let client = ClientConfig::builder_with_provider(ring::default_provider().into());
    let client = client.with_safe_default_protocol_versions().expect("versions");
    let client = client.with_root_certificates(pair.roots.clone()).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));

    let mut settings =
        Settings::new(Certificate::Inline { chain: pair.chain.clone(), key: pair.key.clone() });
    settings.secure = ([127, 0, 0, 1], 0).into();
    settings.plain = Some(settings.secure);
    settings.limits.connection = Duration::from_hours(1);
    settings.limits.headers = Duration::from_hours(1);
    let source = FixedSource::default().joining("worker", config(), ControllerConfig::default());
    let server = runtime.block_on(Server::open(settings, source)).expect("a server");
    let secure = server.secure_address().expect("an address");
    let plain = server.plain_address().expect("an address").expect("a plain address");
    let shutdown = Shutdown::new();
    runtime.spawn(async move { server.serve(&shutdown).await });

    let length = runtime.block_on(async { round(&mut [connect(plain, None).await]).await });
    let body = Bytes::from(vec![b'x'; length]);
    let mut limits = Vec::new();
    for tls in [Some(limit_tls(&pair)), None] {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("an address");
        limits.push(listener.local_addr().expect("an address"));
        runtime.spawn(fixed(listener, tls, body.clone()));
    }
    let mut group = criterion.benchmark_group(format!("serve {length} bytes"));
    group.throughput(Throughput::Elements(MACHINES as u64));
    group.sample_size(20);
    let rows = [
        ("tls", secure, Some(&connector)),
        ("tls limit", limits.first().copied().expect("two"), Some(&connector)),
        ("plain", plain, None),
        ("plain limit", limits.last().copied().expect("two"), None),
    ];
    for (name, address, tls) in rows {
        let mut machines = runtime.block_on(async {
            let mut machines = Vec::new();
            for _ in 0..MACHINES {
                machines.push(connect(address, tls).await);
            }
            machines
        });
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| black_box(runtime.block_on(round(&mut machines))));
        });
    }
    group.finish();
}

criterion_group!(benches, serve);
criterion_main!(benches);
