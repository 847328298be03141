//! Fetches contents over HTTP, within limits of time, size and redirects.

use std::{io, net::IpAddr, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HOST, LOCATION,
        PROXY_AUTHORIZATION, USER_AGENT,
    },
};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use mco_api::{ControllerConfig, annotation, controller_config::ProxyStatus};
use mco_core::render::remote::{MAX_CONTENTS, Source, address::AddressPolicy, proxy::proxy_for};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{sync::OnceCell, task::JoinSet};
use tokio_rustls::TlsConnector;
use tracing::warn;

use super::{connect, target::Target};

/// Time limit of a fetch, from the first name lookup to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;

/// CAs of the machine, read once.
static SYSTEM_CAS: OnceCell<Vec<CertificateDer<'static>>> = OnceCell::const_new();

/// A failed fetch.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is invalid or not HTTP.
    #[error("the URL is not a valid HTTP URL")]
    Address,
    /// A header is invalid.
    #[error("invalid header {name:?}")]
    Header {
        /// Name of the header.
        name: String,
    },
    /// The host name cannot be resolved.
    #[error("failed to resolve {host}")]
    Resolve {
        /// The host.
        host: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The address is not allowed.
    #[error(
        "{address} is not public: it may belong to the cluster, the controller's machine or its cloud. To allow private networks, set annotation {key}: private on MachineConfiguration cluster; loopback needs local, and link-local addresses and metadata services are never allowed",
        key = annotation::REMOTE_CONTENT
    )]
    Forbidden {
        /// The address.
        address: IpAddr,
    },
    /// The connection failed.
    #[error("failed to connect to {host}")]
    Connect {
        /// The host.
        host: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The proxy refused to connect.
    #[error("proxy {proxy} refused to connect: {response}")]
    Proxy {
        /// The proxy.
        proxy: String,
        /// Status line of the proxy.
        response: String,
    },
    /// The host name is not valid for TLS.
    #[error("{host} is not a valid server name for TLS")]
    Name {
        /// The host.
        host: String,
    },
    /// The TLS handshake failed.
    #[error("TLS handshake with {host} failed")]
    Tls {
        /// The host.
        host: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The connection broke, or the response is not HTTP.
    #[error("the connection broke or the response is not HTTP")]
    Http(#[source] hyper::Error),
    /// The body could not be read.
    #[error("failed to read the response body")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response has another status than 200.
    #[error("the server responded {0}")]
    Status(StatusCode),
    /// A redirect has no valid location.
    #[error("the server redirected to an invalid location")]
    Location,
    /// A redirect leads from HTTPS to plain HTTP.
    #[error("the server redirected from HTTPS to plain HTTP")]
    Downgrade,
    /// There were too many redirects.
    #[error("more than {MAX_REDIRECTS} redirects")]
    Redirects,
    /// The server encoded the contents although no encoding was accepted.
    #[error(
        "the server sent the contents in encoding {0:?}; if the file is compressed, set contents.compression"
    )]
    Encoding(String),
    /// The contents are too large.
    #[error(
        "the contents exceed {MAX_CONTENTS} bytes; make the file smaller, or put it into the OS image"
    )]
    TooLarge,
    /// The time limit was exceeded.
    #[error("timed out after {} seconds", FETCH_TIMEOUT.as_secs())]
    Timeout,
}

/// A client that fetches remote contents with the settings of a cluster.
pub struct Fetcher {
    proxies: Option<ProxyStatus>,
    reach: AddressPolicy,
    tls: TlsConnector,
}

impl Fetcher {
    /// Builds a client with the cluster's proxy, and the CAs of the machine and of the cluster.
    pub async fn for_cluster(controller_config: &ControllerConfig, reach: AddressPolicy) -> Self {
        let mut roots = RootCertStore::empty();
        let system = SYSTEM_CAS.get_or_init(system_authorities).await;
        roots.add_parsable_certificates(system.iter().cloned());
        let bundle = controller_config.spec.additional_trust_bundle.as_ref();
        let bundle = bundle.map(mco_api::Bytes::as_slice).unwrap_or_default();
        let mut unusable = 0_usize;
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let added = certificate.is_ok_and(|certificate| roots.add(certificate).is_ok());
            unusable += usize::from(!added);
        }
        if unusable > 0 {
            warn!(
                unusable,
                "Skipped invalid certificates in the ControllerConfig's additionalTrustBundle"
            );
        }
        Self { proxies: controller_config.spec.proxy.clone(), reach, tls: connect::tls(roots) }
    }

    /// Fetches the contents of `source`.
    pub async fn fetch(&self, source: &Source) -> Result<Vec<u8>, FetchError> {
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.follow_redirects(source)).await;
        fetched.map_err(|_| FetchError::Timeout)?
    }

    async fn follow_redirects(&self, source: &Source) -> Result<Vec<u8>, FetchError> {
        let first = Target::parse(&source.url).ok_or(FetchError::Address)?;
        let given = headers(source)?;
        let mut target = first.clone();
        for _ in 0..=MAX_REDIRECTS {
            // Headers that are meant for one server are not sent to another.
            let none = HeaderMap::new();
            let sent = if target.is_at(&first) { &given } else { &none };
            // Dropped at the end of this block, which closes the connection.
            let mut connection = JoinSet::new();
            let response = self.send(&target, sent, &mut connection).await?;
            if !is_redirect(response.status()) {
                return read_body(response, source).await;
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| target.follow(location));
            let next = next.ok_or(FetchError::Location)?;
            if target.is_https && !next.is_https {
                return Err(FetchError::Downgrade);
            }
            target = next;
        }
        Err(FetchError::Redirects)
    }

    async fn send(
        &self,
        target: &Target,
        headers: &HeaderMap,
        connection: &mut JoinSet<()>,
    ) -> Result<Response<Incoming>, FetchError> {
        let proxy = proxy_for(self.proxies.as_ref(), target.is_https, &target.host, target.port);
        let proxy = match proxy {
            Some(url) => Some(Target::parse(url).ok_or_else(|| FetchError::Proxy {
                proxy: mco_core::render::remote::shown(url),
                response: "the URL is not a valid HTTP URL".to_owned(),
            })?),
            None => None,
        };
        let stream = match &proxy {
            Some(proxy) => {
                check_literal_address(target, self.reach)?;
                connect::through(proxy, target, &self.tls).await?
            }
            None => connect::direct(target, self.reach, &self.tls).await?,
        };
        let request = request(target, proxy.as_ref(), headers)?;
        let opened = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, running) = opened.map_err(FetchError::Http)?;
        // Errors of the connection surface in the response.
        connection.spawn(async move { drop(running.await) });
        sender.send_request(request).await.map_err(FetchError::Http)
    }
}

/// Rejects a host that is a forbidden IP address. The proxy resolves host names itself, so only
/// literal addresses can be checked.
fn check_literal_address(target: &Target, reach: AddressPolicy) -> Result<(), FetchError> {
    match target.host.parse::<IpAddr>() {
        Ok(address) if !mco_core::render::remote::address::is_allowed(address, reach) => {
            Err(FetchError::Forbidden { address })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn request(
    target: &Target,
    proxy: Option<&Target>,
    given: &HeaderMap,
) -> Result<Request<Empty<Bytes>>, FetchError> {
    // A proxy for plain HTTP needs the absolute URL.
    let through = proxy.filter(|_| !target.is_https);
    let uri = match through {
        Some(_) => format!("http://{}{}", target.authority(), target.path),
        None => target.path.clone(),
    };
    let mut request = Request::builder()
        .method(Method::GET)
        .uri(uri)
        .header(HOST, target.authority())
        .header(ACCEPT, "*/*")
        .header(ACCEPT_ENCODING, "identity")
        .header(USER_AGENT, concat!("mco/", env!("CARGO_PKG_VERSION")))
        .body(Empty::new())
        .map_err(|_| FetchError::Address)?;
    if let Some(value) = &target.authorization {
        request.headers_mut().insert(AUTHORIZATION, value.clone());
    }
    if let Some(value) = through.and_then(|proxy| proxy.authorization.as_ref()) {
        request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
    }
    for (name, value) in given {
        request.headers_mut().insert(name, value.clone());
    }
    Ok(request)
}

fn headers(source: &Source) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &source.headers {
        let failed = || FetchError::Header { name: name.clone() };
        let name = HeaderName::try_from(name).map_err(|_| failed())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| failed())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

async fn read_body(response: Response<Incoming>, source: &Source) -> Result<Vec<u8>, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let encoding = response.headers().get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    if let Some(encoding) = encoding.filter(|encoding| *encoding != "identity") {
        // Compressed files are often served with a Content-Encoding; then the config declares the
        // compression too.
        if !source.is_compressed() {
            return Err(FetchError::Encoding(encoding.to_owned()));
        }
    }
    let body = Limited::new(response.into_body(), MAX_CONTENTS).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(_) => FetchError::TooLarge,
        Err(error) => FetchError::Body(error),
    })?;
    Ok(body.to_bytes().to_vec())
}

async fn system_authorities() -> Vec<CertificateDer<'static>> {
    let loaded = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let Ok(loaded) = loaded else { return Vec::new() };
    for error in &loaded.errors {
        warn!(%error, "Failed to read some CAs of the machine");
    }
    loaded.certs
}
