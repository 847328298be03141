//! Fetches objects and logs, removes their secrets, and writes them.

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use mco_cluster::{CallError, client::namespace, report};
use mco_core::{doctor, redact};
use mco_host::Root;
use serde_json::{Value, json};

use crate::{
    command::{doctor as examination, version},
    print, process,
};

/// Number of objects in one response.
const PAGE: usize = 200;

/// Permissions of the files.
const MODE: u32 = 0o600;

/// Objects of the cluster besides our kinds: group and version, plural, kind, and their namespace.
const OTHERS: [(&str, &str, &str, Scope); 16] = [
    ("api/v1", "nodes", "Node", Scope::Cluster),
    ("api/v1", "events", "Event", Scope::Own),
    ("api/v1", "pods", "Pod", Scope::Own),
    ("api/v1", "configmaps", "ConfigMap", Scope::Own),
    ("api/v1", "secrets", "Secret", Scope::Own),
    ("api/v1", "services", "Service", Scope::Own),
    ("api/v1", "serviceaccounts", "ServiceAccount", Scope::Own),
    ("apis/apps/v1", "deployments", "Deployment", Scope::Own),
    ("apis/apps/v1", "daemonsets", "DaemonSet", Scope::Own),
    ("apis/apps/v1", "replicasets", "ReplicaSet", Scope::Own),
    ("apis/coordination.k8s.io/v1", "leases", "Lease", Scope::Own),
    ("apis/networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", Scope::Own),
    ("apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", Scope::Cluster),
    (
        "apis/certificates.k8s.io/v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        Scope::Cluster,
    ),
    ("apis/config.openshift.io/v1", "infrastructures", "Infrastructure", Scope::Cluster),
    ("apis/config.openshift.io/v1", "clusterversions", "ClusterVersion", Scope::Cluster),
];

/// The namespaces whose objects are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The whole cluster.
    Cluster,
    /// The namespace of the processes.
    Own,
}

/// A gathering in progress.
pub(super) struct Collector {
    client: Client,
    root: Root,
    /// Number of lines of each log.
    tail: u32,
    /// Requests that failed.
    failures: Vec<String>,
}

impl Collector {
    pub(super) fn new(client: Client, root: Root, tail: u32) -> Self {
        Self { client, root, tail, failures: Vec::new() }
    }

    /// Gathers everything. Fails only if a file cannot be written.
    pub(super) async fn collect(&mut self) -> anyhow::Result<()> {
        self.examination().await?;
        for definition in mco_api::crds() {
            let spec = definition.spec;
            let served = spec.versions.iter().find(|version| version.served);
            let version = served.map_or("v1", |version| version.name.as_str());
            let (plural, kind) = (&spec.names.plural, &spec.names.kind);
            let path = format!("/apis/{}/{version}/{plural}", spec.group);
            self.kind(&path, plural, kind).await?;
        }
        for (version, plural, kind, scope) in OTHERS {
            let path = match scope {
                Scope::Cluster => format!("/{version}/{plural}"),
                Scope::Own => {
                    format!("/{version}/namespaces/{}/{plural}", namespace(&self.client))
                }
            };
            let objects = self.kind(&path, plural, kind).await?;
            if kind == "Pod" {
                self.logs(objects).await?;
            }
        }
        Ok(())
    }

    /// Writes the list of failures, and returns their number.
    pub(super) fn finish(&self) -> anyhow::Result<usize> {
        if !self.failures.is_empty() {
            self.write("errors.txt", &(self.failures.join("\n") + "\n"))?;
        }
        Ok(self.failures.len())
    }

    /// Writes the versions, and the findings of `mco doctor`.
    async fn examination(&mut self) -> anyhow::Result<()> {
        let facts = examination::gather::facts(&self.client).await;
        let mut findings = json!(examination::document(&doctor::examine(&facts)));
        redact::object("", &mut findings);
        self.write("doctor.json", &(serde_json::to_string_pretty(&findings)? + "\n"))?;
        let build = process::build();
        let client = json!({"version": build.version, "hash": build.hash});
        let versions = match version::of(&facts) {
            Ok(cluster) => json!({"client": client, "cluster": cluster, "time": facts.now}),
            Err(error) => json!({"client": client, "error": error, "time": facts.now}),
        };
        self.write("versions.json", &(serde_json::to_string_pretty(&versions)? + "\n"))?;
        print::note("wrote doctor.json and versions.json");
        Ok(())
    }

    /// Writes all objects of a kind, and returns them.
    async fn kind(&mut self, path: &str, plural: &str, kind: &str) -> anyhow::Result<Vec<Value>> {
        let objects = match self.list(path).await {
            Ok(objects) => objects,
            // Not every cluster serves every kind.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => {
                self.failed(path, error);
                return Ok(Vec::new());
            }
        };
        let version = path.trim_start_matches("/apis/").trim_start_matches("/api/");
        let version = version.split("/namespaces/").next().unwrap_or(version);
        let version = version.strip_suffix(&format!("/{plural}")).unwrap_or(version).to_owned();
        for object in &objects {
            let mut shown = json!({"apiVersion": version, "kind": kind});
            if let (Some(shown), Some(members)) = (shown.as_object_mut(), object.as_object()) {
                shown.extend(members.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            redact::object(kind, &mut shown);
            let name = file_name(object, namespace(&self.client));
            self.write(&format!("{plural}/{name}.yaml"), &serde_saphyr::to_string(&shown)?)?;
        }
        if !objects.is_empty() {
            print::note(&format!("wrote {} {plural}", objects.len()));
        }
        Ok(objects)
    }

    /// Fetches all objects, page by page.
    async fn list(&self, path: &str) -> Result<Vec<Value>, kube::Error> {
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let page = if next.is_empty() {
                format!("{path}?limit={PAGE}")
            } else {
                format!("{path}?limit={PAGE}&continue={next}")
            };
            let request = Request::get(page).body(Vec::new()).map_err(kube::Error::HttpError)?;
            let mut found: Value = self.client.request(request).await?;
            if let Some(items) = found.get_mut("items").and_then(Value::as_array_mut) {
                objects.append(items);
            }
            let token = found.pointer("/metadata/continue").and_then(Value::as_str);
            match token.filter(|token| !token.is_empty()) {
                Some(token) => next = escaped(token),
                None => return Ok(objects),
            }
        }
    }

    /// Writes the logs of all containers, and of those that ran before them.
    async fn logs(&mut self, pods: Vec<Value>) -> anyhow::Result<()> {
        for pod in pods {
            let Ok(pod) = serde_json::from_value::<Pod>(pod) else { continue };
            let name = pod.metadata.name.clone().unwrap_or_default();
            for container in containers(&pod) {
                self.log(&name, &container, Run::Current).await?;
                if has_restarted(&pod, &container) {
                    self.log(&name, &container, Run::Previous).await?;
                }
            }
        }
        Ok(())
    }

    async fn log(&mut self, pod: &str, container: &str, run: Run) -> anyhow::Result<()> {
        let previous = run == Run::Previous;
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}/log?container={container}&tailLines={}&previous={previous}",
            namespace(&self.client),
            self.tail,
        );
        let request = Request::get(&path).body(Vec::new())?;
        match self.client.request_text(request).await {
            Ok(text) => {
                let suffix = if previous { ".previous" } else { "" };
                self.write(&format!("logs/{pod}/{container}{suffix}.log"), &redact::text(&text))?;
            }
            Err(error) => self.failed(&path, error),
        }
        Ok(())
    }

    fn failed(&mut self, path: &str, error: kube::Error) {
        let error = redact::text(&report::chain(&CallError::from(error)));
        print::note(&format!("failed to fetch {path}: {error}"));
        self.failures.push(format!("GET {path}: {error}"));
    }

    fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        Ok(self.root.write(&format!("/{path}"), text.as_bytes(), MODE)?)
    }
}

/// The run of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Current,
    Previous,
}

fn containers(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let first = spec.init_containers.iter().flatten();
    first.chain(&spec.containers).map(|container| container.name.clone()).collect()
}

fn has_restarted(pod: &Pod, container: &str) -> bool {
    let Some(status) = &pod.status else { return false };
    let all = [&status.init_container_statuses, &status.container_statuses];
    let mut all = all.into_iter().flatten().flatten();
    all.any(|status| status.name == container && status.restart_count > 0)
}

/// Returns the name of an object's file, with its namespace if that is another one.
fn file_name(object: &Value, own: &str) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let name = if namespace.is_empty() || namespace == own {
        name.to_owned()
    } else {
        format!("{namespace}_{name}")
    };
    name.replace('/', "_")
}

/// Encodes a text for a query string.
fn escaped(text: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}
