//! The two API servers on which every claim about the controllers is checked.

use std::{
    fmt::Debug,
    future,
    io::Write as _,
    path::Path,
    sync::{Arc, LazyLock, Mutex, Once},
};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace, Node, Pod, Secret, ServiceAccount},
        events::v1::Event,
        policy::v1::PodDisruptionBudget,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams},
    client::Body,
    runtime::wait::{Condition as _, conditions::is_crd_established},
};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfiguration,
    MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet, label,
};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{apply, client};
use mco_testkit::{
    api::{self, ApiServer as _, Programs},
    watching,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{Mutex as Turn, OnceCell, OwnedMutexGuard};
use tower::{BoxError, Service, ServiceExt as _};

/// Whose turn it is on the real server: pools and nodes have no namespaces to keep tests apart.
static TURN: LazyLock<Arc<Turn<()>>> = LazyLock::new(Arc::default);

/// Whether the real server has our kinds.
static FURNISHED: OnceCell<()> = OnceCell::const_new();

static SKIPPED: Once = Once::new();

/// Makes every claim a test on each of the two servers.
macro_rules! on_both {
    ($($claim:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim($crate::server::Server::embedded().await).await;
            })+
        }
        mod real {
            $(#[tokio::test]
            async fn $claim() {
                if let Some(server) = $crate::server::Server::real().await {
                    super::$claim(server).await;
                }
            })+
        }
    };
}
pub(crate) use on_both;

/// An API server with our kinds and nothing else in it.
#[derive(Clone)]
pub(crate) enum Server {
    /// Ours, in memory.
    Embedded(ApiServer),
    /// The real one, which all tests share one after the other.
    Real {
        /// Ours until all clones are gone.
        _turn: Arc<OwnedMutexGuard<()>>,
    },
}

impl Server {
    pub(crate) async fn embedded() -> Self {
        let server = Self::Embedded(ApiServer::in_memory(Settings::default()).await.unwrap());
        furnish(&server.client().await).await;
        server
    }

    /// The real one, emptied; `None`, and a line that says why, where there is none.
    pub(crate) async fn real() -> Option<Self> {
        if let Err(absent) = Programs::find() {
            SKIPPED.call_once(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: the controllers on a real kube-apiserver: {absent}"
                );
            });
            return None;
        }
        let server = Self::Real { _turn: Arc::new(TURN.clone().lock_owned().await) };
        let client = server.client().await;
        FURNISHED.get_or_init(|| furnish(&client)).await;
        clear(&client).await;
        Some(server)
    }

    /// A client of its own.
    pub(crate) async fn client(&self) -> Client {
        self.watched(|_| {}).await
    }

    /// A client that tells of every request that it makes before it makes it.
    pub(crate) async fn watched(
        &self,
        tell: impl Fn(&http::Request<Body>) + Clone + Send + 'static,
    ) -> Client {
        let told = move |request| {
            tell(&request);
            request
        };
        self.altered(told).await
    }

    /// A client whose requests are changed on the way.
    pub(crate) async fn altered(
        &self,
        alter: impl Fn(http::Request<Body>) -> http::Request<Body> + Clone + Send + 'static,
    ) -> Client {
        self.gated(move |request| future::ready(alter(request))).await
    }

    /// A client whose requests go out when `gate` lets them, as it lets them.
    pub(crate) async fn gated<F>(
        &self,
        gate: impl Fn(http::Request<Body>) -> F + Clone + Send + 'static,
    ) -> Client
    where
        F: Future<Output = http::Request<Body>> + Send + 'static,
    {
        match self {
            Self::Embedded(server) => through(server.clone(), gate),
            Self::Real { .. } => {
                let programs = Programs::find().expect("they were there a moment ago");
                let api = api::shared(&programs, Path::new(env!("CARGO_TARGET_TMPDIR")));
                let api = api.as_ref().expect("it starts");
                let client = client::connect(Some(api.kubeconfig())).await.unwrap();
                through(client::service(client), gate)
            }
        }
    }

    /// A client, and what it has written so far: each time the method and the path.
    pub(crate) async fn metered(&self) -> (Client, Writes) {
        let writes = Writes::default();
        let noted = writes.clone();
        let client = self.watched(move |request| {
            if request.method() != http::Method::GET {
                let line = format!("{} {}", request.method(), request.uri().path());
                noted.0.lock().unwrap().push(line);
            }
        });
        (client.await, writes)
    }
}

/// A client of `server` that lets `gate` have every request first.
fn through<S, B, F>(
    server: S,
    gate: impl Fn(http::Request<Body>) -> F + Clone + Send + 'static,
) -> Client
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    F: Future<Output = http::Request<Body>> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let (server, gate) = (server.clone(), gate.clone());
        async move { server.oneshot(gate(request).await).await }
    });
    Client::new(service, "default")
}

/// What a client has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<Mutex<Vec<String>>>);

impl Writes {
    /// All of it, without what keeps the lease.
    pub(crate) fn all(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|line| !line.contains("/leases")).cloned().collect()
    }
}

/// Makes what no test takes away: kinds, namespaces, and the account that pods need.
async fn furnish(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in mco_api::crds() {
        apply::create(&crds, &crd).await.unwrap();
        let name = crd.name_any();
        let established = |crd: Option<&_>| is_crd_established().matches_object(crd);
        watching::until(crds.clone(), &name, "its kind", established).await.unwrap();
    }
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": label::NAMESPACE}})).unwrap();
    apply::create(&Api::all(client.clone()), &namespace).await.unwrap();
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    apply::create(&Api::namespaced(client.clone(), "default"), &account).await.unwrap();
}

/// Removes what the last test left.
async fn clear(client: &Client) {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let ours: Vec<String> = mco_api::crds().iter().map(kube::ResourceExt::name_any).collect();
    for kind in kinds.list(&ListParams::default()).await.unwrap() {
        let name = kind.name_any();
        if !ours.contains(&name) {
            kinds.delete(&name, &DeleteParams::default()).await.unwrap();
            let is_gone = |kind: Option<&_>| kind.is_none();
            watching::until(kinds.clone(), &name, "its end", is_gone).await.unwrap();
        }
    }
    let everywhere = client.clone();
    remove(Api::<MachineConfigPool>::all(everywhere.clone())).await;
    remove(Api::<MachineConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineConfigNode>::all(everywhere.clone())).await;
    remove(Api::<ControllerConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineOSConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineOSBuild>::all(everywhere.clone())).await;
    remove(Api::<MachineConfiguration>::all(everywhere.clone())).await;
    remove(Api::<OSImageStream>::all(everywhere.clone())).await;
    remove(Api::<PinnedImageSet>::all(everywhere.clone())).await;
    remove(Api::<Secret>::namespaced(client.clone(), label::NAMESPACE)).await;
    remove(Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE)).await;
    remove(Api::<Node>::all(everywhere)).await;
    for namespace in ["default", label::NAMESPACE] {
        remove(Api::<Pod>::namespaced(client.clone(), namespace)).await;
        remove(Api::<PodDisruptionBudget>::namespaced(client.clone(), namespace)).await;
        remove(Api::<Event>::namespaced(client.clone(), namespace)).await;
        remove(Api::<Lease>::namespaced(client.clone(), namespace)).await;
    }
}

async fn remove<K>(api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let now = DeleteParams::default().grace_period(0);
    api.delete_collection(&now, &ListParams::default()).await.unwrap();
    let left = api.list(&ListParams::default()).await.unwrap();
    let left: Vec<String> = left.iter().map(kube::ResourceExt::name_any).collect();
    assert!(left.is_empty(), "{left:?} were left behind");
}
