//! A plain HTTP/1.1 client, one connection per request.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// TLS settings of a client.
pub(crate) struct Tls {
    pub(crate) roots: RootCertStore,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) protocols: &'static [&'static str],
}

impl Tls {
    pub(crate) async fn connect(self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        self.over(TcpStream::connect(address).await?).await
    }

    /// Runs the handshake over a connection.
    pub(crate) async fn over(self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&self.versions).unwrap();
        let mut config = config.with_root_certificates(self.roots).with_no_client_auth();
        config.alpn_protocols =
            self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

/// Returns the server's certificate as a new connection sees it.
pub(crate) async fn leaf(address: SocketAddr, roots: RootCertStore) -> CertificateDer<'static> {
    let stream = tls(roots).connect(address).await.unwrap();
    let (_, session) = stream.get_ref();
    session.peer_certificates().unwrap()[0].clone()
}

/// Returns a client's default TLS settings.
pub(crate) fn tls(roots: RootCertStore) -> Tls {
    Tls { roots, versions: rustls::ALL_VERSIONS.to_vec(), protocols: &[] }
}

pub(crate) fn request(method: &str, path: &str, accept: &[&str]) -> Request<Empty<Bytes>> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    for accept in accept {
        request = request.header("accept", *accept);
    }
    request.header("user-agent", "Ignition/2.20.0").body(Empty::new()).unwrap()
}

pub(crate) async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Reply {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let reply = sender.send_request(request).await.unwrap();
    let (parts, body) = reply.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    drop(sender);
    connection.await.unwrap().unwrap();
    Reply { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn plain(address: SocketAddr, request: Request<Empty<Bytes>>) -> Reply {
    send(TcpStream::connect(address).await.unwrap(), request).await
}
