//! Tests of server-side apply.

use super::*;
use crate::resource::builtin;

fn manager(name: &str) -> Manager<'_> {
    Manager {
        name,
        api_version: "apps/v1".into(),
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
    let owners: Vec<String> = entries(&forced).into_iter().map(|entry| entry.name).collect();
    assert_eq!(owners, ["b"]);
}

#[test]
fn two_managers_may_own_the_same_value() {
    let wish = json!({"spec": {"replicas": 1}});
    let object = create(&deployments(), wish.clone(), &manager("a"));
    let object = applied(&object, &wish, "b", false).unwrap();
    assert_eq!(entries(&object).len(), 2);
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
    note_update(&deployments(), &object, &mut new, &manager("editor"));
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
