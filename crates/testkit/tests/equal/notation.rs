//! The notation of sequences.
//!
//! `== TITLE` starts a sequence. Each request is a line `VERB TARGET BODY`; lines that start with a
//! space continue it. A target is a kind in its short form, with a name, a subresource and a query,
//! or a path: `cm/a?dryRun=All`, `/api/v1/nodes`. `$NS` is the namespace of the sequence; `$rv`,
//! `$uid` and `$continue` are taken from the latest answer that has them, `$old` is the `$rv` before.
//! `!NAME` before a request says that the answers differ by the difference of that name.

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
    pub(crate) difference: Option<String>,
    pub(crate) method: Method,
    /// Path and query, with variables.
    pub(crate) target: String,
    pub(crate) media: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: String,
    /// Number of events to read, for a watch.
    pub(crate) events: Option<usize>,
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
    ("deploy", "apis/apps/v1 deployments", true),
    ("ds", "apis/apps/v1 daemonsets", true),
    ("pdb", "apis/policy/v1 poddisruptionbudgets", true),
    ("lease", "apis/coordination.k8s.io/v1 leases", true),
    ("crd", "apis/apiextensions.k8s.io/v1 customresourcedefinitions", false),
    ("mc", "apis/machineconfiguration.openshift.io/v1 machineconfigs", false),
    ("mcp", "apis/machineconfiguration.openshift.io/v1 machineconfigpools", false),
    ("kc", "apis/machineconfiguration.openshift.io/v1 kubeletconfigs", false),
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

fn step(line: &str) -> Step {
    let (difference, rest) = match line.strip_prefix('!') {
        Some(marked) => {
            let (name, rest) = marked.split_once(' ').expect("a request follows the difference");
            (Some(name.to_owned()), rest)
        }
        None => (None, line),
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
    Step { text: line.to_owned(), difference, method, target, media, accept, body, events }
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

fn verb_of(verb: &str) -> (Method, &'static str, &'static str) {
    match verb {
        "get" => (Method::GET, "", JSON),
        "table" => (Method::GET, "", TABLE),
        "meta" => (Method::GET, "", META),
        "metas" => (Method::GET, "", METAS),
        "create" => (Method::POST, JSON, JSON),
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
