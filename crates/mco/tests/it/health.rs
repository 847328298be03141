//! A cluster for `mco version`, `mco doctor` and `mco must-gather`, on both API servers.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::wait::{Condition as _, conditions},
};
use mco_cluster::{apply, client};
use mco_testkit::{
    api::{ApiServer, Embedded, KubeApiServer},
    object_wait,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A running API server without any of our objects.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    /// Keeps the server running.
    _server: Box<dyn ApiServer>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
        Self::new(Box::new(server), folder).await
    }

    /// Returns a real kube-apiserver; `None`, with a printed reason, if it is not installed.
    pub(crate) async fn real() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let server = KubeApiServer::alone(folder.path()).unwrap()?;
        Some(Self::new(Box::new(server), folder).await)
    }

    async fn new(server: Box<dyn ApiServer>, folder: tempfile::TempDir) -> Self {
        let kubeconfig = server.kubeconfig().to_owned();
        let client = client::connect(Some(&kubeconfig)).await.unwrap();
        Self { client, kubeconfig, _server: server, _folder: folder }
    }

    /// Installs the `CustomResourceDefinitions`.
    pub(crate) async fn install_kinds(&self) {
        let kinds = Api::<CustomResourceDefinition>::all(self.client.clone());
        for crd in mco_api::crds() {
            apply::create(&mco_cluster::Api::all(self.client.clone()), &crd).await.unwrap();
            let is_served =
                |found: Option<&_>| conditions::is_crd_established().matches_object(found);
            let name = crd.name_any();
            object_wait::wait_until(kinds.clone(), &name, "its kind", is_served).await.unwrap();
        }
    }

    /// Creates or changes an object, and its status if it is given.
    pub(crate) async fn put<K>(&self, api: Api<K>, name: &str, object: Value)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let mut object = object;
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"]["name"] = json!(name);
        let status = object.as_object_mut().unwrap().remove("status");
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(object)).await.unwrap();
        if let Some(status) = status {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Runs a command against this cluster; returns exit code, output and errors.
    pub(crate) async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let command = crate::mco(args).env("KUBECONFIG", &self.kubeconfig);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }
}
