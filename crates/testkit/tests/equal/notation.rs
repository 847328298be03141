//! The notation of sequences.
//!
//! `== TITLE` starts a sequence. Each request is a line `VERB TARGET BODY`; lines that start with a
//! space continue it. A target is a kind in its short form, with a name, a subresource and a query,
//! or a path: `cm/a?dryRun=All`, `/api/v1/nodes`. `$NS` is the namespace of the sequence; `$rv`,
//! `$uid` and `$continue` are taken from the latest answer that has them, `$old` is the `$rv` before.
//! `$1M` and `$600K` stand for that much text. `@USER` before a verb acts for that user. `accept=MEDIA` is a
//! `get` and `send=MEDIA` a `create` with this media type. `served` is a `get` that is repeated until
//! it succeeds, `refused` is a `create` that is repeated until it is
//! refused, and `explained` one that is repeated until its answer has a reason. `!NAME` before a request
//! says that the answers differ by the difference of that name, `!NAME=200/400` that their codes differ
//! too: ours, and kube-apiserver's.

use http::Method;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const META: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const METAS: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// A sequence of requests.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) file: &'static str,
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Step {
    /// The line of the file.
    pub(crate) text: String,
    pub(crate) difference: Option<Difference>,
    pub(crate) method: Method,
    /// Path and query, with variables.
    pub(crate) target: String,
    pub(crate) media: String,
    pub(crate) accept: String,
    /// The user for whom the request is made, if it is not the administrator.
    pub(crate) user: Option<String>,
    pub(crate) body: String,
    /// Number of events to read, for a watch.
    pub(crate) events: Option<usize>,
    /// The answer for which the request is repeated: policies and roles take effect with a delay.
    pub(crate) awaited: Option<Awaited>,
}

/// An answer for which a request is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Success,
    Refusal,
    /// The reason of an access review.
    Reason,
}

/// A difference that a request is marked with.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) name: String,
    /// The codes of both servers, if they differ: ours, and kube-apiserver's.
    pub(crate) codes: Option<(u16, u16)>,
}

impl Difference {
    fn read(mark: &str) -> Self {
        let Some((name, codes)) = mark.split_once('=') else {
            return Self { name: mark.to_owned(), codes: None };
        };
        let (ours, theirs) = codes.split_once('/').expect("two codes");
        let code = |text: &str| text.parse().expect("a code");
        Self { name: name.to_owned(), codes: Some((code(ours), code(theirs))) }
    }
}

/// The short forms of kinds: API group and version, resource, and scope.
const KINDS: &[(&str, &str, bool)] = &[
    ("cm", "api/v1 configmaps", true),
    ("secret", "api/v1 secrets", true),
    ("sa", "api/v1 serviceaccounts", true),
    ("pod", "api/v1 pods", true),
    ("event", "api/v1 events", true),
    ("ns", "api/v1 namespaces", false),
    ("node", "api/v1 nodes", false),
    ("svc", "api/v1 services", true),
    ("ep", "api/v1 endpoints", true),
    ("slice", "apis/discovery.k8s.io/v1 endpointslices", true),
    ("rs", "apis/apps/v1 replicasets", true),
    ("job", "apis/batch/v1 jobs", true),
    ("role", "apis/rbac.authorization.k8s.io/v1 roles", true),
    ("rolebinding", "apis/rbac.authorization.k8s.io/v1 rolebindings", true),
    ("clusterrole", "apis/rbac.authorization.k8s.io/v1 clusterroles", false),
    ("clusterrolebinding", "apis/rbac.authorization.k8s.io/v1 clusterrolebindings", false),
    ("lsar", "apis/authorization.k8s.io/v1 localsubjectaccessreviews", true),
    ("vap", "apis/admissionregistration.k8s.io/v1 validatingadmissionpolicies", false),
    ("vapb", "apis/admissionregistration.k8s.io/v1 validatingadmissionpolicybindings", false),
    ("csr", "apis/certificates.k8s.io/v1 certificatesigningrequests", false),
    ("pc", "apis/scheduling.k8s.io/v1 priorityclasses", false),
    ("deploy", "apis/apps/v1 deployments", true),
    ("ds", "apis/apps/v1 daemonsets", true),
    ("pdb", "apis/policy/v1 poddisruptionbudgets", true),
    ("lease", "apis/coordination.k8s.io/v1 leases", true),
    ("crd", "apis/apiextensions.k8s.io/v1 customresourcedefinitions", false),
    ("mc", "apis/machineconfiguration.openshift.io/v1 machineconfigs", false),
    ("mcp", "apis/machineconfiguration.openshift.io/v1 machineconfigpools", false),
    ("kc", "apis/machineconfiguration.openshift.io/v1 kubeletconfigs", false),
    ("thing", "apis/equal.example.com/v1 things", true),
];

/// Parses the sequences of a file.
pub(crate) fn parse(file: &'static str, text: &str) -> Vec<Sequence> {
    let mut sequences: Vec<Sequence> = Vec::new();
    for line in logical_lines(text) {
        if let Some(title) = line.strip_prefix("== ") {
            sequences.push(Sequence { file, title: title.to_owned(), steps: Vec::new() });
        } else {
            let last = sequences.last_mut().expect("a file starts with a title");
            last.steps.push(step(&line));
        }
    }
    sequences
}

/// Parses the sequences of a file once for each kind in `samples`: a line has the short form of a kind
/// and the fields of a valid object.
pub(crate) fn parse_for_kinds(file: &'static str, text: &str, samples: &str) -> Vec<Sequence> {
    let mut sequences = Vec::new();
    for line in logical_lines(samples) {
        let (kind, body) = line.split_once(' ').expect("a kind and its fields");
        let filled = text.replace("KIND", kind).replace("BODY", body);
        let of_kind = parse(file, &filled).into_iter();
        sequences
            .extend(of_kind.map(|it| Sequence { title: format!("{kind}: {}", it.title), ..it }));
    }
    sequences
}

fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        match lines.last_mut() {
            Some(last) if line.starts_with(' ') => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    lines
}

/// Parses a request.
pub(crate) fn step(line: &str) -> Step {
    let (difference, rest) = match line.strip_prefix('!') {
        Some(marked) => {
            let (name, rest) = marked.split_once(' ').expect("a request follows the difference");
            (Some(Difference::read(name)), rest)
        }
        None => (None, line),
    };
    let (user, rest) = match rest.strip_prefix('@').and_then(|it| it.split_once(' ')) {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, rest),
    };
    let mut words = rest.splitn(3, ' ');
    let (verb, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let body = typed(target, words.next().unwrap_or(""));
    let (method, media, accept) = verb_of(verb);
    let mut target = address(target);
    let events = verb.strip_prefix("watch").map(|count| count.parse().expect("a number of events"));
    if events.is_some() {
        target.push(if target.contains('?') { '&' } else { '?' });
        target.push_str("watch=true&timeoutSeconds=4");
    }
    let awaited = match verb {
        "served" => Some(Awaited::Success),
        "refused" => Some(Awaited::Refusal),
        "explained" => Some(Awaited::Reason),
        _ => None,
    };
    let text = line.to_owned();
    Step { text, difference, method, target, media, accept, user, body, events, awaited }
}

/// Adds the kind to the body of a custom object, which the server requires.
fn typed(target: &str, body: &str) -> String {
    let kind = match target.split(['/', '?']).next() {
        Some("mc") => "MachineConfig",
        Some("mcp") => "MachineConfigPool",
        Some("kc") => "KubeletConfig",
        _ => return body.to_owned(),
    };
    match body.strip_prefix("{\"metadata\"") {
        Some(rest) => format!(
            "{{\"apiVersion\": \"machineconfiguration.openshift.io/v1\", \"kind\": \"{kind}\", \
             \"metadata\"{rest}"
        ),
        None => body.to_owned(),
    }
}

/// Returns the method of a verb and its media types: of the body, and of the answer.
fn verb_of(verb: &str) -> (Method, String, String) {
    let (method, media, accept) = match verb.split_once('=') {
        Some(("accept", accept)) => (Method::GET, "", accept),
        Some(("send", media)) => (Method::POST, media, JSON),
        _ => fixed_verb(verb),
    };
    (method, media.to_owned(), accept.to_owned())
}

fn fixed_verb(verb: &str) -> (Method, &'static str, &'static str) {
    match verb {
        "get" | "served" => (Method::GET, "", JSON),
        "table" => (Method::GET, "", TABLE),
        "meta" => (Method::GET, "", META),
        "metas" => (Method::GET, "", METAS),
        "create" | "refused" | "explained" => (Method::POST, JSON, JSON),
        "yaml" => (Method::POST, "application/yaml", JSON),
        "text" => (Method::POST, "text/plain", JSON),
        "put" => (Method::PUT, JSON, JSON),
        "json" => (Method::PATCH, "application/json-patch+json", JSON),
        "merge" => (Method::PATCH, "application/merge-patch+json", JSON),
        "strategic" => (Method::PATCH, "application/strategic-merge-patch+json", JSON),
        "apply" => (Method::PATCH, "application/apply-patch+yaml", JSON),
        "patch" => (Method::PATCH, JSON, JSON),
        "delete" => (Method::DELETE, JSON, JSON),
        watch if watch.starts_with("watch") => (Method::GET, "", JSON),
        other => panic!("unknown verb {other}"),
    }
}

/// Returns the path of a target.
fn address(target: &str) -> String {
    if target.starts_with('/') {
        return target.to_owned();
    }
    let (place, query) = target.split_once('?').map_or((target, None), |(a, b)| (a, Some(b)));
    let (kind, rest) = place.split_once('/').map_or((place, None), |(a, b)| (a, Some(b)));
    let found = KINDS.iter().find(|(short, _, _)| *short == kind);
    let (_, full, namespaced) = found.unwrap_or_else(|| panic!("unknown kind {kind}"));
    let (version, plural) = full.split_once(' ').expect("a version and a resource");
    let scope = if *namespaced { "namespaces/$NS/" } else { "" };
    let mut path = format!("/{version}/{scope}{plural}");
    for (mark, part) in [('/', rest), ('?', query)] {
        if let Some(part) = part {
            path.push(mark);
            path.push_str(part);
        }
    }
    path
}
