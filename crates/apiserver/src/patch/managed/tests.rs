//! Tests of the recorded owners.

use super::*;
use crate::resource::builtin;

fn manager<'a>(name: &'a str, time: &str) -> Manager<'a> {
    Manager {
        name,
        api_version: "v1".into(),
        subresource: "",
        part: Part::Main,
        now: time.parse().unwrap(),
    }
}

fn at(second: u32) -> String {
    format!("2026-01-02T03:04:{second:02}Z")
}

fn owners(object: &Value) -> Vec<(String, Value)> {
    entries(object).into_iter().map(|it| (it.name, fields::encode(&it.set))).collect()
}

#[test]
fn a_new_object_belongs_to_its_creator() {
    let pods = builtin::by_plural("pods");
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c",
        "image": "i", "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
        "nodeSelector": {"x": "y"}}, "status": {"phase": "Pending"}});
    created(&pods, &mut pod, &manager("maker", &at(1)));
    let expected = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:nodeSelector": {}, "f:containers": {"k:{\"name\":\"c\"}": {".": {},
        "f:image": {}, "f:name": {}, "f:resources": {}, "f:ports": {".": {},
        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {},
        "f:protocol": {}}}}}}});
    assert_eq!(owners(&pod), [("maker".to_owned(), expected)]);
}

#[test]
fn an_update_moves_what_it_changes() {
    let maps = builtin::by_plural("configmaps");
    let mut old = json!({"metadata": {"name": "a"}, "data": {"k": "1", "l": "2", "m": "3"}});
    created(&maps, &mut old, &manager("maker", &at(1)));
    let mut new = old.clone();
    new["data"] = json!({"k": "9", "l": "2"});
    let given = given(&old, &new, Part::Main);
    updated(&maps, &old, &mut new, given, &manager("editor", &at(2)));
    let expected = [
        ("maker".to_owned(), json!({"f:data": {".": {}, "f:l": {}}})),
        ("editor".to_owned(), json!({"f:data": {"f:k": {}}})),
    ];
    assert_eq!(owners(&new), expected);
}

#[test]
fn an_empty_list_resets_the_owners() {
    let maps = builtin::by_plural("configmaps");
    let mut old = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    created(&maps, &mut old, &manager("maker", &at(1)));
    for reset in [json!([]), json!([{}])] {
        let mut new = old.clone();
        new["metadata"]["managedFields"] = reset;
        let given = given(&old, &new, Part::Main);
        updated(&maps, &old, &mut new, given, &manager("editor", &at(2)));
        assert_eq!(new["metadata"], json!({"name": "a"}));
    }
    let mut new = old.clone();
    new["metadata"] = json!({"name": "a"});
    assert_eq!(given(&old, &new, Part::Main), entries(&old), "an absent list does not");
}

#[test]
fn the_oldest_of_many_updates_are_merged() {
    let maps = builtin::by_plural("configmaps");
    let mut object = json!({"metadata": {"name": "a"}, "data": {}});
    created(&maps, &mut object, &manager("maker", &at(0)));
    for number in 1..=12 {
        let old = object.clone();
        object["data"][format!("k{number}")] = json!("x");
        let name = format!("m{number:02}");
        let given = entries(&old);
        updated(&maps, &old, &mut object, given, &manager(&name, &at(number)));
    }
    let names: Vec<String> = owners(&object).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), MAX_UPDATES);
    assert_eq!(names.first().map(String::as_str), Some(MERGED));
    assert_eq!(names.last().map(String::as_str), Some("m12"));
}

#[test]
fn times_alone_are_no_change() {
    let maps = builtin::by_plural("configmaps");
    let mut old = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    created(&maps, &mut old, &manager("maker", &at(1)));
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!(at(2));
    keep_times(&old, &mut new);
    assert_eq!(new, old);
}

#[test]
fn an_update_may_bring_many_owners() {
    let maps = builtin::by_plural("configmaps");
    let mut old = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    created(&maps, &mut old, &manager("maker", &at(1)));
    let owner = |number: usize| {
        json!({"manager": format!("m{number}"), "operation": "Update", "fieldsType": "FieldsV1",
            "apiVersion": format!("v{}", number / 2), "time": at(2),
            "fieldsV1": {"f:data": {"f:k": {}}}})
    };
    let mut new = old.clone();
    new["metadata"]["managedFields"] = (0..60_000).map(owner).collect();
    let given = given(&old, &new, Part::Main);
    updated(&maps, &old, &mut new, given, &manager("editor", &at(3)));
    let names: Vec<String> = owners(&new).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 30_000);
    assert!(names.iter().all(|name| name == MERGED));
}
