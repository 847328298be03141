//! Requests to the config server, as new machines make them: their functions are part of the order.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring, pki_types::ServerName,
};

/// Versions of the Ignition spec that clients ask for.
const VERSIONS: [&str; 2] = ["3.5.0", "3.2.0"];

/// Time limit of a request. The traced server is slow.
const LIMIT: Duration = Duration::from_mins(1);

/// A client that trusts the certificate which it made for the server.
pub(super) struct Client {
    address: SocketAddr,
    certificate: String,
    key: String,
    config: Arc<ClientConfig>,
}

impl Client {
    /// Finds a free port and writes the server's certificate and key to `folder`.
    pub(super) fn prepare(folder: &Path) -> anyhow::Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let made = rcgen::generate_simple_self_signed(vec![address.ip().to_string()])?;
        let (certificate, key) = (folder.join("server.crt"), folder.join("server.key"));
        fs::write(&certificate, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
        Ok(Self { address, certificate, key, config: Arc::new(config) })
    }

    /// Returns the arguments with which the server listens for this client.
    pub(super) fn server_settings(&self) -> Vec<String> {
        let port = self.address.port().to_string();
        let pairs = [
            ("--cert", self.certificate.as_str()),
            ("--key", &self.key),
            ("--secure-port", &port),
            ("--insecure-port", "0"),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
    }

    /// Requests the config of a pool in several versions, plain and compressed, and one that does not
    /// exist.
    pub(super) fn request_all(&self) -> anyhow::Result<()> {
        for version in VERSIONS {
            for encoding in ["identity", "gzip"] {
                let accept = format!("application/vnd.coreos.ignition+json;version={version}");
                let headers = format!("accept: {accept}\r\naccept-encoding: {encoding}\r\n");
                let answer = self.request("/config/worker", &headers)?;
                ensure!(answer.starts_with(b"HTTP/1.1 200"), "the pool is not served yet");
            }
        }
        self.request("/config/none", "").map(drop)
    }

    fn request(&self, path: &str, headers: &str) -> anyhow::Result<Vec<u8>> {
        let name = ServerName::from(self.address.ip());
        let connection = ClientConnection::new(self.config.clone(), name)?;
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut stream = StreamOwned::new(connection, stream);
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).context("the response is not complete")?;
        Ok(answer)
    }
}
