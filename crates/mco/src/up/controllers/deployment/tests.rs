//! Tests of the plans of Deployments.

use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn deployment(image: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1,
            "annotations": {"kubernetes.io/change-cause": image}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]}}},
    }))
    .unwrap()
}

/// Carries out a plan as the API server and the ReplicaSets would: every pod is available at once.
fn carry_out(plan: &DeploymentPlan, sets: &mut Vec<ReplicaSet>) {
    if let Some(set) = &plan.create {
        let mut set = (**set).clone();
        set.metadata.uid = set.metadata.name.clone();
        sets.push(set);
    }
    for (name, wanted) in &plan.scale {
        let set = sets.iter_mut().find(|set| set.name_any() == *name).unwrap();
        set.spec.as_mut().unwrap().replicas = Some(*wanted);
    }
    if let Some((name, annotations)) = &plan.annotate {
        let set = sets.iter_mut().find(|set| set.name_any() == *name).unwrap();
        set.annotations_mut().extend(annotations.clone());
    }
    sets.retain(|set| !plan.delete.contains(&set.name_any()));
    for set in sets {
        let wanted = set.spec.as_ref().unwrap().replicas.unwrap();
        let count = Some(wanted);
        set.status = Some(ReplicaSetStatus {
            replicas: wanted,
            ready_replicas: count,
            available_replicas: count,
            ..ReplicaSetStatus::default()
        });
    }
}

/// Reconciles until nothing changes, and returns the revisions with their replicas.
fn settle(deployment: &Deployment, sets: &mut Vec<ReplicaSet>) -> String {
    for _ in 0..20 {
        let plan = plan(deployment, &sets.iter().collect::<Vec<_>>(), at(0));
        let is_over = plan.create.is_none() && plan.scale.is_empty() && plan.annotate.is_none();
        carry_out(&plan, sets);
        if is_over {
            break;
        }
    }
    let shown = sets.iter().map(|set| {
        let replicas = set.spec.as_ref().unwrap().replicas.unwrap();
        format!("{}:{replicas}", revision(&set.metadata))
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn revisions_follow_the_template_there_and_back() {
    let mut sets = Vec::new();
    let first = deployment("a");
    assert_eq!(settle(&first, &mut sets), "1:2");
    let labels = sets[0].labels().clone();
    assert!(labels.contains_key(HASH) && sets[0].name_any() == format!("web-{}", labels[HASH]));
    assert_eq!(settle(&deployment("b"), &mut sets), "1:0 2:2");
    let cause = |set: &ReplicaSet| set.annotations()["kubernetes.io/change-cause"].clone();
    assert_eq!(sets.iter().map(cause).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(settle(&first, &mut sets), "3:2 2:0", "an undone revision is the newest one");
    let mut scaled = first.clone();
    scaled.spec.as_mut().unwrap().replicas = Some(5);
    assert_eq!(settle(&scaled, &mut sets), "3:5 2:0");
}

#[test]
fn the_history_has_a_limit() {
    let mut sets = Vec::new();
    for image in ["a", "b", "c", "d"] {
        let mut deployment = deployment(image);
        deployment.spec.as_mut().unwrap().revision_history_limit = Some(1);
        settle(&deployment, &mut sets);
    }
    let mut revisions: Vec<i64> = sets.iter().map(|set| revision(&set.metadata)).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [3, 4]);
}

#[test]
fn a_paused_deployment_starts_no_revision() {
    let mut sets = Vec::new();
    settle(&deployment("a"), &mut sets);
    let mut paused = deployment("b");
    paused.spec.as_mut().unwrap().paused = Some(true);
    paused.spec.as_mut().unwrap().replicas = Some(3);
    assert_eq!(settle(&paused, &mut sets), "1:3", "it can be scaled");
}

#[test]
fn the_status_says_when_a_rollout_is_complete() {
    let mut deployment = deployment("a");
    let mut sets = Vec::new();
    let condition = |deployment: &Deployment, sets: &[ReplicaSet], now| {
        let plan = plan(deployment, &sets.iter().collect::<Vec<_>>(), at(now));
        let status = plan.status;
        let found = status["conditions"][1].clone();
        assert_eq!(found["type"], "Progressing");
        (status, found["reason"].as_str().unwrap().to_owned())
    };
    let (status, reason) = condition(&deployment, &sets, 0);
    assert_eq!((&*reason, &status["updatedReplicas"]), ("ReplicaSetUpdated", &Value::Null));
    deployment.status = serde_json::from_value(status).unwrap();
    assert_eq!(condition(&deployment, &sets, 601).1, "ProgressDeadlineExceeded");
    settle(&deployment, &mut sets);
    let (status, reason) = condition(&deployment, &sets, 602);
    assert_eq!((&*reason, &status["availableReplicas"]), ("NewReplicaSetAvailable", &json!(2)));
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["observedGeneration"], 1);
}

#[test]
fn shares_are_rounded_for_safety() {
    let share = |text: &str, rounding| super::share(&IntOrString::String(text.into()), 3, rounding);
    assert_eq!((share("25%", Rounding::Up), share("25%", Rounding::Down)), (1, 0));
    assert_eq!(super::share(&IntOrString::Int(7), 3, Rounding::Down), 7);
}
