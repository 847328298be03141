//! The API server as a `tower` service, which `kube::Client` calls in process.

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

/// Default number of changes per collection in the watch history.
const WATCH_HISTORY: usize = 10_000;

/// An error that prevents the API server from starting.
#[derive(Debug, thiserror::Error)]
#[error("failed to open the API server's database")]
pub struct StartError(#[source] StartCause);

#[derive(Debug, thiserror::Error)]
enum StartCause {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Settings of the API server.
#[derive(Clone)]
pub struct Settings {
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The source of UIDs and generated names.
    pub entropy: Entropy,
    /// Number of changes per collection that a watch can resume from.
    pub watch_history: usize,
    /// Treatment of deleted pods that are bound to a node.
    pub pods: PodDeletion,
}

/// Treatment of deleted pods that are bound to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodDeletion {
    /// The pod is removed immediately: no kubelet runs that would confirm the end of its processes.
    #[default]
    Immediate,
    /// The pod stays with a `deletionTimestamp` until its kubelet deletes it with a grace period of
    /// zero.
    ByKubelet,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            entropy: system_entropy(),
            watch_history: WATCH_HISTORY,
            pods: PodDeletion::default(),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("watch_history", &self.watch_history)
            .finish_non_exhaustive()
    }
}

/// The embedded Kubernetes API server. Clones share one state.
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
    /// Starts an API server with its state in memory.
    pub async fn in_memory(settings: Settings) -> Result<Self, StartError> {
        Self::start(None, settings).await
    }

    /// Starts an API server with its state in the file `path`, which is created if it is missing.
    pub async fn open(path: &Path, settings: Settings) -> Result<Self, StartError> {
        Self::start(Some(path), settings).await
    }

    async fn start(path: Option<&Path>, settings: Settings) -> Result<Self, StartError> {
        let server = Server::open(path, settings).map_err(|error| StartError(error.into()))?;
        server.prepare().await.map_err(|error| StartError(error.into()))?;
        Ok(Self { server: Arc::new(server) })
    }

    /// Ends all watches. Other requests are still served.
    pub fn stop(&self) {
        self.server.stop();
    }
}

/// Returns the identity of in-process callers: the administrator.
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
        let caller = request.extensions_mut().remove::<Identity>().unwrap_or_else(owner);
        Box::pin(async move { Ok(server.handle(request, caller).await) })
    }
}
