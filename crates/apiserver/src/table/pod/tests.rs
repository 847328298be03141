//! Tests of the rows of pods.

use super::*;

/// Returns the first three cells of a pod with two containers and an init container.
fn shown(status: &Value) -> String {
    let pod = json!({"metadata": {"name": "p"}, "status": status, "spec": {
        "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
    first_cells(&pod)
}

fn first_cells(pod: &Value) -> String {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    let cells = cells(pod, "1s".into(), now);
    let texts: Vec<&str> = cells.iter().take(3).filter_map(Value::as_str).collect();
    texts.join(" ")
}

fn running(name: &str) -> Value {
    json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {}}})
}

fn ended(name: &str, terminated: &Value) -> Value {
    json!({"name": name, "ready": false, "restartCount": 1, "state": {"terminated": terminated}})
}

#[test]
fn the_state_of_a_pod_is_that_of_its_first_container_that_has_one() {
    let done = || ended("a", &json!({"exitCode": 0, "reason": "Completed"}));
    let failed = || ended("b", &json!({"exitCode": 2, "reason": "Error"}));
    let waiting = json!({"name": "b", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}}});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for (status, expected) in [
        (json!({"phase": "Pending"}), "0/2 Pending 0"),
        (json!({"phase": "Failed", "reason": "Evicted"}), "0/2 Evicted 0"),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                "reason": "SchedulingGated"}]}),
            "0/2 SchedulingGated 0",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [running("a"), running("b")]}),
            "2/2 Running 0",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [running("a"), waiting]}),
            "1/2 ImagePullBackOff 0",
        ),
        (json!({"phase": "Running", "containerStatuses": [running("a"), failed()]}), "1/2 Error 1"),
        (json!({"phase": "Failed", "containerStatuses": [done(), failed()]}), "0/2 Error 2"),
        (json!({"phase": "Succeeded", "containerStatuses": [done(), done()]}), "0/2 Completed 2"),
        (
            json!({"phase": "Running", "containerStatuses": [done(), running("b")]}),
            "1/2 NotReady 1",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [done(), running("b")],
                "conditions": ready}),
            "1/2 Running 1",
        ),
        (
            json!({"phase": "Failed", "containerStatuses":
                [ended("a", &json!({"exitCode": 137, "signal": 9}))]}),
            "0/2 Signal:9 1",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [ended("a", &json!({"exitCode": 3}))]}),
            "0/2 ExitCode:3 1",
        ),
        (
            json!({"phase": "Running", "containerStatuses":
                [{"name": "a", "ready": true, "restartCount": 0, "state": {}}]}),
            "0/2 Running 0",
        ),
    ] {
        assert_eq!(shown(&status), expected, "{status}");
    }
}

#[test]
fn a_pod_that_initializes_shows_how_far_it_is() {
    let init = |state: Value| {
        json!({"phase": "Pending", "initContainerStatuses":
            [{"name": "i", "ready": false, "restartCount": 4, "state": state}]})
    };
    for (state, expected) in [
        (json!({"running": {}}), "0/2 Init:0/1 4"),
        (json!({"waiting": {"reason": "PodInitializing"}}), "0/2 Init:0/1 4"),
        (json!({"waiting": {"reason": "CrashLoopBackOff"}}), "0/2 Init:CrashLoopBackOff 4"),
        (json!({"terminated": {"exitCode": 1, "reason": "Error"}}), "0/2 Init:Error 4"),
        (json!({"terminated": {"exitCode": 1}}), "0/2 Init:ExitCode:1 4"),
        (json!({"terminated": {"exitCode": 1, "signal": 15}}), "0/2 Init:Signal:15 4"),
        (json!({"terminated": {"exitCode": 0}}), "0/2 Pending 0"),
    ] {
        assert_eq!(shown(&init(state.clone())), expected, "{state}");
    }
}

#[test]
fn a_sidecar_counts_as_a_container() {
    let sidecar = |started: bool| {
        json!({"spec": {"containers": [{"name": "a"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Running", "containerStatuses": [running("a")],
                "initContainerStatuses": [{"name": "s", "ready": true, "restartCount": 3,
                    "started": started, "state": {"running": {}}}]}})
    };
    assert_eq!(first_cells(&sidecar(true)), "2/2 Running 3");
    assert_eq!(first_cells(&sidecar(false)), "0/2 Init:0/1 3");
}

#[test]
fn the_last_restart_and_the_deletion_are_shown() {
    let mut pod = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "a"}], "readinessGates":
            [{"conditionType": "x/y"}, {"conditionType": "x/z"}]},
        "status": {"phase": "Running", "conditions": [{"type": "x/y", "status": "True"}],
            "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [{"name": "a", "restartCount": 2,
                "lastState": {"terminated": {"finishedAt": "2026-01-01T00:04:30Z"}}}]}});
    assert_eq!(first_cells(&pod), "0/1 Terminating 2 (5m30s ago)");
    let cells = cells(&pod, "1s".into(), "2026-01-01T00:10:00Z".parse().unwrap());
    assert_eq!((&cells[4], &cells[7]), (&json!("10.0.0.1"), &json!("1/2")));
    pod["status"]["reason"] = json!("NodeLost");
    assert!(first_cells(&pod).starts_with("0/1 Unknown 2"));
    pod["status"] = json!({"phase": "Succeeded"});
    assert_eq!(first_cells(&pod), "0/1 Succeeded 0");
    assert_eq!(conditions(&pod).unwrap()[0]["reason"], "Succeeded");
}
