//! The recorded objects of a cluster that the reference runs: loads them into an API server, and
//! compares the objects of an API server before and after a test.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write as _,
    path::{Path, PathBuf},
};

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::{processes::installed, workspace};

/// Files in the order in which they are loaded: owners precede the objects that they own.
const FILES: [&str; 5] = ["crds", "core", "objects", "machineconfigs", "nodes"];

/// Kinds of Kubernetes in the recording, or that processes may write: API version, kind and plural.
const BUILT_IN: [(&str, &str, &str); 13] = [
    ("v1", "Namespace", "namespaces"),
    ("v1", "Secret", "secrets"),
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "Node", "nodes"),
    ("v1", "Event", "events"),
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("coordination.k8s.io/v1", "Lease", "leases"),
    ("events.k8s.io/v1", "Event", "events"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
];

/// The recorded objects.
pub(crate) struct Dump {
    pub(crate) objects: Vec<Value>,
    /// Plurals by API version and kind.
    plurals: HashMap<(String, String), String>,
}

impl Dump {
    /// Reads the recording; `None`, with a printed line, if it is absent.
    #[expect(clippy::disallowed_methods, reason = "the test reads its input files")]
    pub(crate) fn read() -> Option<Self> {
        let folder = workspace().join("../shared/takeover");
        let mut objects = Vec::new();
        for name in FILES {
            let Ok(text) = std::fs::read(folder.join(format!("{name}.json"))) else {
                let folder = folder.display();
                let _ = writeln!(std::io::stderr(), "skipped: {folder} has no {name}.json");
                return None;
            };
            let list: Value = serde_json::from_slice(&text).unwrap();
            objects.extend(list["items"].as_array().unwrap().clone());
        }
        let mut plurals: HashMap<_, _> = BUILT_IN
            .iter()
            .map(|(version, kind, plural)| {
                (((*version).to_owned(), (*kind).to_owned()), (*plural).to_owned())
            })
            .collect();
        for crd in objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
            let names = &crd["spec"]["names"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            for version in crd["spec"]["versions"].as_array().unwrap() {
                let version = format!("{}/{}", text(&crd["spec"]["group"]), text(&version["name"]));
                plurals.insert((version, text(&names["kind"])), text(&names["plural"]));
            }
        }
        Some(Self { objects, plurals })
    }

    /// Returns the recorded objects of a kind, typed.
    pub(crate) fn of<T: serde::de::DeserializeOwned>(&self, version: &str, kind: &str) -> Vec<T> {
        let objects = self.objects.iter();
        let objects =
            objects.filter(|object| object["apiVersion"] == version && object["kind"] == kind);
        objects.map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    }

    fn path(&self, version: &str, kind: &str, namespace: Option<&str>) -> String {
        let plural = &self.plurals[&(version.to_owned(), kind.to_owned())];
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// Creates all recorded objects, with their status.
    pub(crate) async fn load(&self, client: &Client) {
        let mut uids: HashMap<String, String> = HashMap::new();
        for object in &self.objects {
            self.create(client, object, &mut uids).await;
            if object["kind"] == "CustomResourceDefinition" {
                installed(client, object["metadata"]["name"].as_str().unwrap()).await;
            }
        }
    }

    async fn create(&self, client: &Client, object: &Value, uids: &mut HashMap<String, String>) {
        let mut new = object.clone();
        let metadata = new["metadata"].as_object_mut().unwrap();
        let generation = metadata.remove("generation");
        let old = metadata.remove("uid").unwrap();
        for member in ["resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(member);
        }
        for owner in
            metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten()
        {
            owner["uid"] = json!(uids[owner["uid"].as_str().unwrap()]);
        }
        let status = new.as_object_mut().unwrap().remove("status");
        let (version, kind) =
            (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let namespace = object["metadata"]["namespace"].as_str();
        let path = self.path(version, kind, namespace);
        let name = object["metadata"]["name"].as_str().unwrap();
        let made = match send(client, Request::post(&path), &new).await {
            Ok(made) => made,
            // Namespaces of the API server itself.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                get(client, &format!("{path}/{name}")).await
            }
            Err(error) => panic!("{path}/{name}: {error}"),
        };
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        uids.insert(old.as_str().unwrap().to_owned(), uid);
        if kind == "CustomResourceDefinition" || kind == "Namespace" {
            return;
        }
        if let Some(mut status) = status.filter(|status| *status != json!({})) {
            // A status that was up to date stays so.
            if generation.is_some() && status.get("observedGeneration") == generation.as_ref() {
                status["observedGeneration"] = made["metadata"]["generation"].clone();
            }
            let request = Request::patch(format!("{path}/{name}/status"))
                .header("content-type", "application/merge-patch+json");
            let written = send(client, request, &json!({"status": status})).await;
            written.unwrap_or_else(|error| panic!("status of {path}/{name}: {error}"));
        }
    }

    /// Returns all objects of the cluster but those of the API server itself, without the members that
    /// every write changes. The keys are `Kind/namespace/name`.
    pub(crate) async fn objects_of(&self, client: &Client) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for (version, kind) in self.plurals.keys() {
            let list = match send(
                client,
                Request::get(self.path(version, kind, None)),
                &json!(null),
            )
            .await
            {
                Ok(list) => list,
                // The embedded API server does not have all kinds.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => panic!("{version} {kind}: {error}"),
            };
            for mut object in list["items"].as_array().unwrap().clone() {
                let metadata = object["metadata"].as_object_mut().unwrap();
                metadata.remove("resourceVersion");
                metadata.remove("managedFields");
                let text = |member: &str| {
                    metadata.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                let (namespace, name) = (text("namespace"), text("name"));
                let is_of_server = !namespace.is_empty() && !namespace.starts_with("openshift-");
                let is_default = kind == "ClusterRoleBinding" && name.starts_with("system:");
                if !is_of_server && !is_default {
                    let group = version.split_once('/').map_or("", |(group, _)| group);
                    let kind = if group == "config.openshift.io" {
                        format!("{kind}.config")
                    } else {
                        kind.clone()
                    };
                    all.insert(format!("{kind}/{namespace}/{name}"), object);
                }
            }
        }
        all
    }
}

/// Sends a request with a JSON body; `null` for none.
pub(crate) async fn send(
    client: &Client,
    request: http::request::Builder,
    body: &Value,
) -> Result<Value, kube::Error> {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let has_type =
        request.headers_ref().is_some_and(|headers| headers.contains_key("content-type"));
    let request =
        if has_type { request } else { request.header("content-type", "application/json") };
    client.request(request.body(bytes).unwrap()).await
}

async fn get(client: &Client, path: &str) -> Value {
    send(client, Request::get(path), &json!(null)).await.unwrap()
}

/// Returns the keys of objects that are new, gone or changed.
pub(crate) fn changes(
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
) -> Vec<String> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| format!("- {key}"));
    let new = after.iter().filter_map(|(key, object)| match before.get(key) {
        None => Some(format!("+ {key}")),
        Some(known) if known != object => Some(format!("~ {key}")),
        Some(_) => None,
    });
    gone.chain(new).collect()
}

/// Returns the path of the file for the log of a process.
pub(crate) fn log(folder: &Path, process: &str) -> PathBuf {
    folder.join(format!("{process}.log"))
}
