//! Rules for every request to the API server, whatever a client sends. Shared with the fuzz targets
//! `api_*`.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::{ApiServer, Settings};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Kinds whose objects are made of random bodies.
const KINDS: [&str; 8] = [
    "/api/v1/nodes",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rules.example/v1/things",
];

/// Objects that exist.
const OBJECTS: [&str; 4] = [
    "/api/v1/nodes/x",
    "/api/v1/namespaces/default/configmaps/x",
    "/apis/apps/v1/namespaces/default/deployments/x",
    "/apis/rules.example/v1/things/x",
];

/// Media types of bodies and of patches.
const BODIES: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// An API server with an object of each kind of [`OBJECTS`].
pub(crate) struct Api {
    runtime: tokio::runtime::Runtime,
    api: ApiServer,
}

/// An answer: its code, and its body if that is complete JSON.
type Answer = (u16, Option<Value>);

impl Api {
    /// Starts a server in memory.
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let api = runtime.block_on(ApiServer::in_memory(Settings::default()));
        let out = Self { runtime, api: api.expect("a server in memory starts") };
        let pod = json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "E"}]}]});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
        let meta = json!({"name": "x", "labels": {"a": "b"}});
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
            "resources": ["configmaps"]});
        for (path, body) in [
            (DEFINITIONS, definition(".spec.n")),
            ("/api/v1/nodes", json!({"metadata": meta})),
            (
                "/api/v1/namespaces/default/configmaps",
                json!({"metadata": meta, "data": {"k": "v"}}),
            ),
            (
                "/apis/apps/v1/namespaces/default/deployments",
                json!({"metadata": meta, "spec": {"selector": {"matchLabels": {"a": "b"}},
                    "template": template}}),
            ),
            (
                "/apis/rules.example/v1/things",
                json!({"apiVersion": "rules.example/v1", "kind": "Thing", "metadata": meta,
                    "spec": {"n": 1, "list": [{"name": "a"}, {"name": "b"}]}}),
            ),
            (
                &format!("{POLICIES}/validatingadmissionpolicybindings"),
                json!({"metadata": meta, "spec": {"policyName": "x", "validationActions": ["Deny"]}}),
            ),
            (
                &format!("{POLICIES}/validatingadmissionpolicies"),
                json!({"metadata": meta, "spec": {"matchConstraints": {"resourceRules": [rule]},
                    "validations": [{"expression": "true"}]}}),
            ),
        ] {
            let (code, answer) = out.send("POST", path, BODIES[0], body.to_string().as_bytes());
            assert_eq!(code, 201, "{path}: {answer:?}");
        }
        out
    }

    fn send(&self, method: &str, target: &str, media: &str, body: &[u8]) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::CONTENT_TYPE, media)
            .body(Full::new(Bytes::copy_from_slice(body)));
        self.answer(request.expect("a request of a rule is valid"))
    }

    /// Sends a request. Every refusal explains itself, and no handler panics.
    fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let text = format!("{} {}", request.method(), request.uri());
        let response = self.runtime.block_on(self.api.clone().oneshot(request));
        let response = response.expect("the server answers every request");
        let code = response.status().as_u16();
        // The body of a watch has no end.
        if http_body::Body::size_hint(response.body()).exact().is_none() {
            return (code, None);
        }
        let body = self.runtime.block_on(response.into_body().collect());
        let bytes = body.expect("an answer is complete").to_bytes();
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        if code >= 400 && !bytes.is_empty() {
            let status = value.as_ref().unwrap_or_else(|| panic!("{text}: {code} without Status"));
            assert_eq!(status["kind"], "Status", "{text}");
            assert_eq!(status["code"], code, "{text}");
            let message = status["message"].as_str().unwrap_or_default();
            assert!(!message.contains("panicked"), "{text}: {message}");
        }
        (code, value)
    }

    /// Checks the answer to a request of this method, target, header value and body.
    ///
    /// Texts that no HTTP parser accepts are skipped.
    pub(crate) fn check_request(&self, method: &[u8], target: &[u8], value: &[u8], body: &[u8]) {
        let (Ok(method), Ok(target)) = (Method::from_bytes(method), Uri::try_from(target)) else {
            return;
        };
        // A random write would change what the other rules rely on.
        let is_read = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "CONNECT");
        if !is_read && !target.query().unwrap_or("").contains("dryRun=All") {
            return;
        }
        let Ok(value) = HeaderValue::from_bytes(value) else { return };
        for name in
            [header::ACCEPT, header::CONTENT_TYPE, header::IF_NONE_MATCH, header::USER_AGENT]
        {
            let named: HeaderName = name;
            let request = Request::builder().method(&method).uri(&target).header(named, &value);
            let request = request.body(Full::new(Bytes::copy_from_slice(body)));
            self.answer(request.expect("parts of a request"));
        }
    }

    /// Checks the answers to a new object of these bytes. An accepted object is complete: as a new
    /// object it is accepted unchanged.
    pub(crate) fn check_body(&self, body: &[u8]) {
        for kind in KINDS {
            for media in BODIES {
                let target = format!("{kind}?dryRun=All");
                let (code, answer) = self.send("POST", &target, media, body);
                let (201, Some(made)) = (code, answer) else { continue };
                let again = plain(made);
                let text = again.to_string();
                let (code, answer) = self.send("POST", &target, BODIES[0], text.as_bytes());
                assert_eq!(code, 201, "{kind}: {text} {answer:?}");
                assert_eq!(answer.map(plain), Some(again), "{kind}: an object changes by defaults");
            }
        }
    }

    /// Checks the answers to a patch of these bytes. A patched object keeps its identity.
    pub(crate) fn check_patch(&self, patch: &[u8]) {
        for object in OBJECTS {
            let (_, before) = self.send("GET", object, "", b"");
            let before = before.expect("an object of the rules");
            for media in PATCHES {
                let target = format!("{object}?dryRun=All&fieldManager=rules&force=true");
                let target = match media {
                    "application/apply-patch+yaml" => target,
                    _ => target.replace("&force=true", ""),
                };
                let (200, Some(after)) = self.send("PATCH", &target, media, patch) else {
                    continue;
                };
                for field in ["/kind", "/apiVersion", "/metadata/name", "/metadata/uid"] {
                    assert_eq!(after.pointer(field), before.pointer(field), "{object} {media}");
                }
            }
        }
    }

    /// Checks the lists that a selector of labels and of fields gives.
    pub(crate) fn check_selector(&self, text: &str) {
        let every_byte = percent_encoding::NON_ALPHANUMERIC;
        let selector = percent_encoding::utf8_percent_encode(text, every_byte).to_string();
        for object in OBJECTS {
            let collection = object.trim_end_matches("/x");
            for option in ["labelSelector", "fieldSelector"] {
                let target = format!("{collection}?{option}={selector}");
                if target.len() > 60_000 {
                    continue;
                }
                let (code, list) = self.send("GET", &target, "", b"");
                assert!(matches!(code, 200 | 400), "{option} {text:?}: {code}");
                let items = list.as_ref().and_then(|list| list["items"].as_array());
                if code == 200 {
                    let items = items.expect("a list has items");
                    assert!(items.len() <= 1, "{option} {text:?}: {} items", items.len());
                }
            }
        }
    }

    /// Checks a CEL expression: of a policy, and of the rules of a custom kind.
    pub(crate) fn check_expression(&self, text: &str) {
        let policy = format!("{POLICIES}/validatingadmissionpolicies/x");
        let patch = json!({"spec": {"validations": [{"expression": text}]}}).to_string();
        let (code, _) = self.send("PATCH", &policy, PATCHES[1], patch.as_bytes());
        assert!(code < 500, "{text:?}: {code}");
        if code == 200 {
            let target = "/api/v1/namespaces/default/configmaps?dryRun=All";
            let body = json!({"metadata": {"name": "y"}, "data": {"k": "v"}}).to_string();
            let (code, _) = self.send("POST", target, BODIES[0], body.as_bytes());
            assert!(code < 500, "{text:?}: {code}");
            let patch = json!({"spec": {"validations": [{"expression": "true"}]}}).to_string();
            self.send("PATCH", &policy, PATCHES[1], patch.as_bytes());
        }
    }

    /// Checks the path of a column of a custom kind: its table has a cell for each column.
    pub(crate) fn check_column(&self, path: &str) {
        let target = format!("{DEFINITIONS}/things.rules.example");
        let change = json!({"spec": definition(path)["spec"]}).to_string();
        let (code, _) = self.send("PATCH", &target, PATCHES[1], change.as_bytes());
        assert!(code < 500, "{path:?}: {code}");
        let request = Request::get("/apis/rules.example/v1/things")
            .header(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Full::default());
        let (code, table) = self.answer(request.expect("a request of a rule is valid"));
        let table = table.expect("a table");
        assert_eq!(code, 200, "{path:?}");
        let columns = table["columnDefinitions"].as_array().map(Vec::len);
        assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), columns, "{path:?}");
    }
}

/// Returns the definition of a kind with a column.
fn definition(path: &str) -> Value {
    let free = json!({"type": "object", "properties": {"spec":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({"metadata": {"name": "things.rules.example"}, "spec": {"group": "rules.example",
        "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": free},
            "additionalPrinterColumns": [{"name": "C", "type": "string", "jsonPath": path}]}]}})
}

/// Returns an object without what the server writes anew in each object.
fn plain(mut object: Value) -> Value {
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"]
        {
            meta.remove(field);
        }
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    object
}
