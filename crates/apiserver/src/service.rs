//! The API server as a `tower` service, which `kube::Client` calls in process.

use std::{
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};

use crate::{
    clock::{Clock, Entropy, SystemClock, system_entropy},
    kubelets::Kubelets,
    outage::Outage,
    review::{Claims, Identity},
    server::{Body, Server, authorize},
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
    /// The kubelets, for the logs of pods.
    pub kubelets: Option<Arc<dyn Kubelets>>,
    /// Work of Kubernetes' controllers.
    pub controllers: Controllers,
    /// The rights of callers.
    pub authorization: Authorization,
    /// Called with the reason of each request that the roles deny.
    pub on_denied: Option<OnDenied>,
}

/// A function that takes the reason of a denied request: user, verb and resource.
pub type OnDenied = Arc<dyn Fn(&str) + Send + Sync>;

/// Work that other programs do in Kubernetes: emptying namespaces, collecting dependents, counting
/// disruption budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controllers {
    /// The server does it itself.
    #[default]
    Run,
    /// Nothing does it, as in a kube-apiserver alone.
    Off,
}

/// The rights of authenticated callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Every caller may do everything.
    #[default]
    Everything,
    /// Callers may do what the stored roles and bindings allow. Members of the group
    /// `system:masters` may do everything.
    Roles,
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
            kubelets: None,
            controllers: Controllers::default(),
            authorization: Authorization::default(),
            on_denied: None,
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
    /// The caller of requests in this process.
    caller: Identity,
    claims: Claims,
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
        Ok(Self { server: Arc::new(server), caller: owner(), claims: Claims::default() })
    }

    fn as_caller(&self, caller: Identity, claims: Claims) -> Self {
        Self { server: Arc::clone(&self.server), caller, claims }
    }

    /// Returns the same server for requests of a service account, which is subject to its roles.
    #[must_use]
    pub fn for_account(&self, namespace: &str, name: &str) -> Self {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.as_caller(authorize::account(user, namespace), Claims::default())
    }

    /// Returns the same server for requests of a service account from a pod on `node`, which
    /// admission policies see.
    #[must_use]
    pub fn for_account_on(&self, namespace: &str, name: &str, node: &str) -> Self {
        let claims = Claims { extra: authorize::of_node(node), ..Claims::default() };
        Self { claims, ..self.for_account(namespace, name) }
    }

    /// Returns the same server for requests of a user with these groups.
    #[must_use]
    pub fn for_user(&self, user: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.as_caller(Identity { user: user.to_owned(), groups }, Claims::default())
    }

    /// Ends all watches. Other requests are still served.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Begins or ends an outage, in which watches and connections end, new connections are closed, and
    /// requests in this process fail as if the server were not there. The state is kept.
    pub fn set_outage(&self, lasts: bool) {
        self.server.outage.set(lasts);
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
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.server);
        let own = self.caller.clone();
        let caller = request.extensions_mut().remove::<Identity>().unwrap_or(own);
        if self.claims != Claims::default() {
            request.extensions_mut().insert(self.claims.clone());
        }
        Box::pin(async move {
            if server.outage.lasts() {
                return Err(Outage::error());
            }
            Ok(server.handle(request, caller).await)
        })
    }
}
