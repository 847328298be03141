//! A client that reloads its kubeconfig: a kubelet replaces its certificate long before the old one
//! expires, and a process that uses the kubelet's credentials must follow.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use super::ConnectError;

/// A function that reads a file by its path on the machine of the kubeconfig.
pub type ReadFile = Arc<dyn Fn(&str) -> io::Result<Vec<u8>> + Send + Sync>;

/// Minimum time between two checks of the files. Certificates are replaced days before they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Members of a kubeconfig that name files, and the members that hold the same data inline.
const CLUSTER_FILES: [(&str, &str); 1] = [("certificate-authority", "certificate-authority-data")];
const USER_FILES: [(&str, &str); 3] = [
    ("client-certificate", "client-certificate-data"),
    ("client-key", "client-key-data"),
    ("tokenFile", "token"),
];

/// The location of a kubeconfig.
pub(super) struct Source {
    path: String,
    read: ReadFile,
}

impl Source {
    pub(super) fn new(path: &str, read: ReadFile) -> Self {
        Self { path: path.to_owned(), read }
    }

    /// Loads the kubeconfig and inlines the files that it names.
    pub(super) fn load(&self) -> Result<Value, ConnectError> {
        let bytes = self.read(&self.path)?;
        let text = String::from_utf8_lossy(&bytes);
        let file = Kubeconfig::from_yaml(&text).map_err(|error| self.unusable(error))?;
        let mut value = serde_json::to_value(&file).map_err(|error| self.broken(error))?;
        let lists = [("clusters", "cluster", &CLUSTER_FILES[..]), ("users", "user", &USER_FILES)];
        for (list, member, files) in lists {
            for entry in value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(entry) = entry.get_mut(member) {
                    self.inline(entry, files)?;
                }
            }
        }
        Ok(value)
    }

    fn inline(&self, entry: &mut Value, files: &[(&str, &str)]) -> Result<(), ConnectError> {
        let Some(entry) = entry.as_object_mut() else { return Ok(()) };
        for (named, held) in files {
            let Some(Value::String(path)) = entry.remove(*named) else { continue };
            // Inline data takes precedence.
            if entry.get(*held).is_some_and(|value| !value.is_null()) || path.is_empty() {
                continue;
            }
            let bytes = self.read(&self.absolute(&path))?;
            let text = match *held {
                "token" => String::from_utf8_lossy(&bytes).trim().to_owned(),
                _ => STANDARD.encode(bytes),
            };
            entry.insert((*held).to_owned(), Value::String(text));
        }
        Ok(())
    }

    /// Resolves a path against the directory of the kubeconfig.
    fn absolute(&self, path: &str) -> String {
        let folder = Path::new(&self.path).parent().unwrap_or(Path::new("/"));
        folder.join(path).to_string_lossy().into_owned()
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ConnectError> {
        (self.read)(path)
            .map_err(|error| self.unusable(KubeconfigError::ReadConfig(error, path.into())))
    }

    /// Returns the client configuration of a loaded kubeconfig.
    pub(super) async fn config(&self, loaded: Value) -> Result<Config, ConnectError> {
        let file: Kubeconfig =
            serde_json::from_value(loaded).map_err(|error| self.broken(error))?;
        let made = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        made.map_err(|error| self.unusable(error))
    }

    fn unusable(&self, source: KubeconfigError) -> ConnectError {
        let path = self.path.clone().into();
        ConnectError::Kubeconfig { path, source: Box::new(source) }
    }

    fn broken(&self, error: serde_json::Error) -> ConnectError {
        self.unusable(KubeconfigError::ReadConfig(error.into(), self.path.clone().into()))
    }
}

/// A client that reloads its kubeconfig. Clones share it.
#[derive(Clone)]
pub(super) struct ReloadingClient {
    source: Arc<Source>,
    every: Duration,
    connect: Duration,
    state: Arc<Mutex<State>>,
}

struct State {
    loaded: Value,
    looked: Instant,
    client: Client,
}

impl ReloadingClient {
    pub(super) async fn new(
        source: Source,
        connect: Duration,
    ) -> Result<(Self, String), ConnectError> {
        Self::with_interval(source, CHECK_INTERVAL, connect).await
    }

    /// Creates the client and returns it with the namespace of its kubeconfig.
    async fn with_interval(
        source: Source,
        every: Duration,
        connect: Duration,
    ) -> Result<(Self, String), ConnectError> {
        let loaded = source.load()?;
        let config = source.config(loaded.clone()).await?;
        let namespace = config.default_namespace.clone();
        let client = super::plain(config, connect)?;
        let state = Arc::new(Mutex::new(State { loaded, looked: Instant::now(), client }));
        Ok((Self { source: Arc::new(source), every, connect, state }, namespace))
    }

    /// Sends a request with the current credentials.
    pub(super) async fn send(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        self.reload().await;
        let client = self.state.lock().unwrap_or_else(PoisonError::into_inner).client.clone();
        client.send(request).await
    }

    async fn reload(&self) {
        let before = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.looked.elapsed() < self.every {
                return;
            }
            state.looked = Instant::now();
            state.loaded.clone()
        };
        let path = &self.source.path;
        let renewed = async {
            let loaded = self.source.load()?;
            if loaded == before {
                return Ok(None);
            }
            let client = super::plain(self.source.config(loaded.clone()).await?, self.connect)?;
            Ok::<_, ConnectError>(Some((loaded, client)))
        };
        match renewed.await {
            Ok(None) => {}
            Ok(Some((loaded, client))) => {
                info!("Reloaded credentials from {path}");
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                (state.loaded, state.client) = (loaded, client);
            }
            // Another process may be replacing the file right now, and the old credentials may
            // still be valid.
            Err(error) => {
                let error = crate::report::chain(&error);
                warn!("Invalid {path}; keeping the previous credentials: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

    fn reader(files: &Files) -> ReadFile {
        let files = Arc::clone(files);
        Arc::new(move |path: &str| {
            let files = files.lock().unwrap();
            files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn put(files: &Files, path: &str, text: &str) {
        files.lock().unwrap().insert(path.to_owned(), text.as_bytes().to_vec());
    }

    /// Serves one request and returns its bearer token.
    async fn served_token(listener: &TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 4096];
        let length = stream.read(&mut bytes).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let text = String::from_utf8_lossy(&bytes[..length]).to_lowercase();
        let line = text.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
        line.unwrap_or_default().to_owned()
    }

    // covers: C06
    #[tokio::test]
    async fn replaced_credentials_are_reloaded() {
        crate::client::use_ring();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let files = Files::default();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
             users: [{{name: u, user: {{tokenFile: pki/token}}}}]\n"
        );
        put(&files, "/var/lib/kubelet/kubeconfig", &kubeconfig);
        put(&files, "/var/lib/kubelet/pki/token", "first\n");
        let source = Source::new("/var/lib/kubelet/kubeconfig", reader(&files));
        let (renewing, _) =
            ReloadingClient::with_interval(source, Duration::ZERO, LIMIT).await.unwrap();
        let ask = || {
            let request = Request::get("/version").body(Body::empty()).unwrap();
            renewing.clone().send(request)
        };
        for (token, want) in [(None, "first"), (Some("second"), "second")] {
            if let Some(token) = token {
                put(&files, "/var/lib/kubelet/pki/token", token);
            }
            let (answer, user) = tokio::join!(ask(), served_token(&listener));
            assert!(answer.unwrap().status().is_success());
            assert_eq!(user, want);
        }
        // An invalid file is not loaded.
        put(&files, "/var/lib/kubelet/kubeconfig", "clusters: [");
        let (_, user) = tokio::join!(ask(), served_token(&listener));
        assert_eq!(user, "second");
    }

    #[test]
    fn files_are_read_from_the_machine_and_inline_data_takes_precedence() {
        let files = Files::default();
        put(
            &files,
            "/etc/kubernetes/kubelet.conf",
            "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: /etc/ca}}]\n\
             users:\n- {name: u, user: {client-certificate: now.pem, client-key: /m/key}}\n\
             - {name: v, user: {tokenFile: /gone, token: held}}\n",
        );
        put(&files, "/etc/ca", "A");
        put(&files, "/etc/kubernetes/now.pem", "B");
        let source = Source::new("/etc/kubernetes/kubelet.conf", reader(&files));
        let error = source.load().unwrap_err();
        assert!(crate::report::chain(&error).contains("/m/key"), "{error:?}");
        put(&files, "/m/key", "C");
        let loaded = source.load().unwrap();
        assert_eq!(loaded["clusters"][0]["cluster"]["certificate-authority-data"], "QQ==");
        assert_eq!(loaded["users"][0]["user"]["client-certificate-data"], "Qg==");
        assert_eq!(loaded["users"][0]["user"]["client-key-data"], "Qw==");
        assert_eq!(loaded["users"][1]["user"]["token"], "held");
    }
}
