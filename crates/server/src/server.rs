//! The server as a whole: opened, then run until told to stop.

use std::{io, net::SocketAddr, sync::Arc};

use mco_cluster::Shutdown;

use crate::{
    listener::Listener,
    service::Service,
    settings::Settings,
    source::Source,
    tls::{self, CertificateError, Identity},
};

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate cannot be used.
    #[error("failed to load serving cert")]
    Certificate(#[from] CertificateError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// A server whose addresses are open.
pub struct Server<S> {
    service: Arc<Service<S>>,
    identity: Arc<Identity>,
    secure: Listener,
    plain: Option<Listener>,
}

impl<S> std::fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl<S: Source> Server<S> {
    /// Waits until `source` knows all that there is, then opens the addresses.
    pub async fn open(settings: Settings, source: S) -> Result<Self, StartError> {
        let Settings { secure, plain, certificate, policy, limits } = settings;
        let identity = Identity::open(certificate).await?;
        source.ready().await;
        let open = async |address, tls| {
            let named = |source| StartError::Listen { address, source };
            Listener::open(address, tls, limits).await.map_err(named)
        };
        let secure = open(secure, Some(tls::acceptor(&policy, identity.clone()))).await?;
        let plain = match plain {
            Some(address) => Some(open(address, None).await?),
            None => None,
        };
        Ok(Self { service: Service::new(source, limits.documents), identity, secure, plain })
    }

    /// Where HTTPS is.
    pub fn secure_address(&self) -> io::Result<SocketAddr> {
        self.secure.address()
    }

    /// Where plain HTTP is, if anywhere.
    pub fn plain_address(&self) -> io::Result<Option<SocketAddr>> {
        self.plain.as_ref().map(Listener::address).transpose()
    }

    /// Serves until told to stop.
    pub async fn serve(self, shutdown: &Shutdown) {
        let plain = async {
            if let Some(plain) = self.plain {
                plain.serve(self.service.clone(), shutdown).await;
            }
        };
        let both = async { tokio::join!(self.secure.serve(self.service.clone(), shutdown), plain) };
        tokio::select! {
            _ = both => {}
            () = self.identity.keep_up() => {}
        }
    }
}

/// Opens a server and serves until told to stop.
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
