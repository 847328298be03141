//! Asks for contents over HTTP, within limits.

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
use mco_core::render::remote::{MAX_CONTENTS, Source, address::Reach, proxy::proxy_for};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{sync::OnceCell, task::JoinSet};
use tokio_rustls::TlsConnector;
use tracing::warn;

use super::{connect, target::Target};

/// How long everything together may take, from the first name to the last byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often one is sent on.
const REDIRECTS: usize = 5;

/// The authorities of the machine, read once.
static SYSTEM: OnceCell<Vec<CertificateDer<'static>>> = OnceCell::const_new();

/// Why contents were not given.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is none.
    #[error("this is not an address of HTTP")]
    Address,
    /// A header cannot be sent.
    #[error("header {name:?} cannot be sent")]
    Header {
        /// The header.
        name: String,
    },
    /// The name leads nowhere.
    #[error("cannot find {host}")]
    Resolve {
        /// The host.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// The address must not be asked.
    #[error(
        "{address} belongs to the controller's own machine or link; if that is meant, set annotation {key}: local on MachineConfiguration cluster",
        key = annotation::REMOTE_CONTENT
    )]
    Forbidden {
        /// The address.
        address: IpAddr,
    },
    /// Nobody listens.
    #[error("cannot connect to {host}")]
    Connect {
        /// The host.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// The proxy does not connect.
    #[error("proxy {proxy} does not connect: {answer}")]
    Proxy {
        /// The proxy.
        proxy: String,
        /// What it said.
        answer: String,
    },
    /// The host's name cannot be checked.
    #[error("{host} is not a name that a certificate could have")]
    Name {
        /// The host.
        host: String,
    },
    /// The server is not who it says.
    #[error("no secure connection to {host}")]
    Tls {
        /// The host.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke, or what came is no HTTP.
    #[error("the server's answer broke off or is not HTTP")]
    Http(#[source] hyper::Error),
    /// The body did not come.
    #[error("the contents did not come")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server says no.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The server sends us on, to nowhere.
    #[error("the server sends on to something that is no address")]
    Location,
    /// The server sends us on to where everybody could listen.
    #[error("the server sends on from HTTPS to plain HTTP")]
    Downgrade,
    /// The server sends us on and on.
    #[error("sent on more than {REDIRECTS} times")]
    Redirects,
    /// The server packed the contents, unasked.
    #[error(
        "the server sent the contents in encoding {0:?}; if the file is compressed, say so in contents.compression"
    )]
    Encoding(String),
    /// There is too much of it.
    #[error(
        "there are more than {MAX_CONTENTS} bytes; make the file smaller, or put it into the OS image"
    )]
    TooLarge,
    /// It took too long.
    #[error("it took longer than {} seconds", PATIENCE.as_secs())]
    Timeout,
}

/// How contents are asked for in a cluster.
pub struct Fetcher {
    proxies: Option<ProxyStatus>,
    reach: Reach,
    tls: TlsConnector,
}

impl Fetcher {
    /// With the cluster's proxy, and the authorities of the machine and of the cluster.
    pub async fn for_cluster(cluster: &ControllerConfig, reach: Reach) -> Self {
        let mut roots = RootCertStore::empty();
        let system = SYSTEM.get_or_init(system_authorities).await;
        roots.add_parsable_certificates(system.iter().cloned());
        let bundle = cluster.spec.additional_trust_bundle.as_ref();
        let bundle = bundle.map(mco_api::Bytes::as_slice).unwrap_or_default();
        let mut unusable = 0_usize;
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let added = certificate.is_ok_and(|certificate| roots.add(certificate).is_ok());
            unusable += usize::from(!added);
        }
        if unusable > 0 {
            warn!(
                unusable,
                "The ControllerConfig's additionalTrustBundle has what is no certificate"
            );
        }
        Self { proxies: cluster.spec.proxy.clone(), reach, tls: connect::tls(roots) }
    }

    /// Asks for contents.
    pub async fn fetch(&self, source: &Source) -> Result<Vec<u8>, FetchError> {
        let fetched = tokio::time::timeout(PATIENCE, self.follow(source)).await;
        fetched.map_err(|_| FetchError::Timeout)?
    }

    async fn follow(&self, source: &Source) -> Result<Vec<u8>, FetchError> {
        let first = Target::parse(&source.url).ok_or(FetchError::Address)?;
        let given = headers(source)?;
        let mut target = first.clone();
        for _ in 0..=REDIRECTS {
            // What was given for one server is not for another.
            let none = HeaderMap::new();
            let sent = if target.is_at(&first) { &given } else { &none };
            // Ends with this block, and the connection with it.
            let mut connection = JoinSet::new();
            let answer = self.ask(&target, sent, &mut connection).await?;
            if !is_redirect(answer.status()) {
                return contents(answer, source).await;
            }
            let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| target.follow(location));
            let next = next.ok_or(FetchError::Location)?;
            if target.is_https && !next.is_https {
                return Err(FetchError::Downgrade);
            }
            target = next;
        }
        Err(FetchError::Redirects)
    }

    async fn ask(
        &self,
        target: &Target,
        headers: &HeaderMap,
        connection: &mut JoinSet<()>,
    ) -> Result<Response<Incoming>, FetchError> {
        let proxy = proxy_for(self.proxies.as_ref(), target.is_https, &target.host, target.port);
        let proxy = match proxy {
            Some(url) => Some(Target::parse(url).ok_or_else(|| FetchError::Proxy {
                proxy: mco_core::render::remote::shown(url),
                answer: "this is not an address of HTTP".to_owned(),
            })?),
            None => None,
        };
        let pipe = match &proxy {
            Some(proxy) => {
                refuse_literal(target, self.reach)?;
                connect::through(proxy, target, &self.tls).await?
            }
            None => connect::direct(target, self.reach, &self.tls).await?,
        };
        let request = request(target, proxy.as_ref(), headers)?;
        let opened = hyper::client::conn::http1::handshake(TokioIo::new(pipe)).await;
        let (mut sender, running) = opened.map_err(FetchError::Http)?;
        // How it ends is said by the answer.
        connection.spawn(async move { drop(running.await) });
        sender.send_request(request).await.map_err(FetchError::Http)
    }
}

/// A proxy finds hosts by itself; what is an address already can still be refused.
fn refuse_literal(target: &Target, reach: Reach) -> Result<(), FetchError> {
    match target.host.parse::<IpAddr>() {
        Ok(address) if !mco_core::render::remote::address::may_ask(address, reach) => {
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
    // A proxy that we speak plain HTTP through must be told whom we mean.
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

async fn contents(answer: Response<Incoming>, source: &Source) -> Result<Vec<u8>, FetchError> {
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    let encoding = answer.headers().get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    if let Some(encoding) = encoding.filter(|encoding| *encoding != "identity") {
        // A compressed file is often served as an encoded one; then the config says so too.
        if !source.is_compressed() {
            return Err(FetchError::Encoding(encoding.to_owned()));
        }
    }
    let body = Limited::new(answer.into_body(), MAX_CONTENTS).collect().await;
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
        warn!(%error, "Some of the machine's authorities cannot be read");
    }
    loaded.certs
}
