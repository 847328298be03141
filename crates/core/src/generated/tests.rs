//! Tests of the names of generated MachineConfigs.

use k8s_openapi::jiff::Timestamp;

use super::*;

/// Builds settings objects: the name, its creation time in seconds, its suffix and its finalizers.
fn settings(name: &str, created: i64, suffix: Option<&str>, finalizers: &[&str]) -> Settings {
    Settings {
        name: name.to_owned(),
        created: Some(Time(Timestamp::from_second(created).unwrap())),
        suffix: suffix.map(str::to_owned),
        finalizers: finalizers.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn suffix_of(object: &Settings, all: &[Settings]) -> Result<String, LimitError> {
    suffix(Family::Kubelet, "worker", object, all, |name| name.starts_with("99-worker"))
}

// covers: KUB-8
#[test]
fn a_suffix_is_kept_and_a_new_object_comes_after_all_others() {
    let first = settings("a", 1, Some(""), &[]);
    let fifth = settings("e", 2, Some("5"), &[]);
    let new = settings("z", 9, None, &[]);
    let cases = [
        (&new, vec![], ""),
        (&new, vec![first.clone()], "1"),
        (&new, vec![first.clone(), fifth.clone()], "6"),
        (&first, vec![fifth.clone(), new.clone()], ""),
        (&fifth, vec![first.clone(), new.clone()], "5"),
        (&settings("r", 3, None, &["99-worker-generated-kubelet-4"]), vec![fifth.clone()], "4"),
        (&settings("r", 3, None, &["99-infra-generated-kubelet-4"]), vec![fifth.clone()], "6"),
    ];
    for (object, all, expected) in cases {
        assert_eq!(suffix_of(object, &all).as_deref(), Ok(expected), "{object:?} among {all:?}");
    }
}

#[test]
fn objects_that_arrive_together_are_numbered_by_age() {
    let all = [("c", 3), ("a", 2), ("b", 2), ("d", 1)];
    let all = all.map(|(name, created)| settings(name, created, None, &[]));
    let suffixes = all.each_ref().map(|object| suffix_of(object, &all).unwrap());
    assert_eq!(suffixes, ["3", "1", "2", ""]);
}

// covers: KUB-8
#[test]
fn a_pool_has_at_most_ten() {
    let mut all: Vec<Settings> = Vec::new();
    for number in 0..10 {
        let mut object = settings(&format!("k{number}"), number, None, &[]);
        object.suffix = Some(suffix_of(&object, &all).unwrap());
        all.push(object);
    }
    assert_eq!(all.last().unwrap().suffix.as_deref(), Some("9"));
    let error = suffix_of(&settings("one-more", 99, None, &[]), &all).unwrap_err();
    assert_eq!(
        error.to_string(),
        "max number of supported kubelet config (10) has been reached. Please delete old kubelet \
         configs before retrying"
    );
}

#[test]
fn a_file_that_was_generated_is_found_again() {
    let file = GeneratedFile::new("/etc/a", "text\n");
    let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
    let config = machine_config("99-a", "worker", spec(&[file]), &build, None);
    assert_eq!(file_of(&config, "/etc/a").as_deref(), Some(&b"text\n"[..]));
    assert_eq!(file_of(&config, "/etc/b"), None);
    assert_eq!(
        config.spec.config.unwrap().get(),
        r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"contents":{"compression":"","source":"data:text/plain;charset=utf-8;base64,dGV4dAo="},"mode":420,"overwrite":true,"path":"/etc/a"}]}}"#
    );
    assert_eq!(spec(&[]).config.unwrap().get(), r#"{"ignition":{"version":"3.5.0"}}"#);
}

#[test]
fn only_a_selector_with_requirements_selects_pools() {
    let mut pool = MachineConfigPool::default();
    pool.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let selector = |json: serde_json::Value| serde_json::from_value(json).unwrap();
    let cases = [
        (None, false),
        (Some(selector(json!({}))), false),
        (Some(selector(json!({"matchLabels": {"a": "b"}}))), true),
        (Some(selector(json!({"matchLabels": {"a": "c"}}))), false),
    ];
    for (pools, expected) in cases {
        assert_eq!(selects(pools.as_ref(), &pool), Ok(expected), "{pools:?}");
    }
}
