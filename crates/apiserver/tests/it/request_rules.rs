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

/// Inputs from which the fuzz targets start, because random bytes rarely have this structure.
pub(crate) const REQUESTS: &[&[u8]] = &[
    b"GET\n/api/v1/namespaces/default/configmaps?limit=1&labelSelector=a%3Db\n*/*\n",
    b"GET\n/apis/rules.example/v1/things\napplication/json;as=Table;v=v1;g=meta.k8s.io\n",
    b"POST\n/api/v1/nodes?dryRun=All\napplication/json\n{\"metadata\": {\"name\": \"a\"}}",
    b"PUT\n/api/v1/nodes/x?dryRun=All\napplication/json\n{\"metadata\": {\"name\": \"x\"}}",
    b"DELETE\n/api/v1/nodes?dryRun=All\nx\n{\"propagationPolicy\": \"Orphan\"}",
    b"GET\n/openapi/v3/apis/apps/v1?hash=0\n*\n",
];
pub(crate) const NEW: &[&[u8]] = &[
    b"{\"metadata\": {\"name\": \"a\", \"labels\": {\"a\": \"b\"}}, \"data\": {\"k\": \"v\"}}",
    b"metadata:\n  name: a\n  labels: &l {a: b}\n  annotations: *l\n",
    b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12\x0d\n\x03\n\x01a\x12\x06\n\x01k\x12\x01v",
    br#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#,
    br#"{"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}"#,
    br#"{"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}"#,
    br#"{"metadata": {"name": "a"}, "spec": {"template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}"#,
    br#"{"metadata": {"name": "as.b.io"}, "spec": {"group": "b.io", "scope": "Cluster",
        "names": {"plural": "as", "kind": "A"}, "versions": [{"name": "v1", "served": true,
        "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec":
        {"type": "object", "properties": {"n": {"type": "integer", "default": 1}},
        "x-kubernetes-validations": [{"rule": "self.n > 0"}]}}}}}]}}"#,
    br#"{"apiVersion": "rules.example/v1", "kind": "Thing", "metadata": {"name": "a"}}"#,
];
pub(crate) const CHANGES: &[&[u8]] = &[
    br#"[{"op": "copy", "from": "/metadata", "path": "/metadata/labels"}]"#,
    br#"[{"op": "test", "path": "/metadata/name", "value": "x"}, {"op": "remove", "path":
        "/metadata/labels"}, {"op": "move", "from": "/data/k", "path": "/data/l"}]"#,
    br#"{"metadata": {"labels": {"a": null}, "finalizers": ["a.b/c"]}, "data": {"k": "w"}}"#,
    br#"{"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
        "containers": [{"name": "d", "image": "i"}, {"name": "c", "$patch": "delete"}]}}}}"#,
    br#"{"metadata": {"$retainKeys": ["name"], "$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}"#,
    b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {k: w}\n",
    br#"{"apiVersion": "rules.example/v1", "kind": "Thing", "spec": {"list": [{"name": "b"}]}}"#,
];
pub(crate) const SELECTORS: &[&[u8]] =
    &[b"a=b,c!=d,!e", b"a in (b,c),d notin (e),f", b"metadata.name=x", b"metadata.name!=x"];
pub(crate) const EXPRESSIONS: &[&[u8]] = &[
    b"object.data.all(k, size(object.data[k]) > 1) && has(object.metadata.labels)",
    b"[1, 2].map(x, x * 2).exists(x, x in {1: 'a', 4: r'b'}) ? 'a'.matches('^a') : false",
    b"self.list.all(a, self.list.exists_one(b, a.name == b.name)) // 'c'",
    b"object.?data[?'k'].orValue('') == \"\"\"a\"\"\"",
    b"['a', 'b'].join('-').replace('a', 'b').split('-')[0] == \"b\"",
];
pub(crate) const COLUMNS: &[&[u8]] =
    &[b".spec.list[?(@.name==\"b\")].name", b".spec.list[0:2].name", b".metadata.labels['a']"];

/// Returns the size of a seed after copying it to `data`, for one of many numbers of a mutation.
pub(crate) fn seed(seeds: &[&[u8]], data: &mut [u8], number: u32) -> Option<usize> {
    const ONE_IN: usize = 64;
    let number = usize::try_from(number).ok().filter(|number| number % ONE_IN == 0)?;
    let seed = seeds.get(number / ONE_IN % seeds.len())?;
    data.get_mut(..seed.len())?.copy_from_slice(seed);
    Some(seed.len())
}

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
        let is_page = code == 404 && &*bytes == b"404 page not found\n";
        if code >= 400 && !bytes.is_empty() && !is_page {
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
        let mut options = target.query().unwrap_or("").split('&');
        if !is_read && !options.any(|option| option == "dryRun=All") {
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
    /// object it is accepted unchanged. Returns the number of accepted objects.
    pub(crate) fn check_body(&self, body: &[u8]) -> usize {
        let mut accepted = 0;
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
                accepted += 1;
            }
        }
        accepted
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
        let target = format!("{DEFINITIONS}/things.rules.example");
        let change = |rules: &Value| {
            let mut definition = definition(".spec.n");
            let version = &mut definition["spec"]["versions"][0];
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
                rules.clone();
            let change = json!({"spec": definition["spec"]}).to_string();
            self.send("PATCH", &target, PATCHES[1], change.as_bytes()).0
        };
        let code = change(&json!([{"rule": text, "messageExpression": text}]));
        assert!(code < 500, "{text:?}: {code}");
        if code == 200 {
            let body = json!({"apiVersion": "rules.example/v1", "kind": "Thing",
                "metadata": {"name": "y"}, "spec": {"n": 1, "list": [{"name": "a"}]}});
            let target = "/apis/rules.example/v1/things?dryRun=All";
            let (code, _) = self.send("POST", target, BODIES[0], body.to_string().as_bytes());
            assert!(code < 500, "{text:?}: {code}");
            change(&json!([]));
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
    // A Job has its first UID in the selector and the labels of its pods.
    if object["kind"] == "Job" && object["spec"]["manualSelector"] != true {
        let is_own = |key: &str| key.ends_with("controller-uid");
        for path in
            ["/metadata/labels", "/spec/template/metadata/labels", "/spec/selector/matchLabels"]
        {
            if let Some(labels) = object.pointer_mut(path).and_then(Value::as_object_mut) {
                labels.retain(|key, _| !is_own(key));
            }
        }
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    object
}
