//! Tests of configs from an API server, which a few lines that list and watch stand in for.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::Body;
use mco_cluster::Shutdown;
use mco_ignition::data_url;
use mco_server::{
    ClusterSource, Server, Source,
    api_url::ApiUrl,
    document::{FirstBoot, Inputs},
    source::JoinSettings,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use crate::{
    authority::Authority,
    client::{plain, request},
    fixture::{PATIENCE, settings, with_file},
};

/// An API server that delays its lists until `open`, and one change of the pool until `moved`.
#[derive(Clone)]
struct Api {
    open: watch::Sender<bool>,
    moved: watch::Sender<bool>,
    asked: Arc<Notify>,
}

const NAMESPACE: &str = "openshift-machine-config-operator";

impl Api {
    fn new() -> Self {
        let (open, moved) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { open, moved, asked: Arc::default() }
    }

    fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request.uri()).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, uri: &http::Uri) -> Response<Chunks> {
        let plural = uri.path().rsplit('/').next().unwrap().to_owned();
        if uri.query().is_some_and(|query| query.contains("watch=true")) {
            return Response::new(self.events(&plural));
        }
        self.asked.notify_one();
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.unwrap();
        let list = json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "10"},
            "items": items(uri)
        });
        Response::new(body(stream::iter([Bytes::from(list.to_string())])))
    }

    fn events(&self, plural: &str) -> Chunks {
        let silence = stream::pending();
        if plural != "machineconfigpools" {
            return body(silence);
        }
        let mut moved = self.moved.subscribe();
        let event = stream::once(async move {
            moved.wait_for(|moved| *moved).await.unwrap();
            let event = json!({"type": "MODIFIED", "object": pool(1, "11")});
            Bytes::from(format!("{event}\n"))
        });
        body(event.chain(silence))
    }
}

type Chunks = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn body(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Chunks {
    StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk))).boxed())
}

fn pool(updated: i32, version: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "uid": "p", "resourceVersion": version},
        "spec": {"configuration": {"name": "rendered-worker-new"}},
        "status": {
            "updatedMachineCount": updated, "configuration": {"name": "rendered-worker-old"}
        }
    })
}

/// Returns the objects that a list selects. `kube-public` has no ConfigMap.
fn items(uri: &http::Uri) -> Vec<Value> {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let plural = path.rsplit('/').next().unwrap();
    let config = |name: &str| {
        json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "2"},
            "spec": {"config": with_file(3)}
        })
    };
    match plural {
        "machineconfigpools" => vec![pool(0, "9")],
        "machineconfigs" => {
            let names = ["rendered-worker-old", "rendered-worker-new"];
            let selected =
                |name: &&str| query.contains(&format!("fieldSelector=metadata.name%3D{name}"));
            let found: Vec<_> = names.into_iter().filter(selected).map(config).collect();
            assert_eq!(found.len(), 1, "only the configs of pools are requested: {uri}");
            found
        }
        "endpointslices" => vec![json!({
            "metadata": {
                "name": "kubernetes", "namespace": "default", "uid": "e", "resourceVersion": "5"
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.7"]}],
            "ports": [{"name": "https", "port": 6443}]
        })],
        "configmaps" if path.contains("/kube-public/") => Vec::new(),
        "controllerconfigs" => vec![json!({
            "metadata": {"name": "machine-config-controller", "uid": "c", "resourceVersion": "3"},
            "spec": {"kubeAPIServerServingCAData": "Y2E="}
        })],
        "configmaps" => vec![json!({
            "metadata": {
                "name": "kubeconfig-data", "namespace": NAMESPACE, "uid": "m", "resourceVersion": "4"
            },
            "binaryData": {"ca-bundle.crt": "bmV3IGNh"}
        })],
        other => panic!("unexpected request for {other}"),
    }
}

fn joining(credentials: &Path) -> JoinSettings {
    let server = ApiUrl::Fixed("https://api-int:6443".to_owned());
    JoinSettings { server, credentials: credentials.to_owned() }
}

async fn served(address: std::net::SocketAddr) -> Value {
    let accept = ["a/vnd.coreos.ignition+json;version=3.5.0"];
    let reply = plain(address, request("GET", "/config/worker", &accept)).await;
    assert_eq!(reply.status.as_u16(), 200);
    reply.json()
}

fn file(document: &Value, path: &str) -> String {
    let files = document["storage"]["files"].as_array().unwrap();
    let found = files.iter().find(|file| file["path"] == path).unwrap();
    let source = found["contents"]["source"].as_str().unwrap();
    String::from_utf8(data_url::decode(source).unwrap()).unwrap()
}

// covers: S29, S31, S32, S33, S47
#[tokio::test]
async fn a_cluster_is_served_once_listed_and_follows_changes() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "to.ken").unwrap();
    let source = ClusterSource::watch(&api.client(), Some(joining(folder.path())), &shutdown).await;
    let pair = Authority::new().pair();
    let certificate = mco_server::Certificate::Inline { chain: pair.chain, key: pair.key };
    let opening = tokio::spawn(Server::open(settings(certificate), source));
    timeout(PATIENCE, api.asked.notified()).await.expect("a list is requested");
    assert!(!opening.is_finished(), "no address is open before the lists are there");
    api.open.send_replace(true);
    let server = timeout(PATIENCE, opening).await.expect("the lists arrive").unwrap().unwrap();
    let address = server.plain_address().unwrap().unwrap();

    let asks = async {
        for path in ["/readyz", "/healthz", "/livez"] {
            let reply = plain(address, request("GET", path, &[])).await;
            assert_eq!((reply.status.as_u16(), reply.body.len()), (200, 0), "{path}");
        }
        let old = served(address).await;
        let annotations = "/etc/machine-config-daemon/node-annotations.json";
        assert!(file(&old, annotations).contains("rendered-worker-old"));
        assert_eq!(file(&old, "/etc/kubernetes/kubelet-ca.crt"), "ca");
        let kubeconfig = file(&old, "/etc/kubernetes/kubeconfig");
        for part in ["data: bmV3IGNh\n", "server: https://api-int:6443\n", "token: to.ken\n"] {
            assert!(kubeconfig.contains(part), "{part} in {kubeconfig}");
        }
        api.moved.send_replace(true);
        let moved = async {
            while !file(&served(address).await, annotations).contains("rendered-worker-new") {}
        };
        timeout(PATIENCE, moved).await.expect("the new config is served");
        shutdown.request();
    };
    tokio::join!(server.serve(&shutdown), asks);
}

#[tokio::test]
async fn without_a_token_requests_fail_with_5xx() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    api.open.send_replace(true);
    let folder = tempfile::tempdir().unwrap();
    let source = ClusterSource::watch(&api.client(), Some(joining(folder.path())), &shutdown).await;
    timeout(PATIENCE, source.ready()).await.expect("the lists arrive");
    let refused = source.inputs("worker").await.unwrap_err();
    assert_eq!(refused.to_string(), "failed to build the kubelet's kubeconfig");
    assert!(refused.is_pending(), "the token may be there in a minute");
    shutdown.request();
}

fn kubeconfig(inputs: Inputs) -> std::sync::Arc<[u8]> {
    let FirstBoot { kubeconfig, .. } = inputs.first_boot.unwrap();
    kubeconfig.unwrap().0
}

#[tokio::test]
async fn the_url_of_the_api_server_is_found_and_the_kubeconfig_built_once() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    api.open.send_replace(true);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "to.ken").unwrap();
    let joining = JoinSettings { server: ApiUrl::Auto, ..joining(folder.path()) };
    let source = ClusterSource::watch(&api.client(), Some(joining), &shutdown).await;
    timeout(PATIENCE, source.ready()).await.expect("the lists arrive");
    let first = kubeconfig(source.inputs("worker").await.unwrap());
    let text = String::from_utf8(first.to_vec()).unwrap();
    assert!(text.contains("server: https://10.0.0.7:6443\n"), "{text}");
    let again = kubeconfig(source.inputs("worker").await.unwrap());
    assert!(Arc::ptr_eq(&first, &again), "the same bytes while no input changes");
    shutdown.request();
}

#[tokio::test(start_paused = true)]
async fn a_new_token_is_in_the_kubeconfig_without_a_restart() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    api.open.send_replace(true);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first").unwrap();
    let source = ClusterSource::watch(&api.client(), Some(joining(folder.path())), &shutdown).await;
    timeout(PATIENCE, source.ready()).await.expect("the lists arrive");
    let old = kubeconfig(source.inputs("worker").await.unwrap());
    assert!(String::from_utf8_lossy(&old).contains("token: first\n"));
    std::fs::write(&token, "second").unwrap();
    let is_new = async {
        loop {
            let found = kubeconfig(source.inputs("worker").await.unwrap());
            if String::from_utf8_lossy(&found).contains("token: second\n") {
                return;
            }
            // Lets the paused clock go on.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_mins(1), is_new).await.expect("the token is read again");
    shutdown.request();
}

#[tokio::test(start_paused = true)]
async fn watches_that_hear_nothing_are_stale_until_their_lists_arrive() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    api.open.send_replace(true);
    let source = ClusterSource::watch(&api.client(), None, &shutdown).await;
    timeout(PATIENCE, source.ready()).await.expect("the lists arrive");
    assert_eq!(source.stale_watches(), [""; 0]);
    // From now on, lists are not answered and watches are silent. The clock is paused: the sleep is
    // the silence itself, and no real time passes.
    api.open.send_replace(false);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let stale = source.stale_watches();
    assert_eq!(stale.len(), 3, "one line for each kind: {stale:?}");
    assert!(stale[2].starts_with("watch of MachineConfigPool is stale"), "{stale:?}");
    api.open.send_replace(true);
    let heard = async {
        while !source.stale_watches().is_empty() {
            // Lets the paused clock go on.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, heard).await.expect("the lists arrive again");
    shutdown.request();
}

// covers: S15
#[tokio::test]
async fn a_missing_object_is_named_in_the_error() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    api.open.send_replace(true);
    let source = ClusterSource::watch(&api.client(), None, &shutdown).await;
    timeout(PATIENCE, source.ready()).await.expect("the lists arrive");
    assert!(source.inputs("worker").await.unwrap().first_boot.unwrap().kubeconfig.is_none());
    let refused = source.inputs("infra").await.unwrap_err();
    assert_eq!(refused.to_string(), "pool \"infra\" does not exist");
    shutdown.request();
}

#[tokio::test]
async fn shutdown_works_before_the_lists_arrive() {
    let (api, shutdown) = (Api::new(), Shutdown::new());
    let source = ClusterSource::watch(&api.client(), None, &shutdown).await;
    let pair = Authority::new().pair();
    let certificate = mco_server::Certificate::Inline { chain: pair.chain, key: pair.key };
    let run = mco_server::run(settings(certificate), source, &shutdown);
    let stop = async {
        timeout(PATIENCE, api.asked.notified()).await.expect("a list is asked for");
        shutdown.request();
    };
    let (ended, ()) = tokio::join!(run, stop);
    ended.unwrap();
}
