//! Tests of admission.

use super::*;
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn made(plural: &str, object: Value) -> Value {
    let resource = builtin::by_plural(plural);
    let object = crate::form::stored(&resource, object);
    create(&resource, object, now(), 7, |_| {}).unwrap().object
}

#[test]
fn a_new_object_gets_identity_time_and_generation() {
    let pod = made(
        "pods",
        json!({"metadata": {"generateName": "p-"}, "status": {"phase": "X"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    );
    assert_eq!(object::meta(&pod, "creationTimestamp"), "2026-01-02T03:04:05Z");
    assert_eq!(object::name(&pod), "p-kbbbb");
    assert_eq!(pod["metadata"]["generation"], 1);
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(object::meta(&pod, "uid").len(), 36);
}

#[test]
fn a_bad_name_is_refused_with_the_rule() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "A_b"}});
    let refused = create(&builtin::by_plural("nodes"), node, now(), 1, |_| {});
    let failure = refused.unwrap_err();
    assert_eq!(failure.code, 422);
    let start = "Node \"A_b\" is invalid: metadata.name: Invalid value: \"A_b\": a lowercase RFC";
    assert!(failure.message.starts_with(start), "{}", failure.message);
}

#[test]
fn generation_counts_only_changes_of_the_content() {
    let deployments = builtin::by_plural("deployments");
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec =
        json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let old = made("deployments", json!({"metadata": {"name": "d"}, "spec": spec}));
    let step = |old: &Value, change: &dyn Fn(&mut Value), part| {
        let mut new = old.clone();
        change(&mut new);
        update(&deployments, old, new, part, now(), |_| {}).unwrap().object
    };
    let labelled = step(&old, &|o| o["metadata"]["labels"] = json!({"a": "b"}), Part::Main);
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled = step(&old, &|o| o["spec"]["replicas"] = json!(3), Part::Main);
    assert_eq!(scaled["metadata"]["generation"], 2);
    let status = step(&old, &|o| o["status"] = json!({"replicas": 1}), Part::Status);
    assert_eq!(status["metadata"]["generation"], 1);
    assert_eq!(status["status"]["replicas"], 1);
}

#[test]
fn main_and_status_writes_keep_to_their_parts() {
    let nodes = builtin::by_plural("nodes");
    let old = made("nodes", json!({"metadata": {"name": "n"}, "status": {"phase": "old"}}));
    let mut new = old.clone();
    new["spec"]["unschedulable"] = json!(true);
    new["status"]["phase"] = json!("new");
    let main = update(&nodes, &old, new.clone(), Part::Main, now(), |_| {}).unwrap().object;
    assert_eq!(
        (&main["spec"]["unschedulable"], &main["status"]["phase"]),
        (&json!(true), &json!("old"))
    );
    let status = update(&nodes, &old, new, Part::Status, now(), |_| {}).unwrap().object;
    assert_eq!((&status["spec"], &status["status"]["phase"]), (&json!({}), &json!("new")));
}

#[test]
fn an_object_being_deleted_takes_no_new_finalizers() {
    let nodes = builtin::by_plural("nodes");
    let mut old = made("nodes", json!({"metadata": {"name": "n", "finalizers": ["a/b"]}}));
    old["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    let failure = update(&nodes, &old, new, Part::Main, now(), |_| {}).unwrap_err();
    assert!(failure.message.contains("no new finalizers can be added"), "{}", failure.message);
}

#[test]
fn a_secret_takes_plain_text() {
    let secret = made("secrets", json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}));
    assert_eq!(secret["data"]["k"], "dg==");
    assert_eq!(secret["type"], "Opaque");
    assert!(secret.get("stringData").is_none());
}

#[test]
fn addresses_and_the_class_of_a_pod_are_completed() {
    let pods = builtin::by_plural("pods");
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let old = made("pods", json!({"metadata": {"name": "p"}, "spec": spec}));
    let status = |status: Value| {
        let mut new = old.clone();
        new["status"] = status;
        update(&pods, &old, new, Part::Status, now(), |_| {}).unwrap().object["status"].take()
    };
    assert_eq!(
        status(json!({"podIP": "10.0.0.1"})),
        json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "qosClass": "BestEffort"})
    );
    assert_eq!(status(json!({"podIPs": [{"ip": "10.0.0.2"}]}))["podIP"], "10.0.0.2");
    let both = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]});
    assert_eq!(status(both)["podIPs"], json!([{"ip": "10.0.0.1"}]));
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}});
    assert_eq!(made("nodes", node)["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
}

#[test]
fn a_pod_with_gates_says_so() {
    let spec = json!({"schedulingGates": [{"name": "a.b/c"}],
        "containers": [{"name": "c", "image": "i"}]});
    let pod = made("pods", json!({"metadata": {"name": "p"}, "spec": spec}));
    assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    let pods = builtin::by_plural("pods");
    let mut new = pod.clone();
    new["spec"]["schedulingGates"] = json!([{"name": "a.b/d"}]);
    let refused = update(&pods, &pod, new, Part::Main, now(), |_| {}).unwrap_err();
    assert!(refused.message.contains("only deletion is allowed"), "{}", refused.message);
}
