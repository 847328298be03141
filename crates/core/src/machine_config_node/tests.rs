use serde_json::json;

use super::*;

fn node(asked: &str, applied: &str, closed: bool) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "uid": "1", "annotations": {
            annotation::DESIRED_CONFIG.name(): "rendered-worker-1",
            annotation::DESIRED_DRAIN.name(): asked,
            annotation::LAST_APPLIED_DRAIN.name(): applied,
        }},
        "spec": {"unschedulable": closed},
    }))
    .unwrap()
}

fn at(second: u8) -> Time {
    serde_json::from_value(json!(format!("2026-01-01T00:00:{second:02}Z"))).unwrap()
}

/// Lists the conditions that are true, and unknown ones with a question mark.
fn words(conditions: &[Condition]) -> String {
    let word = |condition: &Condition| match condition.status.as_str() {
        "True" => Some(condition.type_.clone()),
        "Unknown" => Some(format!("{}?", condition.type_)),
        _ => None,
    };
    conditions.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

// covers: DRN-10
#[test]
fn conditions_follow_the_drain_from_cordon_to_uncordon_and_restart_with_the_next_drain() {
    let (drain, open) = ("drain-x", "uncordon-x");
    let steps = [
        (node("", "", false), ""),
        (node(drain, "", false), ""),
        (node(drain, "", true), "UpdateExecuted? Cordoned Drained?"),
        (node(drain, drain, true), "UpdateExecuted? Cordoned Drained"),
        (node(open, drain, true), "UpdateExecuted? Cordoned Drained"),
        (node(open, open, false), "UpdateExecuted? Cordoned Drained UpdateComplete Uncordoned"),
        (node("drain-y", open, true), "UpdateExecuted? Cordoned Drained?"),
    ];
    let mut seen = Vec::new();
    for (second, (node, expected)) in (0_u8..).zip(&steps) {
        seen = conditions(&seen, node, None, &at(second));
        assert_eq!(words(&seen), *expected, "step {second}");
        assert_eq!(conditions(&seen, node, None, &at(59)), seen, "step {second} is recorded once");
    }
}

#[test]
fn conditions_that_the_daemon_resets_after_an_update_are_not_set_again() {
    let open = node("uncordon-x", "uncordon-x", false);
    let mut seen = conditions(&[], &node("drain-x", "", true), None, &at(0));
    seen = conditions(&seen, &open, None, &at(1));
    for condition in &mut seen {
        condition.status = "False".to_owned();
    }
    assert_eq!(conditions(&seen, &open, None, &at(2)), seen);
    assert_eq!(conditions(&[], &open, None, &at(2)), [], "nor on a node that was never drained");
}

#[test]
fn a_waiting_node_has_its_config_and_reason_until_it_starts() {
    let node = node("", "", false);
    let wait = |hold| PendingUpdate { target: "rendered-worker-2".to_owned(), hold };
    let first = conditions(&[], &node, Some(&wait(Hold::Paused)), &at(0));
    let [waiting] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!((waiting.type_.as_str(), waiting.reason.as_str()), ("Waiting", "PoolPaused"));
    assert_eq!(waiting.message, "Node waits for rendered-worker-2: the pool is paused");
    let second = conditions(&first, &node, Some(&wait(Hold::NoCapacity)), &at(5));
    assert_eq!(
        (second[0].reason.as_str(), &second[0].last_transition_time),
        ("NoCapacity", &at(0))
    );
    let third = conditions(&second, &node, None, &at(9));
    assert_eq!((third[0].status.as_str(), &third[0].last_transition_time), ("False", &at(9)));
}

#[test]
fn a_blocked_drain_names_the_pod_its_owner_and_the_cause() {
    let mut node = node("drain-x", "", true);
    let record = r#"{"request":"drain-x","since":"2026-01-01T00:00:00Z","attempts":3,"more":2,
        "blockers":[{"pod":"shop/web","owner":"ReplicaSet web","why":"PodDisruptionBudget shop/web",
        "since":"2026-01-01T00:00:01Z"}]}"#;
    let annotations = node.metadata.annotations.as_mut().unwrap();
    annotations.insert(annotation::DRAIN_RECORD.name().to_owned(), record.to_owned());
    let seen = conditions(&[], &node, None, &at(0));
    let drained = seen.iter().find(|found| found.type_ == "Drained").unwrap();
    let expected = "Error: Node Drain has not succeeded. Error is: pod shop/web of ReplicaSet web: \
        PodDisruptionBudget shop/web (since 2026-01-01T00:00:01Z); and 2 more pods. Draining since \
        2026-01-01T00:00:00Z, failed attempts: 3. The drain will not be complete until desired \
        drainer drain-x matches current drainer ";
    assert_eq!(drained.message, expected);
}

// covers: O19
#[test]
fn a_machine_config_node_belongs_to_its_node_and_no_other() {
    let node = node("", "", false);
    let made = object(&node, Some("worker"));
    assert_eq!(made.spec.pool.name, "worker");
    assert_eq!(made.spec.config_version.desired, "rendered-worker-1");
    assert_eq!(object(&node, None).spec.pool.name, NOT_YET_SET);
    assert_eq!(spec(&Node::default(), None).config_version.desired, NOT_YET_SET);
    assert!(!belongs_to_other_node(&made, &node));
    let mut other = node.clone();
    other.metadata.uid = Some("2".to_owned());
    assert!(belongs_to_other_node(&made, &other));
}
