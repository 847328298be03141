//! A connection to a server: direct or through a proxy, plain or over TLS.

use std::{io, net::SocketAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use mco_core::render::remote::address::{AddressPolicy, is_allowed};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

use super::{fetch::FetchError, target::Target};

/// Maximum size of a proxy's response.
const MAX_PROXY_RESPONSE: usize = 8 << 10;

/// A stream of bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// An open connection.
pub(super) type Connection = Box<dyn Stream>;

/// Returns the `Basic` authorization header of a user and password.
pub(super) fn basic(user: &str, password: &str) -> HeaderValue {
    let mut value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    value.retain(|c| c.is_ascii_graphic() || c == ' ');
    let mut value = HeaderValue::from_str(&value).expect("visible ASCII is a valid header value");
    value.set_sensitive(true);
    value
}

/// Builds a TLS connector that trusts these CAs.
pub(super) fn tls(roots: RootCertStore) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions of rustls")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Connects directly to a server.
pub(super) async fn direct(
    target: &Target,
    reach: AddressPolicy,
    tls: &TlsConnector,
) -> Result<Connection, FetchError> {
    let stream = open(target, Some(reach)).await?;
    if target.is_https { secure(tls, target, Box::new(stream)).await } else { Ok(Box::new(stream)) }
}

/// Connects to the proxy; for HTTPS, through the proxy to the server.
pub(super) async fn through(
    proxy: &Target,
    target: &Target,
    tls: &TlsConnector,
) -> Result<Connection, FetchError> {
    // The administrator chose the proxy, so any address is allowed.
    let stream = open(proxy, None).await?;
    let mut connection: Connection = Box::new(stream);
    if proxy.is_https {
        connection = secure(tls, proxy, connection).await?;
    }
    if target.is_https {
        tunnel(&mut connection, proxy, target).await?;
        connection = secure(tls, target, connection).await?;
    }
    Ok(connection)
}

/// Opens a connection to an allowed address. The address is resolved once, so the checked address
/// is the one that is used.
async fn open(target: &Target, reach: Option<AddressPolicy>) -> Result<TcpStream, FetchError> {
    let host = || target.with_port();
    let found = lookup_host((target.host.as_str(), target.port)).await;
    let found = found.map_err(|source| FetchError::Resolve { host: host(), source })?;
    let mut last = FetchError::Resolve { host: host(), source: io::ErrorKind::NotFound.into() };
    for address in found {
        if reach.is_some_and(|reach| !is_allowed(address.ip(), reach)) {
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

async fn secure(
    tls: &TlsConnector,
    target: &Target,
    connection: Connection,
) -> Result<Connection, FetchError> {
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| FetchError::Name { host: target.host.clone() })?;
    let stream = tls.connect(name, connection).await;
    let stream = stream.map_err(|source| FetchError::Tls { host: target.with_port(), source })?;
    Ok(Box::new(stream))
}

/// Sends a CONNECT request to the proxy.
async fn tunnel(
    connection: &mut Connection,
    proxy: &Target,
    target: &Target,
) -> Result<(), FetchError> {
    let host = target.with_port();
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    if let Some(value) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let broken = |source| FetchError::Connect { host: proxy.with_port(), source };
    connection.write_all(&request).await.map_err(broken)?;
    let mut response = Vec::new();
    // Byte by byte: data after the response belongs to the tunnel.
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() > MAX_PROXY_RESPONSE {
            return Err(FetchError::Proxy { proxy: proxy.with_port(), response: String::new() });
        }
        response.push(connection.read_u8().await.map_err(broken)?);
    }
    let text = String::from_utf8_lossy(&response);
    let first = text.lines().next().unwrap_or_default();
    let mut words = first.split(' ');
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    if is_http && words.next() == Some("200") {
        return Ok(());
    }
    Err(FetchError::Proxy { proxy: proxy.with_port(), response: first.to_owned() })
}
