//! Tests of the rights of nodes.

use super::*;

fn access(verb: &str, resource: &str, name: &str) -> Access {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Access {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        ..Access::default()
    }
}

fn write<'a>(resource: &'a str, new: Option<&'a Value>, old: Option<&'a Value>) -> NodeWrite<'a> {
    let name = new.or(old).map_or("", |it| text(it, &["metadata", "name"]));
    let (node, uid, namespace) = ("n", Some("u"), "default");
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    NodeWrite { node, uid, resource, subresource, namespace, name, new, old }
}

#[test]
fn only_members_of_the_group_of_nodes_are_nodes() {
    let caller = |user: &str, group: &str| Identity {
        user: user.to_owned(),
        groups: vec![group.to_owned()],
    };
    assert_eq!(of(&caller("system:node:n", NODES)), Some("n"));
    for (user, group) in [("system:node:n", "x"), ("system:node:", NODES), ("n", NODES)] {
        assert_eq!(of(&caller(user, group)), None, "{user} {group}");
    }
}

#[test]
fn a_node_may_read_itself_and_what_its_pods_use() {
    for (verb, resource, name, is_allowed) in [
        ("get", "nodes", "n", true),
        ("get", "nodes", "other", false),
        ("list", "nodes", "", false),
        ("patch", "nodes/status", "n", true),
        ("delete", "nodes", "n", false),
        ("create", "pods", "", true),
        ("list", "pods", "", false),
        ("get", "services", "x", true),
        ("delete", "services", "x", false),
        ("list", "secrets", "", false),
        ("update", "secrets", "x", false),
    ] {
        let found = decide("n", &access(verb, resource, name));
        assert_eq!(found == Opinion::Allowed, is_allowed, "{verb} {resource} {name}: {found:?}");
    }
    assert_eq!(decide("n", &access("get", "secrets", "x")), Opinion::IfRelated);
    let own = Access { node: "n".to_owned(), ..access("watch", "pods", "") };
    assert_eq!(decide("n", &own), Opinion::Allowed);
}

#[test]
fn a_pod_uses_what_its_environments_and_volumes_name() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "key"}}}],
            "envFrom": [{"configMapRef": {"name": "all"}}]}],
        "volumes": [{"secret": {"secretName": "mounted"}}, {"configMap": {"name": "map"}},
            {"projected": {"sources": [{"secret": {"name": "part"}}]}}]}});
    for (resource, name) in [
        ("pods", "p"),
        ("serviceaccounts", "robot"),
        ("secrets", "pull"),
        ("secrets", "key"),
        ("secrets", "mounted"),
        ("secrets", "part"),
        ("configmaps", "all"),
        ("configmaps", "map"),
    ] {
        assert!(uses(&pod, &access("get", resource, name)), "{resource} {name}");
        assert!(!uses(&pod, &access("get", resource, "other")), "{resource}");
    }
}

#[test]
fn a_node_changes_only_itself_and_its_pods() {
    let own = json!({"metadata": {"name": "n"}});
    let other = json!({"metadata": {"name": "m"}});
    let tainted = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a"}]}});
    let labelled = |key: &str| json!({"metadata": {"name": "n", "labels": {key: "x"}}});
    let role = labelled("node-role.kubernetes.io/master");
    let zone = labelled("topology.kubernetes.io/zone");
    let restricted = labelled("a.node-restriction.kubernetes.io/b");
    let here = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
    let there = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "m"}});
    for (resource, new, old, is_refused) in [
        ("nodes", Some(&own), None, false),
        ("nodes", Some(&other), None, true),
        ("nodes", Some(&tainted), Some(&own), true),
        ("nodes", Some(&role), Some(&own), true),
        ("nodes", Some(&own), Some(&role), true),
        ("nodes", Some(&zone), Some(&own), false),
        ("nodes", Some(&restricted), None, true),
        ("pods", Some(&here), None, true),
        ("pods", None, Some(&here), false),
        ("pods", None, Some(&there), true),
        ("pods", Some(&here), Some(&here), true),
        ("pods/status", Some(&here), Some(&here), false),
        ("pods/status", Some(&there), Some(&there), true),
        ("pods/eviction", None, Some(&here), false),
        ("pods/eviction", None, Some(&there), true),
        ("configmaps", Some(&own), None, false),
    ] {
        let found = refusal(&write(resource, new, old));
        assert_eq!(found.is_some(), is_refused, "{resource} {new:?} {old:?}: {found:?}");
    }
}

#[test]
fn a_mirror_pod_belongs_to_its_node() {
    let mut pod = json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u",
            "controller": true}]}, "spec": {"nodeName": "n"}});
    assert_eq!(refusal(&write("pods", Some(&pod), None)), None);
    pod["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    assert!(refusal(&write("pods", Some(&pod), None)).is_some());
}
