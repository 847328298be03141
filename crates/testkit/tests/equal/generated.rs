//! Generated sequences: verbs, kinds, patches and selectors in any order. The same ones in each run.

mod kinds;

use std::{
    cell::Cell,
    fmt::{self, Write as _},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use self::kinds::{DEPLOYMENT, KINDS, Kind, Scope};
use crate::{
    notation::{self, Sequence},
    servers::Servers,
};

/// Number of generated sequences.
const CASES: u32 = 150;

/// Number of attempts to shorten a sequence that finds a difference.
const MAX_SHRINKS: u32 = 300;

/// Maximum number of requests of a sequence.
const MAX_LEN: usize = 14;

const METADATA: &[&str] = &[
    "",
    r#", "labels": {"a": "b"}"#,
    r#", "labels": {"a": "c", "d": "e"}"#,
    r#", "annotations": {"x": "y"}"#,
];

/// Metadata of new objects. Finalizers that are added to an object that is being deleted are the
/// difference `one-error`.
const NEW_METADATA: &[&str] = &["", r#", "finalizers": ["x.y/z"], "labels": {"a": "b"}"#];

const SHARED_PATCHES: &[&str] = &[
    r#"{"metadata": {"labels": {"a": "b"}}}"#,
    r#"{"metadata": {"labels": {"a": null, "f": "g"}}}"#,
    r#"{"metadata": {"annotations": {"x": "z"}}}"#,
    r#"{"metadata": {"finalizers": null}}"#,
    "{}",
];

const OPERATIONS: &[&str] = &[
    r#"[{"op": "add", "path": "/metadata/labels", "value": {"h": "i"}}]"#,
    r#"[{"op": "remove", "path": "/metadata/labels"}]"#,
    r#"[{"op": "replace", "path": "/metadata/labels/a", "value": "j"}]"#,
    r#"[{"op": "test", "path": "/metadata/labels/a", "value": "b"}]"#,
    r#"[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]"#,
];

const SELECTORS: &[&str] = &[
    "",
    "?labelSelector=a%3Db",
    "?labelSelector=a%21%3Db",
    "?labelSelector=a+in+%28b,c%29",
    "?labelSelector=%21a",
    "?fieldSelector=metadata.name%3D$NS-a",
    "?limit=1",
];

const DELETES: &[&str] = &[
    "",
    "?dryRun=All",
    "?propagationPolicy=Foreground",
    "?propagationPolicy=Orphan",
    "?propagationPolicy=Background",
    "?gracePeriodSeconds=0",
];

const POLICIES: &[&str] = &[
    "?propagationPolicy=Foreground",
    "?propagationPolicy=Orphan",
    "?propagationPolicy=Background",
];

/// A generated request, which fails print as a line of a sequence.
#[derive(Clone)]
struct Request(String);

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn request() -> impl Strategy<Value = Request> {
    let kind = (0..KINDS.len()).prop_map(|at| &KINDS[at]);
    let name = select(vec!["a", "b"]);
    (kind, name).prop_flat_map(|(kind, name)| of_kind(kind, name)).prop_map(Request)
}

fn of_kind(kind: &'static Kind, name: &'static str) -> BoxedStrategy<String> {
    let Kind { short, scope, version, name: kind_name, contents, patches } = kind;
    let object = |metadata: &'static [&'static str]| {
        (select(metadata), select(*contents)).prop_map(move |(metadata, content)| {
            let content = content.replace("D[", &format!("{DEPLOYMENT}["));
            format!(
                r#"{{"apiVersion": "{version}", "kind": "{kind_name}", "metadata": {{"name": "$NS-{name}"{metadata}}}, {content}}}"#
            )
        })
    };
    let patch = prop_oneof![select(*patches), select(SHARED_PATCHES)];
    let queries = select(vec!["", "", "", "?dryRun=All", "?fieldManager=one", "?fieldManager=two"]);
    let appliers = select(vec!["one", "two", "two&force=true", "kubectl"]);
    let strategic = if scope.is_custom() { "merge" } else { "strategic" };
    // Without a policy kube-apiserver warns about the pods of a Job.
    let deletes = if *scope == Scope::Unreplaced { POLICIES } else { DELETES };
    let replacing = if *scope == Scope::Unreplaced { "create" } else { "put" };
    prop_oneof![
        4 => (prop_oneof![object(METADATA), object(NEW_METADATA)], queries.clone())
            .prop_map(move |(body, query)| format!("create {short}{query} {body}")),
        2 => (object(METADATA), queries.clone())
            .prop_map(move |(body, query)| match replacing {
                "create" => format!("create {short}{query} {body}"),
                _ => format!("put {short}/$NS-{name}{query} {body}"),
            }),
        3 => (object(METADATA), appliers).prop_map(move |(body, manager)| {
            format!("apply {short}/$NS-{name}?fieldManager={manager} {body}")
        }),
        3 => (patch.clone(), queries.clone())
            .prop_map(move |(body, query)| format!("merge {short}/$NS-{name}{query} {body}")),
        2 => patch.prop_map(move |body| format!("{strategic} {short}/$NS-{name} {body}")),
        2 => (select(OPERATIONS), queries)
            .prop_map(move |(body, query)| format!("json {short}/$NS-{name}{query} {body}")),
        // The columns of Deployments differ, which other sequences compare.
        2 => select(vec!["get", if *short == "deploy" { "get" } else { "table" }, "meta"])
            .prop_map(move |verb| format!("{verb} {short}/$NS-{name}")),
        // Objects without a namespace are shared with other sequences.
        1 => select(SELECTORS).prop_map(move |query| {
            if scope.is_namespaced() {
                format!("get {short}{query}")
            } else {
                format!("get {short}/$NS-{name}")
            }
        }),
        2 => select(deletes).prop_map(move |query| format!("delete {short}/$NS-{name}{query}")),
    ]
    .boxed()
}

/// Runs generated sequences on both servers. Returns the shortest one that finds a difference.
pub(crate) fn run(servers: &Servers, runtime: &tokio::runtime::Handle) -> Option<String> {
    let config = Config {
        cases: CASES,
        max_shrink_iters: MAX_SHRINKS,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let number = Cell::new(0);
    let result = runner.run(&vec(request(), 1..=MAX_LEN), |requests| {
        number.set(number.get() + 1);
        let steps = requests.iter().map(|one| notation::step(&one.0)).collect();
        let sequence = Sequence { file: "generated", title: String::new(), steps };
        let namespace = format!("g{}", number.get());
        let findings = runtime.block_on(crate::run(servers, &namespace, &sequence));
        if findings.is_empty() {
            return Ok(());
        }
        Err(TestCaseError::fail(findings.join("\n")))
    });
    let mut text = String::new();
    if let Err(error) = result {
        let _ = write!(text, "{error}");
    }
    Some(text).filter(|text| !text.is_empty())
}
