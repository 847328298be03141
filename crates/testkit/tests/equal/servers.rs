//! The two servers, and the requests to them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use mco_apiserver::{ApiServer, Authorization, Controllers, PodDeletion, Settings};
use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, KubeApiServer},
};
use serde_json::{Value, json};

use crate::{
    answer::{Answer, HEADERS, masked},
    notation::{Awaited, Step},
};

/// Clients of both servers.
pub(crate) struct Servers {
    pub(crate) embedded: Client,
    pub(crate) real: Client,
}

/// The name that the client of kube-apiserver gives itself.
const AGENT: &str = "mco/0";

/// Definitions of the custom kinds that sequences use.
const DEFINITIONS: [&str; 4] = ["machineconfigs", "machineconfigpools", "kubeletconfigs", "things"];

/// Returns the definition of a custom kind with namespaces.
fn things() -> Value {
    let part = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "value": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 4},
        "names": {"type": "array", "items": {"type": "string"}},
        "parts": {"type": "array", "items": part, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"]}}});
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.equal.example.com"},
        "spec": {"group": "equal.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]}})
}

impl Servers {
    /// Starts the embedded server and installs the custom kinds on both.
    pub(crate) async fn start(real: &KubeApiServer) -> anyhow::Result<Self> {
        let settings = Settings {
            pods: PodDeletion::ByKubelet,
            controllers: Controllers::Off,
            authorization: Authorization::Roles,
            ..Settings::default()
        };
        let embedded = Client::new(ApiServer::in_memory(settings).await?, "default");
        let real = mco_cluster::client::connect(Some(real.kubeconfig())).await?;
        let servers = Self { embedded, real };
        for client in [&servers.embedded, &servers.real] {
            define(client).await?;
        }
        Ok(servers)
    }
}

/// Creates the definitions and waits until their kinds are served.
async fn define(client: &Client) -> anyhow::Result<()> {
    let ours = mco_api::crds().into_iter().map(serde_json::to_value);
    for crd in ours.chain([Ok(things())]) {
        let crd = crd?;
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (plural, group) = name.split_once('.').unwrap_or_default();
        if !DEFINITIONS.contains(&plural) {
            continue;
        }
        let body = serde_json::to_vec(&crd)?;
        let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = Request::post(uri).header(header::CONTENT_TYPE, "application/json");
        let made = client.send(request.body(Body::from(body))?).await?;
        ensure!(made.status().as_u16() == 201, "{name}: {}", made.status());
        let uri = format!("/apis/{group}/v1/{plural}");
        let served = async {
            while !client.send(Request::get(&uri).body(Body::empty())?).await?.status().is_success()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        let in_time = tokio::time::timeout(PATIENCE, served).await;
        in_time.with_context(|| format!("{plural} are not served"))??;
    }
    Ok(())
}

/// Code of an answer that is not the awaited one.
pub(crate) const ABSENT: u16 = 0;

/// Maximum time until policies, roles and definitions take effect.
const AWAITED: Duration = Duration::from_mins(1);

/// Number of times that a request is sent again. Each waits three seconds for the cache of the server.
const RETRIES: usize = 20;

/// One of the servers, as a sequence sees it.
pub(crate) struct Server<'a> {
    client: &'a Client,
    variables: BTreeMap<&'static str, String>,
}

impl<'a> Server<'a> {
    /// Creates the namespace of a sequence, with its default ServiceAccount, which pods need.
    pub(crate) async fn new(client: &'a Client, namespace: &str) -> Self {
        let account =
            json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        for (uri, body) in [
            ("/api/v1/namespaces", json!({"metadata": {"name": namespace}})),
            (accounts.as_str(), account),
        ] {
            let request = Request::post(uri)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::USER_AGENT, AGENT);
            let request = request.body(Body::from(body.to_string().into_bytes()));
            let made = client.send(request.expect("a request")).await.expect("an answer");
            assert_eq!(made.status().as_u16(), 201, "{uri}");
        }
        let megabyte = "x".repeat(1024 * 1024);
        let variables = BTreeMap::from([
            ("$NS", namespace.to_owned()),
            ("$600K", "x".repeat(600 * 1024)),
            ("$1M", megabyte),
        ]);
        Self { client, variables }
    }

    /// Sends one request, again while the server says that its cache is behind what it has stored.
    pub(crate) async fn send(&mut self, step: &Step) -> Answer {
        if let Some(awaited) = step.awaited {
            return self.send_until(step, awaited).await;
        }
        for _ in 0..RETRIES {
            let answer = self.send_once(step).await;
            if !answer.body.to_string().contains("ResourceVersionTooLarge") || self.is_ahead(step) {
                return answer;
            }
            self.write_unrelated().await;
        }
        self.send_once(step).await
    }

    /// Sends a request until the awaited answer comes, or for a limited time.
    async fn send_until(&mut self, step: &Step, awaited: Awaited) -> Answer {
        let deadline = tokio::time::Instant::now() + AWAITED;
        loop {
            let answer = self.send_once(step).await;
            let has_come = match awaited {
                Awaited::Success => answer.code < 400,
                Awaited::Refusal => answer.code >= 400,
                Awaited::Reason => answer.body.pointer("/status/reason").is_some(),
            };
            if has_come {
                return answer;
            }
            if tokio::time::Instant::now() > deadline {
                return Answer { code: ABSENT, ..answer };
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Creates a ConfigMap outside the sequences. With the etcd of Debian the cache of kube-apiserver
    /// learns of a new version only by a change of its own kind.
    async fn write_unrelated(&self) {
        let body = json!({"metadata": {"generateName": "unrelated-"}}).to_string().into_bytes();
        let request = Request::post("/api/v1/namespaces/default/configmaps")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body));
        let made = self.client.send(request.expect("a request")).await.expect("an answer");
        assert_eq!(made.status().as_u16(), 201, "an unrelated ConfigMap is created");
    }

    /// Returns true if the request itself asks for a version that does not exist yet.
    fn is_ahead(&self, step: &Step) -> bool {
        let target = self.filled(&step.target);
        let asked = target.split(['?', '&']).find_map(|part| part.strip_prefix("resourceVersion="));
        let known = self.variables.get("$rv").map(String::as_str);
        asked.is_some_and(|asked| Some(asked) != known)
    }

    async fn send_once(&mut self, step: &Step) -> Answer {
        let target = self.filled(&step.target);
        let mut request = Request::builder()
            .method(step.method.clone())
            .uri(target)
            .header(header::ACCEPT, &step.accept)
            .header(header::USER_AGENT, AGENT);
        if !step.media.is_empty() {
            request = request.header(header::CONTENT_TYPE, &step.media);
        }
        if let Some(user) = &step.user {
            let user = self.filled(user);
            if user.starts_with("system:node:") {
                request = request.header("impersonate-group", "system:nodes");
            }
            request = request.header("impersonate-user", user);
        }
        let body = self.filled(&step.body).into_bytes();
        let request =
            request.body(Body::from(body)).unwrap_or_else(|e| panic!("{}: {e}", step.text));
        let response = self.client.send(request).await;
        let response = response.unwrap_or_else(|error| panic!("{}: {error}", step.text));
        let code = response.status().as_u16();
        let headers = HEADERS.iter().filter_map(|name| {
            let values = response.headers().get_all(*name);
            let values: Vec<String> = values
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect();
            (!values.is_empty()).then(|| ((*name).to_owned(), values))
        });
        let headers = headers.collect();
        let body = match step.events.filter(|_| code == 200) {
            Some(count) => events(response, count).await,
            None => whole(response).await,
        };
        self.remember(&body);
        Answer { code, headers, body: masked(&body) }
    }

    fn filled(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, value) in &self.variables {
            out = out.replace(name, value);
        }
        out
    }

    fn remember(&mut self, body: &Value) {
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
        if let Some(version) = text("/metadata/resourceVersion") {
            let before = self.variables.insert("$rv", version.clone());
            if let Some(before) = before.filter(|before| *before != version) {
                self.variables.insert("$old", before);
            }
        }
        for (name, path) in [("$uid", "/metadata/uid"), ("$continue", "/metadata/continue")] {
            if let Some(value) = text(path).filter(|value| !value.is_empty()) {
                self.variables.insert(name, value);
            }
        }
    }
}

/// Reads a whole body: JSON, or text.
async fn whole(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.expect("a complete answer").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Reads `count` events of a watch, or all of them if the watch ends before.
async fn events(response: Response<Body>, count: usize) -> Value {
    let mut body = response.into_body();
    let (mut text, mut events) = (String::new(), Vec::new());
    while events.len() < count {
        let Some(Ok(frame)) = body.frame().await else { break };
        let Ok(data) = frame.into_data() else { continue };
        text.push_str(&String::from_utf8_lossy(&data));
        while let Some((line, rest)) = text.split_once('\n') {
            events.push(serde_json::from_str(line).unwrap_or_else(|_| json!(line)));
            text = rest.to_owned();
        }
    }
    // A frame may have several.
    events.truncate(count);
    Value::Array(events)
}
