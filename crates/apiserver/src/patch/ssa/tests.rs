//! Tests of server-side apply.

use serde_json::json;

use super::*;
use crate::{admit::Part, resource::builtin};

fn manager(name: &str) -> Manager<'_> {
    Manager {
        name,
        api_version: "apps/v1".into(),
        subresource: "",
        part: Part::Main,
        now: "2026-01-02T03:04:05Z".parse().unwrap(),
    }
}

fn deployments() -> Resource {
    builtin::by_plural("deployments")
}

fn applied(current: &Value, wish: &Value, by: &str, force: bool) -> Result<Value, Failure> {
    apply(&deployments(), current, wish, &manager(by), force)
}

#[test]
fn fields_missing_from_the_next_apply_are_removed() {
    let first = json!({"spec": {"replicas": 1, "paused": true}});
    let object = create(&deployments(), first, &manager("a"));
    let object = applied(&object, &json!({"spec": {"replicas": 2}}), "a", false).unwrap();
    assert_eq!(object["spec"], json!({"replicas": 2}));
}

#[test]
fn a_value_of_another_manager_is_a_conflict_unless_forced() {
    let object = create(&deployments(), json!({"spec": {"replicas": 1}}), &manager("a"));
    let wish = json!({"spec": {"replicas": 2}});
    let refused = applied(&object, &wish, "b", false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas"
    );
    let forced = applied(&object, &wish, "b", true).unwrap();
    assert_eq!(forced["spec"]["replicas"], 2);
    let owners: Vec<String> =
        managed::entries(&forced).into_iter().map(|entry| entry.name).collect();
    assert_eq!(owners, ["b"]);
}

#[test]
fn two_managers_may_own_the_same_value() {
    let wish = json!({"spec": {"replicas": 1}});
    let object = create(&deployments(), wish.clone(), &manager("a"));
    let object = applied(&object, &wish, "b", false).unwrap();
    assert_eq!(managed::entries(&object).len(), 2);
    // The value stays as long as one manager applies it.
    let object = applied(&object, &json!({"spec": {}}), "a", false).unwrap();
    assert_eq!(object["spec"]["replicas"], 1);
}

#[test]
fn list_items_of_several_managers_coexist() {
    let pods = builtin::by_plural("pods");
    let one = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
    let two = json!({"spec": {"containers": [{"name": "b", "image": "y"}]}});
    let object = create(&pods, one, &manager("a"));
    let object = apply(&pods, &object, &two, &manager("b"), false).unwrap();
    assert_eq!(object["spec"]["containers"].as_array().unwrap().len(), 2);
    let object = apply(&pods, &object, &json!({"spec": {}}), &manager("b"), false).unwrap();
    assert_eq!(object["spec"]["containers"], json!([{"name": "a", "image": "x"}]));
}

#[test]
fn an_update_takes_over_what_it_changes() {
    let object =
        create(&deployments(), json!({"spec": {"replicas": 1, "paused": true}}), &manager("a"));
    let mut new = object.clone();
    new["spec"]["replicas"] = json!(5);
    let entries = managed::entries(&object);
    managed::updated(&deployments(), &object, &mut new, entries, &manager("editor"));
    let refused = applied(&new, &json!({"spec": {"replicas": 1, "paused": true}}), "a", false);
    assert!(refused.unwrap_err().message.contains("conflict with \"editor\""));
}

#[test]
fn fields_set_before_the_first_apply_have_an_owner() {
    let plain = json!({"spec": {"replicas": 1}});
    let refused = applied(&plain, &json!({"spec": {"replicas": 2}}), "a", false).unwrap_err();
    assert!(refused.message.contains("before-first-apply"), "{}", refused.message);
}

#[test]
fn an_apply_without_changes_leaves_the_object_equal() {
    let wish = json!({"spec": {"replicas": 1}});
    let object = create(&deployments(), wish.clone(), &manager("a"));
    assert_eq!(applied(&object, &wish, "a", false).unwrap(), object);
}

#[test]
fn an_apply_with_kubectl_takes_over_what_kubectl_applied_before() {
    let last = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}});
    let mut object = json!({"metadata": {"annotations": {LAST_APPLIED: last.to_string()}},
        "spec": {"replicas": 1, "paused": true}});
    managed::created(&deployments(), &mut object, &manager("kubectl-client-side-apply"));
    let wish = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}});
    assert!(applied(&object, &wish, "other", false).is_err());
    let new = applied(&object, &wish, "kubectl", false).unwrap();
    assert_eq!(new["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(new["metadata"]["annotations"][LAST_APPLIED], format!("{wish}\n"));
    let paused = applied(&object, &json!({"spec": {"paused": false}}), "kubectl", false);
    assert!(paused.unwrap_err().message.contains(".spec.paused"));
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let wish = |replicas, paused| json!({"spec": {"replicas": replicas, "paused": paused}});
    let object = create(&deployments(), wish(1, false), &manager("a"));
    let refused = applied(&object, &wish(2, true), "b", false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.paused\n- .spec.replicas"
    );
}

#[test]
fn applied_items_are_merged_in_their_order() {
    let pods = builtin::by_plural("pods");
    let names = |names: &str| -> Value {
        let items: Vec<Value> =
            names.chars().map(|name| json!({"name": name.to_string()})).collect();
        json!({"spec": {"containers": items}})
    };
    for (have, wish, merged) in
        [("abc", "cx", "abcx"), ("ab", "ba", "ba"), ("axb", "ba", "xba"), ("", "ab", "ab")]
    {
        let new = walk::merge(Place::root(&pods), &names(have), &names(wish));
        assert_eq!(new, names(merged), "{have} and {wish}");
    }
}

#[test]
fn an_apply_conflicts_with_another_manager_in_many_fields() {
    let maps = builtin::by_plural("configmaps");
    let data = |value: &str| -> Value {
        let keys = (0..20_000).map(|key| (format!("k{key}"), json!(value)));
        json!({"data": Value::Object(keys.collect())})
    };
    let object = create(&maps, data("a"), &manager("a"));
    let refused = apply(&maps, &object, &data("b"), &manager("b"), false).unwrap_err();
    assert!(refused.message.starts_with("Apply failed with 20000 conflicts: "));
}
