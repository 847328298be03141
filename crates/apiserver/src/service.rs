//! The API as a `tower` service: what `kube::Client` takes in place of a network.

use std::{
    convert::Infallible,
    future::Future,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};

use crate::{
    clock::{Clock, Entropy, SystemClock, system_entropy},
    review::Identity,
    server::{Body, Server},
    store::{OpenError, WriteError},
};

/// How many changes of each resource a watch can look back on.
const REMEMBERED: usize = 10_000;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the API server's state")]
pub struct StartError(#[source] StartCause);

#[derive(Debug, thiserror::Error)]
enum StartCause {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// How the API runs.
#[derive(Clone)]
pub struct Settings {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Gives identities and generated names.
    pub entropy: Entropy,
    /// How many changes of each resource a watch can look back on.
    pub remembered: usize,
    /// What becomes of a deleted pod that runs on a node.
    pub pods: PodDeletion,
}

/// What becomes of a deleted pod that runs on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodDeletion {
    /// It goes at once: there is no kubelet that would confirm the end of its processes.
    #[default]
    AtOnce,
    /// It stays, marked, until its kubelet deletes it with a grace period of zero.
    ByKubelet,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            entropy: system_entropy(),
            remembered: REMEMBERED,
            pods: PodDeletion::default(),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("remembered", &self.remembered).finish_non_exhaustive()
    }
}

/// The embedded Kubernetes API; clones share one state.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) server: Arc<Server>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

impl ApiServer {
    /// An API whose state is in memory.
    pub async fn in_memory(settings: Settings) -> Result<Self, StartError> {
        Self::start(None, settings).await
    }

    /// An API whose state is in the file `path`, made where it is missing.
    pub async fn open(path: &Path, settings: Settings) -> Result<Self, StartError> {
        Self::start(Some(path), settings).await
    }

    async fn start(path: Option<&Path>, settings: Settings) -> Result<Self, StartError> {
        let server = Server::open(path, settings).map_err(|error| StartError(error.into()))?;
        server.prepare().await.map_err(|error| StartError(error.into()))?;
        Ok(Self { server: Arc::new(server) })
    }

    /// Ends all watches; other calls are still answered.
    pub fn stop(&self) {
        self.server.stop();
    }
}

/// Who calls in process: the owner of the process.
fn owner() -> Identity {
    Identity { user: "system:admin".to_owned(), groups: vec!["system:masters".to_owned()] }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.server);
        let who = request.extensions_mut().remove::<Identity>().unwrap_or_else(owner);
        Box::pin(async move { Ok(server.handle(request, who).await) })
    }
}
