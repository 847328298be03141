//! The listener: authentication, responses, stop and restart.

use std::{net::SocketAddr, path::Path};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ListParams, PostParams, WatchParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use mco_apiserver::{ApiServer, ListenError, Listener, Settings};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::fixture::{refusal, soon};

/// A running listener.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a listener with its state in `dir`.
    pub(crate) async fn start(dir: &Path) -> Self {
        let api = ApiServer::open_dir(dir, Settings::default()).await.unwrap();
        let listener = Listener::bind(api, dir, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(listener.serve(async move {
            let _ = stopped.await;
        }));
        Self { address, stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        soon("the listener to end", self.task).await.unwrap();
    }
}

/// Returns a client for a context of the kubeconfig in `dir`.
pub(crate) async fn client_by(dir: &Path, context: &str) -> Client {
    client_with(Kubeconfig::read_from(dir.join("kubeconfig")).unwrap(), context).await
}

async fn client_with(kubeconfig: Kubeconfig, context: &str) -> Client {
    let options =
        KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_stays_the_same_while_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let first = Running::start(dir.path()).await;
    let address = first.address;
    first.stop().await;
    let second = Running::start(dir.path()).await;
    assert_eq!(second.address, address);
    second.stop().await;

    let other = tokio::net::TcpListener::bind(address).await.unwrap();
    let third = Running::start(dir.path()).await;
    assert_ne!(third.address, address, "another program has the port");
    let client = client_by(dir.path(), "mco").await;
    Api::<Namespace>::all(client).get("default").await.unwrap();
    third.stop().await;
    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_certificate_and_token_authenticate() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    for context in ["mco", "mco-token"] {
        let api: Api<Namespace> = Api::all(client_by(dir.path(), context).await);
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 4, "{context}");
    }
    let mut nobody = Kubeconfig::read_from(dir.path().join("kubeconfig")).unwrap();
    for user in &mut nobody.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    let client = client_with(nobody, "mco").await;
    let get = |path: &str| http::Request::get(path).body(Vec::new()).unwrap();
    let refused = refusal(client.request::<Value>(get("/api/v1/namespaces")).await);
    assert_eq!(refused, (401, "Unauthorized".to_owned()));
    assert_eq!(refusal(client.request::<Value>(get("/apis")).await).0, 401);
    assert_eq!(client.request_text(get("/readyz")).await.unwrap(), "ok");
    let version = client.request::<Value>(get("/version")).await.unwrap();
    assert_eq!(version["minor"], "36");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_listener_keeps_state_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let client = client_by(dir.path(), "mco").await;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let made = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let first_keys = Kubeconfig::read_from(dir.path().join("kubeconfig")).unwrap();
    running.stop().await;
    drop(api);

    let running = Running::start(dir.path()).await;
    // Keys issued before the restart are still valid; only the port differs.
    let mut old_keys = first_keys;
    for cluster in &mut old_keys.clusters {
        cluster.cluster.as_mut().unwrap().server = Some(format!("https://{}", running.address));
    }
    let api: Api<ConfigMap> = Api::namespaced(client_with(old_keys, "mco").await, "default");
    assert_eq!(api.get("a").await.unwrap(), made);
    let next = api.create(&PostParams::default(), &config_map("b")).await.unwrap();
    let number = |object: &ConfigMap| object.resource_version().unwrap().parse::<u64>().unwrap();
    assert!(number(&next) > number(&made));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_ends_open_watches() {
    use futures::TryStreamExt as _;
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let api: Api<ConfigMap> = Api::namespaced(client_by(dir.path(), "mco").await, "default");
    let stream = api.watch(&WatchParams::default(), "0").await.unwrap();
    running.stop().await;
    let events: Vec<_> = soon("the watch to end", stream.try_collect()).await.unwrap();
    assert!(events.is_empty(), "{events:?}");
}

#[tokio::test]
async fn only_loopback_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let bound = Listener::bind(api, dir.path(), "0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(bound, Err(ListenError::NotLoopback(_))));
}
