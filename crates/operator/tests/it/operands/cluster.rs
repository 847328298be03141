//! A cluster with the requests of the operator on record.

use std::sync::{Arc, Mutex};

use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    client::Body,
};
use mco_api::label;
use mco_cluster::client;
use mco_operator::{
    Config,
    manifests::{self, ObjectName, Parameters, all_operands},
};
use mco_testkit::api::{self, ApiServer as _, KubeApiServer};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support;

pub(crate) const IMAGE: &str = "registry.test/mco:1";

/// Kind of operands that the embedded API server does not serve.
const NOT_EMBEDDED: &str = "NetworkPolicy";

/// Returns the settings of an operator that deploys processes from `image`.
pub(crate) fn settings(image: &str) -> Config {
    Config { image: image.to_owned(), ..support::config("v1", "4.20.0") }
}

/// A cluster, and the requests of the operator.
pub(crate) struct Cluster {
    /// Client with all rights.
    pub(crate) admin: Client,
    /// Client of the operator.
    pub(crate) own: Client,
    log: Log,
    server: Option<(KubeApiServer, tempfile::TempDir)>,
}

#[derive(Clone, Default)]
struct Log {
    writes: Arc<Mutex<Vec<String>>>,
    watches: Arc<Mutex<Vec<String>>>,
    denied: Arc<Mutex<Vec<String>>>,
}

impl Log {
    /// Returns a client whose requests are recorded.
    fn record(&self, upstream: Client) -> Client {
        let log = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (log, upstream) = (log.clone(), upstream.clone());
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                if request.method() != Method::GET {
                    log.writes.lock().unwrap().push(line.clone());
                }
                if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                    log.watches.lock().unwrap().push(request.uri().to_string());
                }
                let answer = client::service(upstream).oneshot(request).await;
                if answer.as_ref().is_ok_and(|answer| answer.status() == 403) {
                    log.denied.lock().unwrap().push(line);
                }
                answer
            }
        });
        Client::new(service, "default")
    }
}

impl Cluster {
    /// Returns an empty cluster of the embedded API server, which checks no rights.
    pub(crate) async fn embedded() -> Self {
        let admin = support::cluster().await;
        let log = Log::default();
        let own = log.record(admin.clone());
        Self { admin, own, log, server: None }
    }

    /// Returns a cluster of a real kube-apiserver in which `mco` was just installed. The operator has the
    /// rights of its manifests. Prints a line and returns `None` if the test cannot run here.
    pub(crate) async fn real() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let server = KubeApiServer::alone(folder.path()).unwrap()?;
        let account = api::install(&server).unwrap();
        let admin = client::connect(Some(server.kubeconfig())).await.unwrap();
        let own = client::connect(Some(&account)).await.unwrap();
        let log = Log::default();
        let own = log.record(own);
        Some(Self { admin, own, log, server: Some((server, folder)) })
    }

    /// Like [`Self::embedded`] and [`Self::real`], with an installation in another namespace.
    pub(crate) async fn embedded_in(namespace: &str) -> Self {
        let cluster = Self::embedded().await;
        Self { own: client::in_namespace(cluster.own.clone(), namespace), ..cluster }
    }

    pub(crate) async fn real_in(namespace: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let server = KubeApiServer::alone(folder.path()).unwrap()?;
        let account = api::install_in(&server, namespace).unwrap();
        let admin = client::connect(Some(server.kubeconfig())).await.unwrap();
        let own = client::connect(Some(&account)).await.unwrap();
        let log = Log::default();
        let own = client::in_namespace(log.record(own), namespace);
        Some(Self { admin, own, log, server: Some((server, folder)) })
    }

    /// Returns the operands whose kinds the cluster has.
    pub(crate) fn operands(&self) -> Vec<Value> {
        let parameters = Parameters {
            namespace: client::namespace(&self.own).to_owned(),
            release: "4.20.0".to_owned(),
            ..Parameters::new(IMAGE)
        };
        let mut operands = all_operands(&parameters);
        operands.retain(|object| {
            object["apiVersion"] != "monitoring.coreos.com/v1"
                && (self.has_network_policies() || object["kind"] != NOT_EMBEDDED)
        });
        operands
    }

    /// Returns the API of an object.
    pub(crate) fn api(&self, name: &ObjectName) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: name.group().to_owned(),
            version: "v1".to_owned(),
            api_version: name.api_version.clone(),
            kind: name.kind.clone(),
            plural: name.resource(),
        };
        match &name.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    /// Waits for a state of an object.
    pub(crate) async fn wait_for(
        &self,
        name: &ObjectName,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) {
        let what = format!("{name}: {what}");
        let found = |it: Option<&DynamicObject>| {
            // Items of a list have no kind.
            let kind = json!({"apiVersion": name.api_version, "kind": name.kind});
            let object = it.map(|it| json!(it)).and_then(|it| it.as_object().cloned());
            let kind = kind.as_object().cloned().unwrap_or_default();
            object.is_some_and(|it| holds(&Value::Object(kind.into_iter().chain(it).collect())))
        };
        support::wait_for(&self.api(name), &name.name, &what, found).await;
    }

    /// Waits until an object is as its manifest says.
    pub(crate) async fn wait_for_manifest(&self, manifest: &Value) {
        let name = ObjectName::of(manifest);
        self.wait_for(&name, "it is applied", |it| contains(it, manifest)).await;
    }

    pub(crate) async fn create_namespace(&self) {
        let namespaces = Api::<Namespace>::all(self.admin.clone());
        let namespace = json!({"metadata": {"name": label::NAMESPACE}});
        let namespace = serde_json::from_value(namespace).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Returns true if the API server checks rights.
    pub(crate) fn has_rights(&self) -> bool {
        self.server.is_some()
    }

    /// Returns true if the API server serves `NetworkPolicies`.
    pub(crate) fn has_network_policies(&self) -> bool {
        self.server.is_some()
    }

    /// Creates the kinds of an installation in a cluster that does not have them.
    pub(crate) async fn create_kinds(&self) {
        for object in manifests::definitions() {
            let name = ObjectName::of(&object);
            let object = serde_json::from_value(object).unwrap();
            let created = self.api(&name).create(&PostParams::default(), &object).await;
            created.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Returns the operator's writes since the last call.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.log.writes.lock().unwrap())
    }

    /// Returns the watches that the operator has started.
    pub(crate) fn watches(&self) -> Vec<String> {
        self.log.watches.lock().unwrap().clone()
    }

    /// Returns the requests that the API server denied.
    pub(crate) fn denied(&self) -> Vec<String> {
        self.log.denied.lock().unwrap().clone()
    }
}

/// Returns true if an object has all members of a manifest. The API server adds others.
pub(crate) fn contains(found: &Value, manifest: &Value) -> bool {
    match (found, manifest) {
        (Value::Object(found), Value::Object(manifest)) => manifest.iter().all(|(key, value)| {
            let is_empty = value.as_array().is_some_and(Vec::is_empty);
            found.get(key).map_or(is_empty, |found| contains(found, value))
        }),
        (Value::Array(found), Value::Array(manifest)) => {
            found.len() == manifest.len()
                && found.iter().zip(manifest).all(|(found, value)| contains(found, value))
        }
        _ => found == manifest,
    }
}
