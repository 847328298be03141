//! Tests of the drain prediction and of its obstacles.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Builds pods from a small notation: `name@node[:words]`, with the words joined by `+`: `sick`,
/// `over`, `pending`, `leaving`, `bare`, `data`, `daemon`, `important`. All have the label `app=a`.
fn pods(text: &str) -> Vec<Pod> {
    text.split_whitespace().map(pod).collect()
}

fn pod(word: &str) -> Pod {
    let (place, words) = word.split_once(':').unwrap_or((word, ""));
    let (name, node) = place.split_once('@').unwrap();
    let words: Vec<&str> = words.split('+').collect();
    let is = |word: &str| words.contains(&word);
    let kind = if is("daemon") { "DaemonSet" } else { "ReplicaSet" };
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u",
                       "controller": true});
    let phase = if is("over") {
        "Succeeded"
    } else if is("pending") {
        "Pending"
    } else {
        "Running"
    };
    let ready = if is("sick") || is("pending") { "False" } else { "True" };
    let mut value = json!({
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": "a"}},
        "spec": {"containers": [], "nodeName": node, "priority": i32::from(is("important")),
                 "volumes": if is("data") { json!([{"name": "tmp", "emptyDir": {}}]) } else { json!([]) }},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    if !is("bare") {
        value["metadata"]["ownerReferences"] = json!([owner]);
    }
    if is("leaving") {
        value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    serde_json::from_value(value).unwrap()
}

fn budget(name: &str, rule: &serde_json::Value) -> PodDisruptionBudget {
    let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}});
    for (key, value) in rule.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let value = json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec});
    serde_json::from_value(value).unwrap()
}

fn lines(obstacles: &[EvictionObstacle]) -> String {
    obstacles.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_budget_blocks_a_drain_for_ever_or_for_now_or_not_at_all() {
    let cases = [
        // the pods, the budget, blocked, waiting
        ("a@n b@m", json!({"minAvailable": 1}), "", ""),
        ("a@n b@m", json!({"minAvailable": 2}), "a", ""),
        ("a@n", json!({"minAvailable": 1}), "a", ""),
        ("a@n b@m", json!({"minAvailable": "100%"}), "a", ""),
        ("a@n b@m", json!({"maxUnavailable": 0}), "a", ""),
        ("a@n b@m:sick", json!({"minAvailable": 1}), "", "a"),
        ("a@n b@m:leaving", json!({"maxUnavailable": 1}), "", "a"),
        ("a@n:sick b@m", json!({"minAvailable": 1}), "", ""),
        ("a@n:sick b@m", json!({"minAvailable": 2}), "a", ""),
        (
            "a@n:sick b@m",
            json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
            "",
            "",
        ),
        ("a@n:over b@m", json!({"minAvailable": 1}), "", ""),
        ("a@n:pending b@m", json!({"minAvailable": 2}), "", ""),
        ("a@n:daemon", json!({"minAvailable": 1}), "", ""),
        ("a@m", json!({"minAvailable": 1}), "", ""),
        ("a@n:leaving", json!({"minAvailable": 0}), "", "a"),
    ];
    for (text, rule, blocked, waiting) in cases {
        let found = feasibility("n", &pods(text), &[budget("b", &rule)]);
        let names = |list: &[EvictionObstacle]| {
            let names = list.iter().map(|obstacle| obstacle.pod.replace("shop/", ""));
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&found.blockers), blocked, "{text} {rule}");
        assert_eq!(names(&found.waits), waiting, "{text} {rule}");
        assert_eq!(found.can_finish(), blocked.is_empty(), "{text} {rule}");
    }
}

#[test]
fn an_up_to_date_status_counts_before_the_given_pods() {
    let mut known = budget("b", &json!({"minAvailable": 1}));
    known.metadata.generation = Some(3);
    known.status = serde_json::from_value(json!({
        "observedGeneration": 3, "expectedPods": 3, "currentHealthy": 3, "desiredHealthy": 1,
        "disruptionsAllowed": 2,
    }))
    .unwrap();
    assert!(feasibility("n", &pods("a@n"), std::slice::from_ref(&known)).can_finish());
    known.metadata.generation = Some(4);
    assert!(!feasibility("n", &pods("a@n"), &[known]).can_finish());
}

#[test]
fn texts_name_pod_budget_cause_and_remedy() {
    let rule = json!({"minAvailable": 1});
    let found = feasibility("n", &pods("a@n"), &[budget("b", &rule)]);
    assert_eq!(
        lines(&found.blockers),
        "pod shop/a: PodDisruptionBudget shop/b requires 1 of 1 pods and never allows an eviction; \
         add a replica or lower the budget"
    );
    let twice = [budget("b", &rule), budget("c", &rule)];
    assert_eq!(
        lines(&feasibility("n", &pods("a@n d@m"), &twice).blockers),
        "pod shop/a: PodDisruptionBudgets shop/b and shop/c select the pod, and Kubernetes evicts \
         no pod that more than one selects; change their selectors so that one remains"
    );
    let found = feasibility("n", &pods("a@n:bare+data"), &[]);
    assert_eq!(
        lines(&found.losses),
        "pod shop/a: no controller recreates it after the eviction; \
         pod shop/a: loses the data in its volumes on the node: tmp"
    );
}

#[test]
fn pods_of_high_priority_are_evicted_last() {
    let found = feasibility("n", &pods("a@n:important c@n b@n d@m"), &[]);
    assert_eq!(found.evict, ["shop/b", "shop/c", "shop/a"]);
}

proptest! {
    /// A drain predicted to finish does: evicting every pod that the budget allows, and recreating
    /// it elsewhere, empties the node. A drain predicted never to finish does not.
    #[test]
    fn the_prediction_matches_a_simulated_drain(
        here in 0_usize..5,
        elsewhere in 0_usize..5,
        least in 0_i32..8,
    ) {
        let mut text: Vec<String> = (0..here).map(|i| format!("h{i}@n")).collect();
        text.extend((0..elsewhere).map(|i| format!("e{i}@m")));
        let budget = budget("b", &json!({"minAvailable": least}));
        let answer = feasibility("n", &pods(&text.join(" ")), std::slice::from_ref(&budget));

        let (mut left, all) = (here, here + elsewhere);
        for _ in 0..here {
            // Every pod is healthy again before the next eviction.
            if all > usize::try_from(least).unwrap() {
                left -= 1;
            }
        }
        prop_assert_eq!(answer.can_finish(), left == 0);
        prop_assert_eq!(answer.evict.len(), here);
    }
}
