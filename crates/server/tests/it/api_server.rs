//! The two API servers on which the tests of admission run.

use std::{
    io::Write as _,
    path::Path,
    sync::{Arc, LazyLock, Once},
};

use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use mco_api::{ControllerConfig, join_token, label};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{apply, client};
use mco_testkit::{
    api::{self, ApiServer as _, Programs},
    object_wait, objects,
};
use serde_json::json;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Lock of the real server: there is only one ControllerConfig.
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

static SKIPPED: Once = Once::new();

/// Makes every function a test on each of the two servers.
macro_rules! on_both {
    ($($claim:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                super::$claim($crate::api_server::Cluster::embedded().await).await;
            })+
        }
        mod real {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                if let Some(cluster) = $crate::api_server::Cluster::real().await {
                    super::$claim(cluster).await;
                }
            })+
        }
    };
}
pub(crate) use on_both;

/// A cluster with a ControllerConfig and no tokens.
pub(crate) struct Cluster {
    /// Client of the administrator.
    pub(crate) client: Client,
    /// Client with the rights of the config server; of the administrator where there are no rights.
    pub(crate) server: Client,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Cluster {
    pub(crate) async fn embedded() -> Self {
        let api = ApiServer::in_memory(Settings::default()).await.unwrap();
        let client = Client::new(api, "default");
        prepare(&client).await;
        Self { server: client.clone(), client, _turn: None }
    }

    /// Returns the real server; `None`, with a printed reason, if it is not installed.
    pub(crate) async fn real() -> Option<Self> {
        let programs = match Programs::find() {
            Ok(programs) => programs,
            Err(absent) => {
                SKIPPED.call_once(|| {
                    let text = "skipped: admission on a real kube-apiserver";
                    let _ = writeln!(std::io::stderr(), "{text}: {absent}");
                });
                return None;
            }
        };
        let turn = TURN.clone().lock_owned().await;
        let api = api::shared(&programs, Path::new(env!("CARGO_TARGET_TMPDIR")));
        let api = api.as_ref().expect("the server starts");
        let client = client::connect(Some(api.kubeconfig())).await.unwrap();
        prepare(&client).await;
        let account = api::account(api, "machine-config-server").unwrap();
        let server = client::connect(Some(&account)).await.unwrap();
        Some(Self { client, server, _turn: Some(turn) })
    }
}

/// Creates the kinds, the namespaces and the ControllerConfig, and removes the tokens of earlier tests.
async fn prepare(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in mco_api::crds() {
        let name = crd.name_any();
        apply::create(&mco_cluster::Api::all(client.clone()), &crd).await.unwrap();
        let is_served = |found: Option<&CustomResourceDefinition>| {
            let conditions = found.and_then(|found| found.status.as_ref()?.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it.type_ == "Established" && it.status == "True")
        };
        object_wait::wait_until(crds.clone(), &name, "its kind", is_served).await.unwrap();
    }
    for name in [label::NAMESPACE, join_token::NAMESPACE] {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        apply::create(&mco_cluster::Api::all(client.clone()), &namespace).await.unwrap();
    }
    let configs = Api::<ControllerConfig>::all(client.clone());
    drop(configs.delete(label::CONTROLLER_CONFIG, &DeleteParams::default()).await);
    objects::create_controller_config(client, "v1").await.unwrap();
    let tokens = Api::<Secret>::namespaced(client.clone(), join_token::NAMESPACE);
    for token in tokens.list(&ListParams::default()).await.unwrap() {
        tokens.delete(&token.name_any(), &DeleteParams::default()).await.unwrap();
    }
}
