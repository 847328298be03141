//! The two API servers on which every test of the controllers runs.

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
    api::{DeleteParams, ListParams, Patch, PatchParams},
    client::Body,
    runtime::wait::{Condition as _, conditions::is_crd_established},
};
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, OSImageStream,
    PinnedImageSet, label,
};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{apply, client};
use mco_testkit::{
    api::{self, ApiServer as _, Programs},
    object_wait,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{Mutex as Turn, OnceCell, OwnedMutexGuard};
use tower::{BoxError, Service, ServiceExt as _};

/// Lock of the real server: pools and nodes have no namespaces that would separate tests.
static TURN: LazyLock<Arc<Turn<()>>> = LazyLock::new(Arc::default);

/// Initialized once the real server has the `CustomResourceDefinitions`.
static SHARED_OBJECTS: OnceCell<()> = OnceCell::const_new();

static SKIPPED: Once = Once::new();

/// Makes every function a test on each of the two servers.
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

/// An API server with the `CustomResourceDefinitions` and no other objects.
#[derive(Clone)]
pub(crate) enum Server {
    /// The embedded one, in memory.
    Embedded(ApiServer),
    /// The real one, which all tests share one after the other.
    Real {
        /// The lock, held until all clones are dropped.
        _turn: Arc<OwnedMutexGuard<()>>,
    },
}

impl Server {
    pub(crate) async fn embedded() -> Self {
        let server = Self::Embedded(ApiServer::in_memory(Settings::default()).await.unwrap());
        create_shared_objects(&server.client().await).await;
        server
    }

    /// Returns the real server, emptied; `None`, with a printed reason, if it is not installed.
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
        SHARED_OBJECTS.get_or_init(|| create_shared_objects(&client)).await;
        clear(&client).await;
        Some(server)
    }

    /// Returns a new client.
    pub(crate) async fn client(&self) -> Client {
        self.watched(|_| {}).await
    }

    /// Returns a client that reports every request before it is sent.
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

    /// Returns a client whose requests are changed on the way.
    pub(crate) async fn altered(
        &self,
        alter: impl Fn(http::Request<Body>) -> http::Request<Body> + Clone + Send + 'static,
    ) -> Client {
        self.gated(move |request| future::ready(alter(request))).await
    }

    /// Returns a client whose requests pass through `gate`.
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
                let programs = Programs::find().expect("the programs were found before");
                let api = api::shared(&programs, Path::new(env!("CARGO_TARGET_TMPDIR")));
                let api = api.as_ref().expect("the server starts");
                let client = client::connect(Some(api.kubeconfig())).await.unwrap();
                through(client::service(client), gate)
            }
        }
    }

    /// Returns a client, and its writes so far: method and path of each.
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

/// Returns a client of `server` whose requests pass through `gate` first.
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

/// Writes of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<Mutex<Vec<String>>>);

impl Writes {
    /// Returns all writes but those to the Lease.
    pub(crate) fn all(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|line| !line.contains("/leases")).cloned().collect()
    }
}

/// Creates the objects that all tests share: kinds, namespaces, and the account that pods need.
async fn create_shared_objects(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in mco_api::crds() {
        apply::create(&mco_cluster::Api::all(client.clone()), &crd).await.unwrap();
        let name = crd.name_any();
        let established = |crd: Option<&_>| is_crd_established().matches_object(crd);
        object_wait::wait_until(crds.clone(), &name, "its kind", established).await.unwrap();
    }
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": label::NAMESPACE}})).unwrap();
    apply::create(&mco_cluster::Api::all(client.clone()), &namespace).await.unwrap();
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    let accounts = mco_cluster::Api::namespaced(client.clone(), "default");
    apply::create(&accounts, &account).await.unwrap();
}

/// Deletes all objects of the last test.
async fn clear(client: &Client) {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let ours: Vec<String> = mco_api::crds().iter().map(kube::ResourceExt::name_any).collect();
    for kind in kinds.list(&ListParams::default()).await.unwrap() {
        let name = kind.name_any();
        if !ours.contains(&name) {
            kinds.delete(&name, &DeleteParams::default()).await.unwrap();
            let is_gone = |kind: Option<&_>| kind.is_none();
            object_wait::wait_until(kinds.clone(), &name, "its end", is_gone).await.unwrap();
        }
    }
    let everywhere = client.clone();
    release(Api::<KubeletConfig>::all(everywhere.clone())).await;
    release(Api::<ContainerRuntimeConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineConfigPool>::all(everywhere.clone())).await;
    remove(Api::<MachineConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineConfigNode>::all(everywhere.clone())).await;
    remove(Api::<ControllerConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineOSConfig>::all(everywhere.clone())).await;
    remove(Api::<MachineOSBuild>::all(everywhere.clone())).await;
    remove(Api::<MachineConfiguration>::all(everywhere.clone())).await;
    remove(Api::<OSImageStream>::all(everywhere.clone())).await;
    remove(Api::<PinnedImageSet>::all(everywhere.clone())).await;
    remove(Api::<KubeletConfig>::all(everywhere.clone())).await;
    remove(Api::<ContainerRuntimeConfig>::all(everywhere.clone())).await;
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

/// Removes the finalizers of objects whose controller has stopped.
async fn release<K>(api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    for object in api.list(&ListParams::default()).await.unwrap() {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(&object.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

async fn remove<K>(api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let now = DeleteParams::default().grace_period(0);
    api.delete_collection(&now, &ListParams::default()).await.unwrap();
    // No controller runs that would remove its finalizers.
    for left in api.list(&ListParams::default()).await.unwrap() {
        if !left.finalizers().is_empty() {
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            drop(api.patch(&left.name_any(), &PatchParams::default(), &none).await);
        }
    }
    let left = api.list(&ListParams::default()).await.unwrap();
    let left: Vec<String> = left.iter().map(kube::ResourceExt::name_any).collect();
    assert!(left.is_empty(), "{left:?} were left behind");
}
