//! A client of the config server, for machines that are about to join: fetches the config of a pool
//! and reports a join that failed.

mod tls;

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

pub use self::tls::{Trust, TrustError};

/// Port of the config server if its URL has none.
const PORT: u16 = 22623;
/// For the connection with its TLS handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// From the connection to the end of the answer: a config of 1.5 MB over 40 kbit/s.
const ANSWER_LIMIT: Duration = Duration::from_mins(5);
/// Larger than any config, which the API server limits to 3 MiB.
const MAX_CONFIG_SIZE: usize = 64 << 20;
/// Longest reason that is shown.
const MAX_REASON: usize = 512;

/// Newest version of Ignition that is requested.
const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.5.0";
const REASON: &str = "Mco-Reason";

/// A join token. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken(String);

impl JoinToken {
    /// Returns the token in a text, without the white space around it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the token itself.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(…)")
    }
}

/// The machine that joins, as it presents itself to the server.
#[derive(Clone, Debug, Default)]
pub struct JoiningMachine {
    /// Proof that the machine may join, if the server requires one.
    pub token: Option<JoinToken>,
    /// Id of this join, the same in every request.
    pub join_id: String,
    /// Machine id of systemd.
    pub machine_id: String,
    /// Addresses of the network cards.
    pub macs: Vec<String>,
    /// SHA-256 of the TPM's public endorsement key; empty if unknown.
    pub tpm_ek: String,
    /// Name of the node.
    pub node: String,
}

impl JoiningMachine {
    fn headers(&self) -> Result<HeaderMap, ConfigServerError> {
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &str| {
            if value.is_empty() {
                return Ok(());
            }
            let mut value = header::HeaderValue::from_str(value)
                .map_err(|_| ConfigServerError::Header { name })?;
            value.set_sensitive(name == "authorization");
            headers.insert(name, value);
            Ok(())
        };
        if let Some(token) = &self.token {
            add("authorization", &format!("Bearer {}", token.secret()))?;
        }
        add("mco-join-id", &self.join_id)?;
        add("mco-machine-id", &self.machine_id)?;
        add("mco-mac", &self.macs.join(","))?;
        add("mco-tpm-ek", &self.tpm_ek)?;
        add("mco-node-name", &self.node)?;
        Ok(headers)
    }
}

/// A failed request to the config server.
#[derive(Debug, thiserror::Error)]
pub enum ConfigServerError {
    /// The URL is not one of a config server.
    #[error("{url:?} is no URL of a config server; it must be https://HOST[:PORT]")]
    Url {
        /// The URL.
        url: String,
    },
    /// A value cannot be sent as a header.
    #[error("the value of {name} contains characters that a header cannot have")]
    Header {
        /// Name of the header.
        name: &'static str,
    },
    /// The server's name cannot be part of a certificate.
    #[error("{host:?} is no name of a server")]
    Name {
        /// The name.
        host: String,
        /// The fault.
        source: InvalidDnsNameError,
    },
    /// The server cannot be reached.
    #[error("failed to connect to {server}")]
    Connect {
        /// Address of the server.
        server: String,
        /// The error of the network.
        source: std::io::Error,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {server} is not trusted")]
    Untrusted {
        /// Address of the server.
        server: String,
        /// The error of TLS.
        source: std::io::Error,
    },
    /// The connection ended amid a request.
    #[error("the connection to {server} failed")]
    Transfer {
        /// Address of the server.
        server: String,
        /// The error of the connection.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server did not answer in time.
    #[error("{server} did not answer within {} s", limit.as_secs())]
    TimedOut {
        /// Address of the server.
        server: String,
        /// The time limit.
        limit: Duration,
    },
    /// The answer is too large.
    #[error("the answer of {server} is larger than {} MiB", MAX_CONFIG_SIZE >> 20)]
    TooLarge {
        /// Address of the server.
        server: String,
    },
    /// The server refused the request, and will refuse it again.
    #[error("the config server refused the request ({status}){}", because(reason))]
    Refused {
        /// Status of the answer.
        status: StatusCode,
        /// Reason given by the server; may be empty.
        reason: String,
    },
    /// The server cannot answer now.
    #[error("the config server is not ready ({status}){}", because(reason))]
    Unavailable {
        /// Status of the answer.
        status: StatusCode,
        /// Reason given by the server; may be empty.
        reason: String,
    },
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl ConfigServerError {
    /// Returns true if the same request fails again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Url { .. }
            | Self::Header { .. }
            | Self::Name { .. }
            | Self::Untrusted { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. } => true,
            Self::Connect { .. }
            | Self::Transfer { .. }
            | Self::TimedOut { .. }
            | Self::Unavailable { .. } => false,
        }
    }
}

/// A config server.
#[derive(Clone)]
pub struct ConfigServer {
    host: String,
    port: u16,
    tls: TlsConnector,
}

impl fmt::Debug for ConfigServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigServer({})", self.address())
    }
}

impl ConfigServer {
    /// Returns the server at a URL. Plain HTTP is refused, because configs contain secrets.
    pub fn new(url: &str, trust: &Trust) -> Result<Self, ConfigServerError> {
        let wrong = || ConfigServerError::Url { url: url.to_owned() };
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let is_plain = uri.path().trim_matches('/').is_empty() && uri.query().is_none();
        if uri.scheme_str() != Some("https") || !is_plain {
            return Err(wrong());
        }
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(PORT);
        Ok(Self { host, port, tls: TlsConnector::from(trust.client_config()) })
    }

    /// Returns host and port.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Fetches the config of a pool.
    pub async fn fetch(
        &self,
        pool: &str,
        machine: &JoiningMachine,
    ) -> Result<Vec<u8>, ConfigServerError> {
        let mut headers = machine.headers()?;
        headers.insert(header::ACCEPT, header::HeaderValue::from_static(ACCEPT));
        self.send(Method::GET, &format!("/config/{pool}"), headers, Bytes::new()).await
    }

    /// Reports a join that failed; `report` is JSON.
    pub async fn report(
        &self,
        machine: &JoiningMachine,
        report: Vec<u8>,
    ) -> Result<(), ConfigServerError> {
        let mut headers = machine.headers()?;
        let json = header::HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        self.send(Method::POST, "/report", headers, Bytes::from(report)).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Vec<u8>, ConfigServerError> {
        let late = |limit| ConfigServerError::TimedOut { server: self.address(), limit };
        let stream = timeout(CONNECT_LIMIT, self.connect());
        let stream = stream.await.map_err(|_| late(CONNECT_LIMIT))??;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|_| ConfigServerError::Url { url: path.to_owned() })?;
        *request.headers_mut() = headers;
        let host = header::HeaderValue::from_str(&self.address())
            .map_err(|_| ConfigServerError::Header { name: "host" })?;
        request.headers_mut().insert(header::HOST, host);
        let agent = concat!("mco/", env!("CARGO_PKG_VERSION"));
        let agent = header::HeaderValue::from_static(agent);
        request.headers_mut().insert(header::USER_AGENT, agent);
        let answer = timeout(ANSWER_LIMIT, self.exchange(stream, request));
        answer.await.map_err(|_| late(ANSWER_LIMIT))?
    }

    async fn connect(
        &self,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConfigServerError> {
        let server = self.address();
        let name = ServerName::try_from(self.host.clone())
            .map_err(|source| ConfigServerError::Name { host: self.host.clone(), source })?;
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|source| ConfigServerError::Connect { server: server.clone(), source })?;
        self.tls.connect(name, stream).await.map_err(|source| {
            let is_certificate = source
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>())
                .is_some_and(|inner| matches!(inner, rustls::Error::InvalidCertificate(_)));
            if is_certificate {
                ConfigServerError::Untrusted { server, source }
            } else {
                ConfigServerError::Connect { server, source }
            }
        })
    }

    async fn exchange(
        &self,
        stream: tokio_rustls::client::TlsStream<TcpStream>,
        request: Request<Full<Bytes>>,
    ) -> Result<Vec<u8>, ConfigServerError> {
        let failed = |source: hyper::Error| ConfigServerError::Transfer {
            server: self.address(),
            source: source.into(),
        };
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(failed)?;
        // Ends with the sender.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let reason = reason(answer.headers());
        if status.is_server_error() {
            return Err(ConfigServerError::Unavailable { status, reason });
        }
        if !status.is_success() {
            return Err(ConfigServerError::Refused { status, reason });
        }
        match Limited::new(answer.into_body(), MAX_CONFIG_SIZE).collect().await {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ConfigServerError::TooLarge { server: self.address() })
            }
            Err(source) => Err(ConfigServerError::Transfer { server: self.address(), source }),
        }
    }
}

/// Returns the sentence for people in an answer.
fn reason(headers: &HeaderMap) -> String {
    let text = headers.get(REASON).map(|value| String::from_utf8_lossy(value.as_bytes()));
    text.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests;
