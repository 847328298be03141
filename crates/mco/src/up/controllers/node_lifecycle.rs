//! Node lifecycle: nodes whose kubelets are silent, their taints, and the pods that leave them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition, Pod, Taint, Toleration},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt as _;

use super::{
    pods::PodView,
    schedule::{self, NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE},
};

/// Validity of a heartbeat, if its Lease does not say.
const GRACE: SignedDuration = SignedDuration::from_secs(40);

/// Time that a node may be not ready before it is tainted. A machine that restarts is back sooner.
const RESTART: SignedDuration = SignedDuration::from_secs(30);

/// Time that a pod without its own toleration stays on a node that is not ready.
const TOLERATION: SignedDuration = SignedDuration::from_secs(300);

/// The last heartbeat of each node, and the time at which this process saw it.
///
/// Times of the Leases are not compared with the clock: those of a cluster that was stopped are old,
/// and its kubelets have just started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeats {
    seen: BTreeMap<String, (Option<Timestamp>, Timestamp)>,
}

impl Heartbeats {
    /// Records the heartbeats, and returns the time since the last one of each node that is stale.
    pub(crate) fn stale(
        &mut self,
        nodes: &[&Node],
        leases: &BTreeMap<String, &Lease>,
        now: Timestamp,
    ) -> Vec<String> {
        let mut stale = Vec::new();
        let mut seen = BTreeMap::new();
        for node in nodes {
            let name = node.name_any();
            let spec = leases.get(&name).and_then(|lease| lease.spec.as_ref());
            let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
            // A kubelet that changes its status lives, too.
            let renewed = renewed.max(reported(node));
            let (beat, since) = match self.seen.remove(&name) {
                Some((beat, since)) if beat == renewed => (beat, since),
                _ => (renewed, now),
            };
            let duration = spec.and_then(|spec| spec.lease_duration_seconds);
            let grace = duration.map_or(GRACE, |it| SignedDuration::from_secs(it.into()));
            if now.duration_since(since) > grace {
                stale.push(name.clone());
            }
            seen.insert(name, (beat, since));
        }
        self.seen = seen;
        stale
    }
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == "Ready")
}

/// Returns the time of the last report of a kubelet in the conditions.
fn reported(node: &Node) -> Option<Timestamp> {
    let ready = ready(node).filter(|it| it.status != "Unknown")?;
    ready.last_heartbeat_time.iter().chain(&ready.last_transition_time).map(|time| time.0).max()
}

/// Returns the conditions of a node whose kubelet is silent; `None` if they are so already.
pub(crate) fn unknown(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    if ready(node).is_some_and(|it| it.status == "Unknown") {
        return None;
    }
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut conditions =
        node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    if ready(node).is_none() {
        conditions.push(NodeCondition { type_: "Ready".to_owned(), ..NodeCondition::default() });
    }
    for condition in &mut conditions {
        "Unknown".clone_into(&mut condition.status);
        condition.reason = Some("NodeStatusUnknown".to_owned());
        condition.message = Some("Kubelet stopped posting node status.".to_owned());
        condition.last_transition_time = Some(now.clone());
    }
    Some(conditions)
}

/// Returns the taints of a node; `None` if it has them already.
pub(crate) fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let ready = ready(node)?;
    let since = ready.last_transition_time.as_ref().map_or(now, |time| time.0);
    let is_long = now.duration_since(since) >= RESTART;
    let key = match ready.status.as_str() {
        "Unknown" => Some(UNREACHABLE),
        "False" if is_long => Some(NOT_READY),
        // Taints of the state before stay until the node is ready or the time is over.
        "False" => return None,
        _ => None,
    };
    let is_ours = |taint: &Taint| [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    let mut after: Vec<Taint> = before.iter().filter(|it| !is_ours(it)).cloned().collect();
    for effect in [NO_SCHEDULE, NO_EXECUTE] {
        let Some(key) = key else { break };
        let found = before.iter().find(|it| it.key == key && it.effect == effect);
        let time_added = (effect == NO_EXECUTE)
            .then(|| Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        let new = || Taint { time_added, ..schedule::taint(key, effect) };
        after.push(found.cloned().unwrap_or_else(new));
    }
    (after != before).then_some(after)
}

/// Returns true if a pod has to leave its node, because it does not tolerate a taint or did so for long
/// enough.
pub(crate) fn is_evicted(pod: &Pod, node: &Node, now: Timestamp) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints = taints.into_iter().flatten().filter(|it| it.effect == NO_EXECUTE);
    PodView::of(pod).is_active() && taints.any(|taint| leaves(pod, taint, now))
}

fn leaves(pod: &Pod, taint: &Taint, now: Timestamp) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let about: Vec<&Toleration> = tolerations.filter(|it| schedule::tolerates(it, taint)).collect();
    let is_ours = [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    let seconds = about.iter().map(|it| it.toleration_seconds);
    let limit = match (about.is_empty(), is_ours) {
        (true, true) => Some(TOLERATION),
        (true, false) => Some(SignedDuration::ZERO),
        // The shortest of several tolerations applies; one without a time is for ever.
        (false, _) => seconds.flatten().min().map(|it| SignedDuration::from_secs(it.max(0))),
    };
    let since = taint.time_added.as_ref().map_or(now, |time| time.0);
    limit.is_some_and(|limit| now.duration_since(since) >= limit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "w0"},
            "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready,
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    fn lease(second: i64) -> Lease {
        let renewed = format!("1970-01-01T00:00:{second:02}.000000Z");
        let spec = json!({"leaseDurationSeconds": 20, "renewTime": renewed});
        serde_json::from_value(json!({"metadata": {"name": "w0"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_node_is_stale_after_the_time_of_its_lease() {
        let mut heartbeats = Heartbeats::default();
        let node = node("True");
        let mut stale = |beat: i64, now: i64| {
            let lease = lease(beat);
            let leases = BTreeMap::from([("w0".to_owned(), &lease)]);
            !heartbeats.stale(&[&node], &leases, at(now)).is_empty()
        };
        assert!(!stale(1, 1000), "the first look tells nothing about the time before");
        assert!(!stale(1, 1020));
        assert!(stale(1, 1021));
        assert!(!stale(2, 1022), "a heartbeat ends it");
    }

    #[test]
    fn taints_follow_the_condition() {
        let shown = |node: &Node, second| {
            let all = taints(node, at(second))?;
            let word = |taint: &Taint| {
                let key = taint.key.rsplit('/').next().unwrap();
                format!("{key}:{}", taint.effect)
            };
            Some(all.iter().map(word).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(shown(&node("True"), 99), None);
        assert_eq!(shown(&node("False"), 5), None, "a machine that restarts");
        let late = "mine:NoSchedule not-ready:NoSchedule not-ready:NoExecute";
        assert_eq!(shown(&node("False"), 30).as_deref(), Some(late));
        let mut silent = node("Unknown");
        let added = taints(&silent, at(0)).unwrap();
        assert_eq!(added[2].key, UNREACHABLE);
        silent.spec.as_mut().unwrap().taints = Some(added);
        assert_eq!(shown(&silent, 9), None, "they are added once");
        silent.status = node("True").status;
        assert_eq!(shown(&silent, 9).as_deref(), Some("mine:NoSchedule"));
    }

    #[test]
    fn the_conditions_of_a_silent_node_are_unknown_once() {
        let mut node = node("True");
        let conditions = unknown(&node, at(7)).unwrap();
        assert_eq!(conditions[0].reason.as_deref(), Some("NodeStatusUnknown"));
        node.status.as_mut().unwrap().conditions = Some(conditions);
        assert_eq!(unknown(&node, at(8)), None);
    }

    #[test]
    fn pods_leave_after_their_toleration() {
        let mut node = node("Unknown");
        node.spec.as_mut().unwrap().taints = taints(&node, at(0));
        let pod = |tolerations| -> Pod {
            let spec = json!({"containers": [], "tolerations": tolerations});
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
        };
        let own = json!([{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 10}]);
        for (case, tolerations, stays, leaves) in [
            ("by default", json!([]), 299, Some(300)),
            ("its own time", own, 9, Some(10)),
            ("for ever", json!([{"operator": "Exists"}]), 9999, None),
        ] {
            let pod = pod(tolerations);
            assert!(!is_evicted(&pod, &node, at(stays)), "{case}");
            assert!(leaves.is_none_or(|it| is_evicted(&pod, &node, at(it))), "{case}");
        }
    }
}
