//! The server as a whole: opened, then run until shutdown.

use std::{io, net::SocketAddr, sync::Arc};

use mco_cluster::Shutdown;

use crate::{
    listener::Listener,
    service::Service,
    settings::Settings,
    source::Source,
    tls::{self, CertificateError, ServingCertificate},
};

/// A failure to start the server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate is invalid.
    #[error("failed to load serving cert")]
    Certificate(#[from] CertificateError),
    /// The address is not available.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Cause of the failure.
        source: io::Error,
    },
}

/// A server with open listeners.
pub struct Server<S> {
    service: Arc<Service<S>>,
    certificate: Arc<ServingCertificate>,
    secure: Listener,
    plain: Option<Listener>,
}

impl<S> std::fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl<S: Source> Server<S> {
    /// Waits until `source` is ready, then opens the listeners.
    pub async fn open(settings: Settings, source: S) -> Result<Self, StartError> {
        let Settings { secure, plain, certificate, policy, limits, metrics, admission } = settings;
        let certificate = ServingCertificate::open(certificate).await?;
        source.ready().await;
        if let Some(admission) = &admission {
            admission.ready().await;
        }
        let open = async |address, tls| {
            let named = |source| StartError::Listen { address, source };
            Listener::open(address, tls, limits, metrics.clone()).await.map_err(named)
        };
        let secure = open(secure, Some(tls::acceptor(&policy, certificate.clone()))).await?;
        let plain = match plain {
            Some(address) => Some(open(address, None).await?),
            None => None,
        };
        let service = Service::new(source, limits.documents, metrics, admission);
        Ok(Self { service, certificate, secure, plain })
    }

    /// Returns the address of HTTPS.
    pub fn secure_address(&self) -> io::Result<SocketAddr> {
        self.secure.address()
    }

    /// Returns the address of plain HTTP, if enabled.
    pub fn plain_address(&self) -> io::Result<Option<SocketAddr>> {
        self.plain.as_ref().map(Listener::address).transpose()
    }

    /// Serves until shutdown is requested.
    pub async fn serve(self, shutdown: &Shutdown) {
        let plain = async {
            if let Some(plain) = self.plain {
                plain.serve(self.service.clone(), shutdown).await;
            }
        };
        let both = async { tokio::join!(self.secure.serve(self.service.clone(), shutdown), plain) };
        tokio::select! {
            _ = both => {}
            () = self.certificate.run_reload() => {}
        }
    }
}

/// Opens a server and serves until shutdown is requested.
pub async fn run<S: Source>(
    settings: Settings,
    source: S,
    shutdown: &Shutdown,
) -> Result<(), StartError> {
    let server = tokio::select! {
        () = shutdown.requested() => return Ok(()),
        server = Server::open(settings, source) => server?,
    };
    server.serve(shutdown).await;
    Ok(())
}
