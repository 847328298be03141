//! A probe of the API server on this machine.

use std::{collections::BTreeSet, io, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Name of this machine.
const LOCALHOST: &str = "localhost";

/// Port of an API server whose URL has none.
const PORT: u16 = 443;

/// Time limit of a probe.
const LIMIT: Duration = Duration::from_secs(3);

/// A failed probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The URL is not one of an API server.
    #[error("{0:?} is no URL of an API server, such as https://api-int.example.com:6443/readyz")]
    Url(String),
    /// The name of the load balancer has no address.
    #[error("failed to resolve {host}")]
    Resolve {
        /// The name.
        host: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The API server cannot be reached.
    #[error("failed to connect to port {port} of this machine")]
    Connect {
        /// The port.
        port: u16,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The connection ended amid the request.
    #[error("the connection failed")]
    Transfer(#[from] hyper::Error),
    /// The API server is not healthy.
    #[error("the answer was {0}")]
    Status(StatusCode),
    /// The API server did not answer in time.
    #[error("no answer within {} s", LIMIT.as_secs())]
    TimedOut,
}

/// A probe of the API server on this machine, at the port and path of the load balancer's URL.
#[derive(Clone)]
pub struct LocalProbe {
    host: String,
    port: u16,
    path: String,
    tls: TlsConnector,
}

impl std::fmt::Debug for LocalProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalProbe({}:{}{})", self.host, self.port, self.path)
    }
}

impl LocalProbe {
    /// Returns the probe for the URL of an API server behind a load balancer.
    pub fn new(url: &str) -> Result<Self, ProbeError> {
        let wrong = || ProbeError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or_else(wrong)?;
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .dangerous()
            // Compat: nothing secret is sent, and certificates are not made for the name localhost.
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            path: path.to_owned(),
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Resolves the addresses of the load balancer.
    pub async fn addresses(&self) -> Result<BTreeSet<IpAddr>, ProbeError> {
        let failed = |source| ProbeError::Resolve { host: self.host.clone(), source };
        let found = lookup_host((self.host.as_str(), self.port)).await.map_err(failed)?;
        let found: BTreeSet<IpAddr> = found.map(|address| address.ip()).collect();
        if found.is_empty() {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(found)
    }

    /// Asks the API server on this machine for its health.
    pub async fn check(&self) -> Result<(), ProbeError> {
        timeout(LIMIT, self.request()).await.map_err(|_| ProbeError::TimedOut)?
    }

    async fn request(&self) -> Result<(), ProbeError> {
        let failed = |source| ProbeError::Connect { port: self.port, source };
        let stream = TcpStream::connect((LOCALHOST, self.port)).await.map_err(failed)?;
        let name = ServerName::try_from(LOCALHOST).expect("it is a valid name");
        let stream = self.tls.connect(name, stream).await.map_err(failed)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        // Ends with the sender.
        tokio::spawn(connection);
        let request = Request::get(self.path.as_str()).header(header::HOST, LOCALHOST);
        let wrong = |_| ProbeError::Url(self.path.clone());
        let request = request.body(Empty::<Bytes>::new()).map_err(wrong)?;
        match sender.send_request(request).await?.status() {
            StatusCode::OK => Ok(()),
            status => Err(ProbeError::Status(status)),
        }
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_that_of_an_api_server() {
        let rows = [
            ("https://api-int.test:6443/readyz", Some("LocalProbe(api-int.test:6443/readyz)")),
            ("https://[2001:db8::1]:6443/readyz?a", Some("LocalProbe(2001:db8::1:6443/readyz?a)")),
            ("https://api-int.test", Some("LocalProbe(api-int.test:443/)")),
            ("http://api-int.test/readyz", None),
            ("api-int.test", None),
            ("", None),
        ];
        for (url, expected) in rows {
            let shown = LocalProbe::new(url).ok().map(|probe| format!("{probe:?}"));
            assert_eq!(shown.as_deref(), expected, "{url}");
        }
    }
}
