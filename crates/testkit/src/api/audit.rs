//! The requests that a real kube-apiserver received, from its audit log.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The policy: every request once, without its body.
pub(super) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditedRequest {
    /// Name of the user.
    pub user: String,
    /// Verb of Kubernetes, such as `patch`.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource, with its subresource after a slash; empty for a URL of no resource.
    pub resource: String,
    /// Namespace; empty for a request of the cluster.
    pub namespace: String,
    /// Name of the object; empty for lists and most creates.
    pub name: String,
    /// Status code of the answer.
    pub code: u16,
    /// URL.
    pub url: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    #[serde(rename = "requestURI")]
    request_uri: String,
    object_ref: Object,
    response_status: Answer,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

impl From<Line> for AuditedRequest {
    fn from(line: Line) -> Self {
        let Object { resource, subresource, namespace, name, api_group } = line.object_ref;
        let is_whole = subresource.is_empty();
        Self {
            user: line.user.username,
            verb: line.verb,
            group: api_group,
            resource: if is_whole { resource } else { format!("{resource}/{subresource}") },
            namespace,
            name,
            code: line.response_status.code,
            url: line.request_uri,
        }
    }
}

/// Returns the different requests of an audit log. Its last line may be incomplete.
pub(super) fn requests(log: &str) -> BTreeSet<AuditedRequest> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request() {
        let log = r#"{"kind":"Event","stage":"ResponseComplete","requestURI":"/api/v1/nodes/a/status","verb":"patch","user":{"username":"u"},"objectRef":{"resource":"nodes","name":"a","apiVersion":"v1","subresource":"status"},"responseStatus":{"code":200}}
{"kind":"Event","requ"#;
        let found: Vec<_> = requests(log).into_iter().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&*found[0].resource, &*found[0].verb, found[0].code),
            ("nodes/status", "patch", 200)
        );
    }
}
