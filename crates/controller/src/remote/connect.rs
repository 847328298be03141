//! A connection to a server: direct or through a proxy, plain or over TLS.

use std::{io, net::SocketAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use mco_core::render::remote::address::{Reach, may_ask};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

use super::{fetch::FetchError, target::Target};

/// The longest answer of a proxy that is read.
const LONGEST_ANSWER: usize = 8 << 10;

/// Bytes both ways.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// An open connection.
pub(super) type Pipe = Box<dyn Stream>;

/// A user and password as a header says them.
pub(super) fn basic(user: &str, password: &str) -> HeaderValue {
    let mut value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    value.retain(|c| c.is_ascii_graphic() || c == ' ');
    let mut value = HeaderValue::from_str(&value).expect("letters, digits and spaces are a value");
    value.set_sensitive(true);
    value
}

/// TLS that trusts these authorities.
pub(super) fn tls(roots: RootCertStore) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks the versions of TLS that rustls does")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Connects to a server that is asked itself.
pub(super) async fn direct(
    target: &Target,
    reach: Reach,
    tls: &TlsConnector,
) -> Result<Pipe, FetchError> {
    let stream = open(target, Some(reach)).await?;
    if target.is_https { secure(tls, target, Box::new(stream)).await } else { Ok(Box::new(stream)) }
}

/// Connects to the proxy; for HTTPS, through it to the server.
pub(super) async fn through(
    proxy: &Target,
    target: &Target,
    tls: &TlsConnector,
) -> Result<Pipe, FetchError> {
    // Who runs the cluster chose the proxy, wherever it is.
    let stream = open(proxy, None).await?;
    let mut pipe: Pipe = Box::new(stream);
    if proxy.is_https {
        pipe = secure(tls, proxy, pipe).await?;
    }
    if target.is_https {
        tunnel(&mut pipe, proxy, target).await?;
        pipe = secure(tls, target, pipe).await?;
    }
    Ok(pipe)
}

/// Opens a connection to an address that may be asked; it is the very address that was looked at.
async fn open(target: &Target, reach: Option<Reach>) -> Result<TcpStream, FetchError> {
    let host = || target.with_port();
    let found = lookup_host((target.host.as_str(), target.port)).await;
    let found = found.map_err(|source| FetchError::Resolve { host: host(), source })?;
    let mut last = FetchError::Resolve { host: host(), source: io::ErrorKind::NotFound.into() };
    for address in found {
        if reach.is_some_and(|reach| !may_ask(address.ip(), reach)) {
            last = FetchError::Forbidden { address: address.ip() };
            continue;
        }
        match TcpStream::connect::<SocketAddr>(address).await {
            Ok(stream) => return Ok(stream),
            Err(source) => last = FetchError::Connect { host: host(), source },
        }
    }
    Err(last)
}

async fn secure(tls: &TlsConnector, target: &Target, pipe: Pipe) -> Result<Pipe, FetchError> {
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| FetchError::Name { host: target.host.clone() })?;
    let stream = tls.connect(name, pipe).await;
    let stream = stream.map_err(|source| FetchError::Tls { host: target.with_port(), source })?;
    Ok(Box::new(stream))
}

/// Asks the proxy to be connected through.
async fn tunnel(pipe: &mut Pipe, proxy: &Target, target: &Target) -> Result<(), FetchError> {
    let host = target.with_port();
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    if let Some(value) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let broken = |source| FetchError::Connect { host: proxy.with_port(), source };
    pipe.write_all(&request).await.map_err(broken)?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the answer is not ours to read.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() > LONGEST_ANSWER {
            return Err(FetchError::Proxy { proxy: proxy.with_port(), answer: String::new() });
        }
        answer.push(pipe.read_u8().await.map_err(broken)?);
    }
    let text = String::from_utf8_lossy(&answer);
    let first = text.lines().next().unwrap_or_default();
    let mut words = first.split(' ');
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    if is_http && words.next() == Some("200") {
        return Ok(());
    }
    Err(FetchError::Proxy { proxy: proxy.with_port(), answer: first.to_owned() })
}
