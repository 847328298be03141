//! Tests of the checks on manifests built from JSON.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{
    value::{Entry, Value},
    *,
};

fn spanned(json: &Json) -> SpannedValue {
    let at = Position { line: 1, column: 1 };
    let value = match json {
        Json::Null => Value::Null,
        Json::Bool(switch) => Value::Bool(*switch),
        Json::Number(number) => Value::Number(number.clone()),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(spanned).collect()),
        Json::Object(members) => {
            let entry = |(key, value): (&String, &Json)| Entry {
                key: key.clone(),
                key_at: at,
                value: spanned(value),
            };
            Value::Map(members.iter().map(entry).collect())
        }
    };
    SpannedValue { at, value }
}

fn manifests(documents: &[Json]) -> Manifests {
    let file = Arc::new(SourceFile { name: "a.yaml".into(), text: String::new() });
    let (mut objects, mut faults) = (Vec::new(), Vec::new());
    for document in documents {
        object::collect(&file, spanned(document), &mut objects, &mut faults);
    }
    Manifests::new(objects, faults)
}

fn config(spec: &Json) -> Json {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": "50-a",
            "labels": {"machineconfiguration.openshift.io/role": "worker"},
        },
        "spec": spec,
    })
}

fn codes(documents: &[Json]) -> Vec<String> {
    let code = |fault: &Fault| {
        let path = fault.path.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{} {path}", fault.code)
    };
    check(&manifests(documents)).iter().map(code).collect()
}

#[derive(Debug, serde::Deserialize)]
#[expect(dead_code, reason = "only the types of the fields are tested")]
struct Shape {
    list: Vec<Inner>,
}

#[derive(Debug, serde::Deserialize)]
#[expect(dead_code, reason = "only the types of the fields are tested")]
struct Inner {
    number: i64,
}

#[test]
fn a_type_error_names_the_path_of_the_field() {
    let rows = [
        (json!({"list": [{"number": 1}, {"number": "x"}]}), "list[1].number"),
        (json!({"list": [{"number": 1}, 2]}), "list[1]"),
        (json!({"list": "x"}), "list"),
        (json!({"other": 1}), "other"),
    ];
    for (value, want) in rows {
        let error = spanned(&value).typed::<Shape>().unwrap_err();
        assert_eq!(error.path.to_string(), want, "{value}: {}", error.message);
        assert!(!error.message.contains("line"), "{}", error.message);
    }
}

#[test]
fn faults_name_code_and_path() {
    let file = json!({"path": "/etc/a", "mode": 644, "contents": {"source": "data:,a"}});
    let ignition = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}});
    let files = json!([{"path": "/etc/a/b"}, {"path": "/etc/a"}]);
    let related = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}});
    let user = json!({"name": "core", "passwordHash": "$6$a\nroot:$6$b"});
    let password = json!({"ignition": {"version": "3.2.0"}, "passwd": {"users": [user]}});
    let files = json!([{"path": "/usr/bin/a"}]);
    let read_only = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}});
    let rows = [
        (json!({"config": read_only}), "ReadOnlyPath spec.config.storage.files[0].path"),
        (json!({"config": related}), "PathConflict spec.config.storage.files[0].path"),
        (json!({"config": password}), "PasswordHash spec.config.passwd.users[0].passwordHash"),
        (json!({"kernelType": "fast"}), "InvalidKernelType spec.kernelType"),
        (json!({"extensions": ["usbguardd"]}), "UnknownExtension spec.extensions[0]"),
        (json!({"kernelArgs": []}), "UnknownField spec.kernelArgs"),
        (json!({"config": ignition}), "FileMode spec.config.storage.files[0].mode"),
    ];
    for (spec, want) in rows {
        let found = codes(&[config(&spec)]);
        assert!(found.iter().any(|code| code == want), "{want}: {found:?}");
    }
    assert_eq!(codes(&[config(&json!({"kernelType": "realtime"}))]), [] as [&str; 0]);
}

#[test]
fn a_duplicate_names_the_location_of_the_first() {
    let twice = config(&json!({}));
    let found = check(&manifests(&[twice.clone(), twice]));
    let fault = found.iter().find(|fault| fault.code == "DuplicateName").unwrap();
    assert_eq!(fault.message, "duplicate MachineConfig/50-a");
    assert_eq!(fault.hint.as_deref(), Some("the first one is at a.yaml:1:1"));
}
