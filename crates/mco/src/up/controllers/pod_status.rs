//! The status of pods on simulated machines, whose containers run no processes.

use std::{collections::BTreeSet, net::Ipv4Addr};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    pods::{Phase, PodView},
    schedule::NodeView,
};

/// Time that a container runs that is not restarted.
pub(crate) const RUN_TIME: SignedDuration = SignedDuration::from_secs(1);

/// First address of pods.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
/// Number of addresses of pods.
const ADDRESSES: u32 = 1 << 18;

/// The next state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    Running { is_ready: bool },
    Succeeded,
}

/// Returns the state that the kubelet of a pod reports next; `None` if it is reported already.
pub(crate) fn next(pod: &Pod, node: &NodeView, now: Timestamp) -> Option<PodState> {
    let view = PodView::of(pod);
    if !view.is_active() {
        return None;
    }
    let spec = pod.spec.as_ref();
    let is_restarted =
        spec.and_then(|it| it.restart_policy.as_deref()).is_none_or(|it| it == "Always");
    let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let has_run = start.is_some_and(|start| now.duration_since(start.0) >= RUN_TIME);
    match view.phase {
        Phase::Running if !is_restarted && has_run && node.is_ready => Some(PodState::Succeeded),
        Phase::Running if view.is_ready != node.is_ready => {
            Some(PodState::Running { is_ready: node.is_ready })
        }
        Phase::Running if is_unreported(pod) => Some(PodState::Running { is_ready: view.is_ready }),
        Phase::Pending if node.is_ready => Some(PodState::Running { is_ready: true }),
        Phase::Pending | Phase::Running | Phase::Succeeded | Phase::Failed => None,
    }
}

/// Returns true if another program set the phase and no kubelet has reported the containers.
fn is_unreported(pod: &Pod) -> bool {
    pod.status.as_ref().is_none_or(|status| status.container_statuses.is_none())
}

/// Returns true if the pod ends by itself.
pub(crate) fn is_ending(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|it| it.restart_policy.as_deref());
    policy.is_some_and(|it| it != "Always") && PodView::of(pod).is_active()
}

/// Returns a free address for a pod, which depends on its UID.
pub(crate) fn address(pod: &Pod, taken: &BTreeSet<String>) -> Option<String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let seed = uid.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let at = |step: u32| Ipv4Addr::from(FIRST_ADDRESS + seed.wrapping_add(step) % ADDRESSES);
    (0..ADDRESSES).map(|step| at(step).to_string()).find(|address| !taken.contains(address))
}

/// Returns the status of a pod in a state.
pub(crate) fn status(
    pod: &Pod,
    node: &NodeView,
    state: PodState,
    address: Option<String>,
    now: Timestamp,
) -> Value {
    let before = pod.status.clone().unwrap_or_default();
    let is_ready = state == PodState::Running { is_ready: true };
    let seconds = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let start = before.start_time.as_ref().map_or(now, |time| time.0);
    let (started, ended) = (seconds(start), seconds(now));
    let (phase, run) = match state {
        PodState::Running { .. } => ("Running", json!({"running": {"startedAt": started}})),
        PodState::Succeeded => (
            "Succeeded",
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started,
                "finishedAt": ended}}),
        ),
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let containers: Vec<Value> = containers
        .map(|it| {
            json!({"name": it.name, "ready": is_ready, "started": is_ready, "restartCount": 0,
                "image": it.image, "imageID": "", "state": run})
        })
        .collect();
    let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    let own = before.pod_ip.clone().or(if is_on_host { node.address.clone() } else { address });
    let word = |holds: bool| if holds { "True" } else { "False" };
    let kept = |kind: &str, status: &str| {
        let conditions = before.conditions.as_ref().into_iter().flatten();
        let mut same = conditions.filter(|it| it.type_ == kind && it.status == status);
        let since = same.next().and_then(|it| it.last_transition_time.as_ref());
        let since = seconds(since.map_or(now, |time| time.0));
        json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since})
    };
    let reason = |mut condition: Value| {
        if let Some(members) = condition.as_object_mut().filter(|_| state == PodState::Succeeded) {
            members.insert("reason".to_owned(), json!("PodCompleted"));
        }
        condition
    };
    json!({
        "phase": phase,
        "startTime": started,
        "hostIP": node.address,
        "hostIPs": node.address.iter().map(|it| json!({"ip": it})).collect::<Vec<_>>(),
        "podIP": own,
        "podIPs": own.iter().map(|it| json!({"ip": it})).collect::<Vec<_>>(),
        "conditions": [kept("PodScheduled", "True"), kept("Initialized", "True"),
            reason(kept("ContainersReady", word(is_ready))), reason(kept("Ready", word(is_ready)))],
        "containerStatuses": containers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::controllers::schedule;

    fn pod(policy: &str, phase: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": phase, "startTime": "1970-01-01T00:00:10Z",
                "containerStatuses": [],
                "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_follows_its_node() {
        let nodes = schedule::tests::nodes("w0 w1!");
        let (up, down) = (&nodes[0], &nodes[1]);
        let running = |is_ready| Some(PodState::Running { is_ready });
        for (case, policy, phase, ready, node, second, want) in [
            ("starts", "Always", "Pending", "False", up, 10, running(true)),
            ("not on a node that is down", "Always", "Pending", "False", down, 10, None),
            ("runs", "Always", "Running", "True", up, 99, None),
            ("fails with its node", "Always", "Running", "True", down, 99, running(false)),
            ("returns with it", "Always", "Running", "False", up, 99, running(true)),
            ("runs for a while", "Never", "Running", "True", up, 10, None),
            ("and ends", "Never", "Running", "True", up, 11, Some(PodState::Succeeded)),
            ("for good", "Never", "Succeeded", "False", up, 99, None),
        ] {
            let now = Timestamp::from_second(second).unwrap();
            assert_eq!(next(&pod(policy, phase, ready), node, now), want, "{case}");
        }
    }

    #[test]
    fn two_pods_have_two_addresses() {
        let first = address(&pod("Always", "Pending", "False"), &BTreeSet::new()).unwrap();
        let taken = BTreeSet::from([first.clone()]);
        let second = address(&pod("Always", "Pending", "False"), &taken).unwrap();
        assert!(first != second && second.starts_with("10."), "{first} {second}");
    }

    #[test]
    fn the_status_keeps_what_has_not_changed() {
        let node = &schedule::tests::nodes("w0")[0];
        let pod = pod("Always", "Running", "False");
        let state = PodState::Running { is_ready: true };
        let now = Timestamp::from_second(60).unwrap();
        let status = status(&pod, node, state, Some("10.128.0.1".to_owned()), now);
        assert_eq!(status["startTime"], "1970-01-01T00:00:10Z");
        assert_eq!(status["conditions"][3]["lastTransitionTime"], "1970-01-01T00:01:00Z");
        assert_eq!(status["podIP"], "10.128.0.1");
        assert_eq!(status["containerStatuses"][0]["image"], "i");
    }
}
