use mco_api::PoolName;
use serde_json::{Value, json};

use super::*;
use crate::render::BaseImages;

fn time(second: u32) -> Value {
    json!(format!("2026-01-01T00:00:{second:02}Z"))
}

/// Builds a MachineConfig with one file, written by a manager at a second.
fn source(name: &str, text: &str, created: u32, written: u32, by: &str) -> MachineConfig {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "creationTimestamp": time(created),
            "labels": {"machineconfiguration.openshift.io/role": "worker"},
            "managedFields": [{"manager": by, "operation": "Update", "time": time(written)}],
        },
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": format!("/etc/{name}"), "contents": {"source": format!("data:,{text}")}}]}}},
    }))
    .unwrap()
}

fn pool(target: &str) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": "worker"},
        "spec": {"configuration": {"name": target}, "machineConfigSelector":
            {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}},
    }))
    .unwrap()
}

/// Renders the configs as the pool's controller does, at a second.
fn rendered(configs: &[&MachineConfig], created: u32) -> MachineConfig {
    let name = PoolName::try_from("worker".to_owned()).unwrap();
    let rendered = render::pool(&name, configs, &BaseImages::default()).unwrap();
    let mut config = MachineConfig::new(rendered.name.as_str(), rendered.spec);
    config.metadata.creation_timestamp = serde_json::from_value(time(created)).unwrap();
    config.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "name": "worker", "uid": "u", "controller": true}]))
    .unwrap();
    config
}

fn name(config: &MachineConfig) -> String {
    config.metadata.name.clone().unwrap()
}

#[test]
fn a_revision_names_its_changes_and_who_made_them() {
    let base = source("00-base", "1", 0, 0, "installer");
    let added = source("50-motd", "1", 10, 10, "kubectl");
    let edited = source("00-base", "2", 0, 20, "editor");
    let (one, two) = (rendered(&[&base], 1), rendered(&[&base, &added], 11));
    let three = rendered(&[&edited, &added], 21);
    let target = name(&three);
    let configs = [edited, three, added, two, one];
    let found = super::of(&pool(&target), &configs);
    let lines: Vec<String> = found
        .iter()
        .map(|revision| {
            let causes: Vec<String> = revision
                .causes
                .iter()
                .map(|it| {
                    format!(
                        "{} {} {}",
                        it.by,
                        if it.created { "created" } else { "changed" },
                        it.config
                    )
                })
                .collect();
            let mark = if revision.current { " current" } else { "" };
            let Revision { number, changes, .. } = revision;
            format!("{number}{mark}: {} | {}", changes.join(", "), causes.join(", "))
        })
        .collect();
    assert_eq!(
        lines,
        [
            "1:  | ",
            "2: + /etc/50-motd | kubectl created 50-motd",
            "3 current: ~ /etc/00-base | editor changed 00-base"
        ]
    );
}

#[test]
fn a_write_in_the_second_of_a_revision_belongs_to_it() {
    let base = source("00-base", "1", 1, 1, "installer");
    let added = source("50-motd", "1", 2, 2, "kubectl");
    let (one, two) = (rendered(&[&base], 1), rendered(&[&base, &added], 2));
    let target = name(&two);
    let causes = |configs: &[MachineConfig]| {
        let found = super::of(&pool(&target), configs);
        found[1].causes.iter().map(|it| it.config.clone()).collect::<Vec<_>>()
    };
    assert_eq!(causes(&[base.clone(), added, one.clone(), two.clone()]), ["50-motd"]);
    let at_once = source("50-motd", "1", 1, 1, "kubectl");
    assert_eq!(causes(&[base, at_once, one, two]), ["00-base", "50-motd"]);
}

#[test]
fn an_added_config_is_deleted_and_an_edited_one_restored() {
    let base = source("00-base", "1", 0, 0, "installer");
    let added = source("50-motd", "1", 10, 10, "kubectl");
    let edited = source("00-base", "2", 0, 20, "editor");
    let (one, two) = (rendered(&[&base], 1), rendered(&[&base, &added], 11));
    let three = rendered(&[&edited, &added], 21);
    let images = BaseImages::default();

    let configs = [base, added.clone(), one.clone(), two.clone()];
    let back = |target: &MachineConfig, configs: &[MachineConfig], to: Option<&str>| {
        undo(&pool(&name(target)), configs, &images, to)
    };
    let delete = (name(&one), Undo::Delete(vec!["50-motd".to_owned()]));
    assert_eq!(back(&two, &configs, None), Ok(delete.clone()));
    assert_eq!(back(&two, &configs, Some("1")), Ok(delete.clone()));
    assert_eq!(back(&two, &configs, Some(&name(&one))), Ok(delete));
    assert_eq!(back(&two, &configs, Some("2")), Ok((name(&two), Undo::Nothing)));
    let unknown = UndoError::Unknown { pool: "worker".to_owned(), config: "7".to_owned() };
    assert_eq!(back(&two, &configs, Some("7")), Err(unknown));
    assert_eq!(back(&one, &configs, None), Err(UndoError::NoEarlier("worker".to_owned())));

    let configs = [edited, added, one, two.clone(), three.clone()];
    match back(&three, &configs, None).unwrap() {
        (to, Undo::Restore(former)) => {
            assert_eq!((to, name(&former)), (name(&two), "00-base".to_owned()));
            let text = former.spec.config.unwrap().get().to_owned();
            assert!(text.contains(r#""source":"data:,1""#), "{text}");
            assert_eq!(former.metadata.labels, source("00-base", "", 0, 0, "").metadata.labels);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_deleted_config_is_pinned_and_two_edits_are_named() {
    let base = source("00-base", "1", 0, 0, "installer");
    let motd = source("50-motd", "1", 0, 0, "installer");
    let (both, alone) = (rendered(&[&base, &motd], 1), rendered(&[&base], 11));
    let images = BaseImages::default();
    let configs = [base.clone(), both.clone(), alone.clone()];
    match undo(&pool(&name(&alone)), &configs, &images, None).unwrap() {
        (to, Undo::Pin(pin)) => {
            assert_eq!((to, name(&pin)), (name(&both), "99-zz-pin-worker".to_owned()));
            assert_eq!(name(&rendered(&[&base, &pin], 12)), name(&both));
        }
        other => panic!("{other:?}"),
    }

    // One file changed and another was added: no single MachineConfig explains both.
    let edited = source("00-base", "2", 0, 20, "editor");
    let mut more = source("50-motd", "1", 0, 21, "other");
    let other = source("60-more", "1", 0, 0, "");
    more.spec.config = serde_json::from_value(json!({"ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/etc/50-motd", "contents": {"source": "data:,1"}},
                              {"path": "/etc/added", "contents": {"source": "data:,1"}}]}}))
    .unwrap();
    let now = rendered(&[&edited, &more, &other], 22);
    let before = rendered(&[&base, &motd, &other], 2);
    let configs = [edited, more, other, before.clone(), now.clone()];
    match undo(&pool(&name(&now)), &configs, &images, None).unwrap() {
        (to, Undo::Edited(causes)) => {
            assert_eq!(to, name(&before));
            let found: Vec<&str> = causes.iter().map(|it| it.config.as_str()).collect();
            assert_eq!(found, ["50-motd", "00-base"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_completed_roll_out_has_a_duration() {
    let base = source("00-base", "1", 0, 0, "installer");
    let added = source("50-motd", "1", 10, 10, "kubectl");
    let (mut one, two) = (rendered(&[&base], 1), rendered(&[&base, &added], 11));
    annotation::ROLLOUT_SECONDS.set(one.annotations_mut(), &90);
    let pool = pool(&name(&two));
    let found = super::of(&pool, &[base, added, one, two]);
    let took: Vec<Option<u64>> = found.iter().map(|revision| revision.took).collect();
    assert_eq!(took, [Some(90), None]);
}

#[test]
fn a_roll_out_starts_with_its_pool_or_its_config() {
    let at = |second| -> Time { serde_json::from_value(time(second)).unwrap() };
    let status = |kind: &str| -> MachineConfigPoolStatus {
        serde_json::from_value(json!({"conditions":
            [{"type": kind, "status": "True", "lastTransitionTime": time(10)}]}))
        .unwrap()
    };
    let updating = status("Updating");
    assert_eq!(rollout_seconds(&updating, Some(&at(5)), &at(40)), Some(30), "an earlier config");
    assert_eq!(rollout_seconds(&updating, Some(&at(25)), &at(40)), Some(15), "a second change");
    assert_eq!(rollout_seconds(&updating, None, &at(40)), Some(30));
    assert_eq!(rollout_seconds(&updating, None, &at(9)), None, "a clock that was set back");
    assert_eq!(rollout_seconds(&status("Updated"), None, &at(40)), None);
}
