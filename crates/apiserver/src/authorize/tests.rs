//! Tests of authorization.

use super::*;
use crate::path;

fn access(method: &str, url: &str) -> Access {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    Access::of(&method, path, &path::parse(path).unwrap(), query)
}

#[test]
fn requests_become_verbs_on_resources() {
    for (method, url, expected) in [
        ("GET", "/api/v1/pods", "list pods  "),
        ("GET", "/api/v1/pods?watch=true", "watch pods  "),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list pods  p"),
        ("GET", "/api/v1/namespaces/n/pods/p", "get pods n p"),
        ("GET", "/api/v1/namespaces/n", "get namespaces n n"),
        ("POST", "/api/v1/namespaces/n/pods/p/eviction", "create pods/eviction n p"),
        ("PUT", "/api/v1/nodes/a/status", "update nodes/status  a"),
        ("DELETE", "/apis/apps/v1/namespaces/n/deployments", "deletecollection deployments n "),
        ("PATCH", "/api/v1/nodes/a", "patch nodes  a"),
    ] {
        let found = access(method, url);
        let part = if found.subresource.is_empty() { "" } else { "/" };
        let Access { verb, resource, subresource, namespace, name, .. } = found;
        let shown = format!("{verb} {resource}{part}{subresource} {namespace} {name}");
        assert_eq!(shown, expected, "{method} {url}");
    }
    assert_eq!(access("GET", "/apis").path.as_deref(), Some("/apis"));
}

#[test]
fn a_rule_allows_what_it_names() {
    let rule = |text: &str| {
        let [verbs, group, resources, names] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let list = |text: &str| match text {
            "-" => json!([]),
            text => json!(text.split(',').map(|it| it.trim_matches('"')).collect::<Vec<_>>()),
        };
        json!({"verbs": list(verbs), "apiGroups": list(group), "resources": list(resources),
            "resourceNames": list(names)})
    };
    for (text, method, url, expected) in [
        ("get \"\" pods -", "GET", "/api/v1/namespaces/n/pods/p", true),
        ("get \"\" pods p", "GET", "/api/v1/namespaces/n/pods/p", true),
        ("get \"\" pods q", "GET", "/api/v1/namespaces/n/pods/p", false),
        ("list \"\" pods p", "GET", "/api/v1/namespaces/n/pods", false),
        ("get apps pods -", "GET", "/api/v1/namespaces/n/pods/p", false),
        ("* * * -", "PATCH", "/apis/apps/v1/namespaces/n/deployments/d/status", true),
        (
            "patch apps deployments -",
            "PATCH",
            "/apis/apps/v1/namespaces/n/deployments/d/status",
            false,
        ),
        ("patch apps */status -", "PATCH", "/apis/apps/v1/namespaces/n/deployments/d/status", true),
        ("get \"\" pods -", "GET", "/api", false),
    ] {
        assert_eq!(allows(&rule(text), &access(method, url)), expected, "{text}: {method} {url}");
    }
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/apis/*", "/version"]});
    assert!(allows(&paths, &access("GET", "/apis/apps")));
    assert!(allows(&paths, &access("GET", "/version")));
    assert!(!allows(&paths, &access("GET", "/openapi/v3")));
}

#[test]
fn bindings_name_users_groups_and_accounts() {
    let caller = Identity {
        user: "system:serviceaccount:n:a".into(),
        groups: vec!["system:serviceaccounts:n".into()],
    };
    let binding = |subject: Value| {
        json!({"metadata": {"name": "b", "namespace": "n"}, "subjects": [subject],
            "roleRef": {"kind": "Role", "name": "r"}})
    };
    for (subject, expected) in [
        (json!({"kind": "ServiceAccount", "name": "a", "namespace": "n"}), true),
        (json!({"kind": "ServiceAccount", "name": "a"}), true),
        (json!({"kind": "ServiceAccount", "name": "a", "namespace": "m"}), false),
        (json!({"kind": "Group", "name": "system:serviceaccounts:n"}), true),
        (json!({"kind": "User", "name": "a"}), false),
    ] {
        assert_eq!(grant(&binding(subject.clone()), &caller).is_some(), expected, "{subject}");
    }
}

#[test]
fn refusals_are_worded_as_kubernetes_does() {
    let refused = access("GET", "/apis/apps/v1/namespaces/n/deployments/d/status");
    assert_eq!(
        refused.refusal("u"),
        "User \"u\" cannot get resource \"deployments/status\" in API group \"apps\" in the \
         namespace \"n\""
    );
    assert_eq!(access("GET", "/metrics").refusal("u"), "User \"u\" cannot get path \"/metrics\"");
}
