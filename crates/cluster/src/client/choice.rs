//! The choice of a cluster, as kubectl makes it: kubeconfigs that are merged, a context, and a cluster.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::config::Kubeconfig;
use serde_json::{Map, Value, json};

use super::{Client, ConnectError, Options, ReadFile, connect_as_pod, connect_through, from_disk};

/// The environment variables that choose a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Value of `KUBECONFIG`: paths, separated as in `PATH`.
    pub kubeconfig: Option<OsString>,
    /// Home directory of the user.
    pub home: Option<PathBuf>,
    /// Address of the API server that the kubelet gives to the containers of a pod.
    pub service_host: Option<OsString>,
}

impl Environment {
    /// Reads the variables of this process. An empty variable counts as not set.
    #[must_use]
    pub fn read() -> Self {
        let read = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            kubeconfig: read("KUBECONFIG"),
            home: read("HOME").map(PathBuf::from),
            service_host: read("KUBERNETES_SERVICE_HOST"),
        }
    }

    /// Returns the paths of `KUBECONFIG`.
    #[must_use]
    pub fn kubeconfigs(&self) -> Vec<PathBuf> {
        let paths = self.kubeconfig.iter().flat_map(std::env::split_paths);
        paths.filter(|path| !path.as_os_str().is_empty()).collect()
    }
}

/// The choice of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChoice {
    /// Kubeconfigs, which are merged: the first one that has an entry wins. Of several, those that do not
    /// exist are skipped.
    pub files: Vec<PathBuf>,
    /// Context to use instead of the current one.
    pub context: Option<String>,
    /// Cluster to use instead of that of the context.
    pub cluster: Option<String>,
}

/// A client of the chosen cluster, and the names of the cluster.
#[derive(Clone)]
pub struct ChosenCluster {
    /// The client.
    pub client: Client,
    /// Name of the context; empty in a pod.
    pub context: String,
    /// Address of the API server.
    pub server: String,
}

/// A choice that names no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// A kubeconfig cannot be read.
    #[error("failed to read kubeconfig {}", path.display())]
    Read {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A kubeconfig is invalid.
    #[error("invalid kubeconfig {}", path.display())]
    Parse {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The cause.
        source: Box<kube::config::KubeconfigError>,
    },
    /// No context is chosen.
    #[error("the kubeconfig has no current context")]
    NoContext {
        /// Names of the contexts.
        known: Vec<String>,
    },
    /// The chosen entry does not exist.
    #[error("unknown {kind} {name:?}")]
    Unknown {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        /// Name of the entry.
        name: String,
        /// Names of the entries that exist.
        known: Vec<String>,
    },
    /// The client cannot be created.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl ClusterChoice {
    /// Returns a client of the chosen cluster. It follows changes of the kubeconfigs.
    pub async fn connect(&self, options: &Options) -> Result<ChosenCluster, ChoiceError> {
        let chosen = self.chosen(&from_disk())?;
        let text = |pointer: &str| {
            chosen.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (context, server) = (text("/current-context"), text("/clusters/0/cluster/server"));
        let first = self.files.first().map(|path| path.to_string_lossy().into_owned());
        let first = first.unwrap_or_default();
        let (choice, path) = (self.clone(), first.clone());
        // The merged kubeconfig takes the place of the first file.
        let read: ReadFile = Arc::new(move |wanted: &str| {
            if wanted != path {
                return std::fs::read(wanted);
            }
            let chosen = choice.chosen(&from_disk());
            chosen.map(|it| it.to_string().into_bytes()).map_err(io::Error::other)
        });
        let client = connect_through(&first, read, options).await?;
        Ok(ChosenCluster { client, context, server })
    }

    /// Returns a kubeconfig with the chosen context alone, whose paths are absolute.
    pub fn kubeconfig(&self) -> Result<String, ChoiceError> {
        Ok(self.chosen(&from_disk())?.to_string())
    }

    /// Merges the kubeconfigs and returns the chosen context with its cluster and user, and nothing else.
    fn chosen(&self, read: &ReadFile) -> Result<Value, ChoiceError> {
        let merged = self.merged(read)?;
        let known = |list: &str| -> Vec<String> {
            let entries = entries(&merged, list).iter();
            entries.filter_map(|entry| Some(entry.get("name")?.as_str()?.to_owned())).collect()
        };
        let find = |list: &str, kind: &'static str, name: &str| {
            let found = entries(&merged, list).iter().find(|it| is_named(it, name)).cloned();
            found.ok_or_else(|| ChoiceError::Unknown {
                kind,
                name: name.to_owned(),
                known: known(list),
            })
        };
        let current = merged.get("current-context").and_then(Value::as_str);
        let context = self.context.as_deref().or(current).filter(|name| !name.is_empty());
        let context = match context {
            Some(name) => find("contexts", "context", name)?,
            None => return Err(ChoiceError::NoContext { known: known("contexts") }),
        };
        let member = |name: &str| {
            let value = context.pointer(&format!("/context/{name}")).and_then(Value::as_str);
            value.filter(|value| !value.is_empty())
        };
        let cluster = self.cluster.as_deref().or(member("cluster")).unwrap_or_default();
        let cluster = find("clusters", "cluster", cluster)?;
        let user = match member("user") {
            Some(name) => find("users", "user", name)?,
            None => json!({"name": "", "user": {}}),
        };
        let name = context.get("name").cloned().unwrap_or_default();
        let mut inner = Map::new();
        inner.extend([
            ("cluster".to_owned(), cluster.get("name").cloned().unwrap_or_default()),
            ("user".to_owned(), user.get("name").cloned().unwrap_or_default()),
        ]);
        inner.extend(member("namespace").map(|it| ("namespace".to_owned(), json!(it))));
        Ok(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "contexts": [{"name": name, "context": inner}],
            "clusters": [cluster], "users": [user],
        }))
    }

    fn merged(&self, read: &ReadFile) -> Result<Value, ChoiceError> {
        let mut merged = json!({"clusters": [], "contexts": [], "users": []});
        let mut missing = None;
        let mut found = false;
        for path in &self.files {
            match read(&path.to_string_lossy()) {
                Ok(bytes) => {
                    merge(&mut merged, parse(path, &bytes)?);
                    found = true;
                }
                Err(source) if source.kind() == io::ErrorKind::NotFound => {
                    let path = path.clone();
                    missing.get_or_insert(ChoiceError::Read { path, source });
                }
                Err(source) => return Err(ChoiceError::Read { path: path.clone(), source }),
            }
        }
        match missing {
            Some(error) if !found => Err(error),
            Some(_) | None => Ok(merged),
        }
    }
}

/// Returns a client for the cluster whose pod this process is.
pub async fn connect_in_pod(options: &Options) -> Result<ChosenCluster, ChoiceError> {
    let client = connect_as_pod(None, options).await?;
    let config =
        kube::Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source)))?;
    Ok(ChosenCluster { client, context: String::new(), server: config.cluster_url.to_string() })
}

/// Parses a kubeconfig and resolves its paths against its directory.
fn parse(path: &Path, bytes: &[u8]) -> Result<Value, ChoiceError> {
    let invalid = |source: kube::config::KubeconfigError| ChoiceError::Parse {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let text = String::from_utf8_lossy(bytes);
    let file = Kubeconfig::from_yaml(&text).map_err(invalid)?;
    let mut value = serde_json::to_value(&file).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let lists = [
        ("clusters", "cluster", &["certificate-authority"][..]),
        ("users", "user", &["client-certificate", "client-key", "tokenFile"]),
    ];
    for (list, member, files) in lists {
        for entry in value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for name in files {
                let file = entry.get_mut(member).and_then(|it| it.get_mut(*name));
                let Some(Value::String(file)) = file else { continue };
                if !file.is_empty() {
                    *file = absolute(&folder.join(&*file)).to_string_lossy().into_owned();
                }
            }
        }
    }
    Ok(value)
}

/// Returns the path from the root, so that no reader resolves it a second time.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Adds the entries that `merged` does not have.
fn merge(merged: &mut Value, file: Value) {
    let Value::Object(file) = file else { return };
    for (member, value) in file {
        let Value::Array(new) = value else {
            let is_set = merged.get(&member).is_some_and(|it| !it.is_null() && it != "");
            if let Some(merged) = merged.as_object_mut().filter(|_| !is_set) {
                merged.insert(member, value);
            }
            continue;
        };
        let Some(list) = merged.get_mut(&member).and_then(Value::as_array_mut) else { continue };
        for entry in new {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            if !list.iter().any(|it| is_named(it, name)) {
                list.push(entry);
            }
        }
    }
}

fn entries<'v>(merged: &'v Value, list: &str) -> &'v [Value] {
    merged.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_named(entry: &Value, name: &str) -> bool {
    entry.get("name").and_then(Value::as_str) == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "current-context: a\n\
        contexts: [{name: a, context: {cluster: a, user: a, namespace: shop}}]\n\
        clusters: [{name: a, cluster: {server: 'https://a'}}]\n\
        users: [{name: a, user: {client-certificate: pki/a.crt, client-key: /pki/a.key}}]\n";
    const SECOND: &str = "current-context: b\n\
        contexts: [{name: b, context: {cluster: b, user: b}}, {name: a, context: {cluster: b}}]\n\
        clusters: [{name: b, cluster: {server: 'https://b'}}]\n\
        users: [{name: b, user: {token: x}}]\n";

    fn read() -> ReadFile {
        Arc::new(|path: &str| match path {
            "/one/config" => Ok(FIRST.into()),
            "/two/config" => Ok(SECOND.into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        })
    }

    fn choice(files: &[&str], context: Option<&str>, cluster: Option<&str>) -> ClusterChoice {
        let text = |it: Option<&str>| it.map(str::to_owned);
        let files = files.iter().map(PathBuf::from).collect();
        ClusterChoice { files, context: text(context), cluster: text(cluster) }
    }

    #[test]
    fn the_first_file_with_an_entry_wins_and_flags_win_over_files() {
        let both = &["/gone", "/one/config", "/two/config"];
        let rows = [
            (choice(&["/one/config"], None, None), "a", "https://a", "a"),
            (choice(both, None, None), "a", "https://a", "a"),
            (choice(&["/two/config", "/one/config"], None, None), "b", "https://b", "b"),
            (choice(both, Some("b"), None), "b", "https://b", "b"),
            (choice(both, None, Some("b")), "a", "https://b", "a"),
        ];
        for (choice, context, server, user) in rows {
            let chosen = choice.chosen(&read()).unwrap();
            assert_eq!(chosen["current-context"], context, "{choice:?}");
            assert_eq!(chosen["clusters"][0]["cluster"]["server"], server, "{choice:?}");
            assert_eq!(chosen["users"][0]["name"], user, "{choice:?}");
        }
        let chosen = choice(both, None, None).chosen(&read()).unwrap();
        assert_eq!(chosen["contexts"][0]["context"]["namespace"], "shop");
        let user = &chosen["users"][0]["user"];
        assert_eq!(user["client-certificate"], "/one/pki/a.crt");
        assert_eq!(user["client-key"], "/pki/a.key");
    }

    #[test]
    fn a_wrong_choice_names_what_exists() {
        let both = &["/one/config", "/two/config"];
        let error = choice(both, Some("c"), None).chosen(&read()).unwrap_err();
        let ChoiceError::Unknown { kind: "context", name, known } = error else {
            panic!("{error:?}")
        };
        assert_eq!((name.as_str(), known), ("c", vec!["a".to_owned(), "b".to_owned()]));
        let error = choice(both, None, Some("c")).chosen(&read()).unwrap_err();
        assert_eq!(error.to_string(), "unknown cluster \"c\"");
        let error = choice(&["/gone", "/away"], None, None).chosen(&read()).unwrap_err();
        assert_eq!(error.to_string(), "failed to read kubeconfig /gone");
    }

    #[test]
    fn kubeconfig_is_a_list_of_paths() {
        let kubeconfig = Some("/one/config::/two/config".into());
        let environment = Environment { kubeconfig, ..Environment::default() };
        let paths: Vec<PathBuf> = ["/one/config", "/two/config"].map(PathBuf::from).to_vec();
        assert_eq!(environment.kubeconfigs(), paths);
        assert!(Environment::default().kubeconfigs().is_empty());
    }
}
