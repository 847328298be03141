use serde_json::{Value, json};

use super::*;

fn pool(name: &str, spec: &Value) -> MachineConfigPool {
    let role = format!("node-role.kubernetes.io/{name}");
    let mut pool = json!({
        "metadata": {"name": name},
        "spec": {"nodeSelector": {"matchLabels": {role: ""}}, "configuration": {"name": "rendered-b"}},
        "status": {"conditions": [{"type": "Updating", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    for (member, value) in spec.as_object().unwrap() {
        pool["spec"][member] = value.clone();
    }
    serde_json::from_value(pool).unwrap()
}

/// Builds a worker that runs `rendered-a`, with annotations and whether it is ready and cordoned.
fn node(name: &str, ready: bool, cordoned: bool, annotations: &Value) -> Node {
    let mut all = json!({
        "machineconfiguration.openshift.io/currentConfig": "rendered-a",
        "machineconfiguration.openshift.io/desiredConfig": "rendered-a",
        "machineconfiguration.openshift.io/state": "Done",
    });
    for (key, value) in annotations.as_object().unwrap() {
        all[format!("machineconfiguration.openshift.io/{key}")] = value.clone();
    }
    let status = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": all,
            "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": cordoned},
        "status": {"conditions": [{"type": "Ready", "status": status,
            "lastTransitionTime": "2026-01-01T00:02:00Z"}]},
    }))
    .unwrap()
}

fn idle(name: &str) -> Node {
    node(name, true, false, &json!({}))
}

fn working(name: &str, more: &Value) -> Node {
    let mut annotations = json!({"desiredConfig": "rendered-b", "state": "Working"});
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    node(name, true, true, &annotations)
}

fn blocked(name: &str) -> Node {
    let record = json!({
        "request": "drain-rendered-b", "since": "2026-01-01T00:01:00Z",
        "blockers": [{"pod": "shop/web", "owner": "ReplicaSet web",
            "why": "PodDisruptionBudget shop/keep requires 1 of 1 pods", "since": "2026-01-01T00:01:00Z"}],
    });
    working(name, &json!({"desiredDrain": "drain-rendered-b", "drainRecord": record.to_string()}))
}

fn progress(pool: &MachineConfigPool, nodes: &[Node]) -> Progress {
    let nodes: Vec<&Node> = nodes.iter().collect();
    super::of(Objects { pools: &[pool], nodes: &nodes, reports: &[] })
}

#[test]
fn a_node_that_is_back_from_its_reboot_does_not_apply_again() {
    let drained =
        json!({"desiredDrain": "drain-rendered-b", "lastAppliedDrain": "drain-rendered-b"});
    let uncordoned = json!({"desiredDrain": "uncordon-rendered-b",
        "lastAppliedDrain": "uncordon-rendered-b", "currentConfig": "rendered-b"});
    // The request of the update before.
    let fresh = json!({"desiredDrain": "uncordon-rendered-a",
        "lastAppliedDrain": "uncordon-rendered-a"});
    let mut rebooted = completed("n", 3);
    for condition in &mut rebooted.status.as_mut().unwrap().conditions {
        "RebootedNode".clone_into(&mut condition.type_);
    }
    let rows = [
        (&drained, None, Phase::Applying, "its daemon, which applies the config"),
        (&drained, Some(&rebooted), Phase::Rebooting, "its daemon, which verifies the config"),
        (&uncordoned, Some(&rebooted), Phase::Uncordoning, "the controller, which uncordons it"),
        (&fresh, None, Phase::Applying, "its daemon, which applies the config"),
    ];
    let pool = pool("worker", &json!({}));
    for (annotations, report, phase, waits_for) in rows {
        let node = working("n", annotations);
        let reports: Vec<&MachineConfigNode> = report.into_iter().collect();
        let found = super::of(Objects { pools: &[&pool], nodes: &[&node], reports: &reports });
        let found = &found.nodes[0];
        assert_eq!((found.phase, found.waits_for.as_deref()), (phase, Some(waits_for)));
    }
}

#[test]
fn a_blocked_drain_names_cause_and_remedy_once() {
    let rows = [
        (
            "PodDisruptionBudget shop/keep requires 1 of 1 pods and never allows an eviction; add a \
             replica or lower the budget",
            "blocked by pod shop/web: PodDisruptionBudget shop/keep requires 1 of 1 pods and never \
             allows an eviction; add pods of ReplicaSet web, or lower the budget with `kubectl -n shop \
             edit pdb keep`; the drain then continues by itself",
        ),
        (
            "PodDisruptionBudgets shop/a and shop/b select the pod, and Kubernetes evicts no pod that \
             more than one selects; change their selectors so that one remains",
            "blocked by pod shop/web: PodDisruptionBudgets shop/a and shop/b select the pod, and \
             Kubernetes evicts no pod that more than one selects; change their selectors so that one \
             remains; the drain then continues by itself",
        ),
    ];
    for (why, want) in rows {
        let record = json!({"request": "drain-rendered-b", "since": "2026-01-01T00:01:00Z",
            "blockers": [{"pod": "shop/web", "owner": "ReplicaSet web", "why": why,
                "since": "2026-01-01T00:01:00Z"}]});
        let drain = json!({"desiredDrain": "drain-rendered-b", "drainRecord": record.to_string()});
        let found = progress(&pool("worker", &json!({})), &[working("a", &drain)]);
        let sentence = found.sentences().join("\n");
        assert_eq!(sentence, format!("node a is draining since 2026-01-01T00:01:00Z, {want}"));
    }
}

#[test]
fn each_phase_names_what_the_node_waits_for() {
    let asked = json!({"desiredDrain": "drain-rendered-b"});
    let drained =
        json!({"desiredDrain": "drain-rendered-b", "lastAppliedDrain": "drain-rendered-b"});
    let back = json!({"desiredDrain": "uncordon-rendered-b", "lastAppliedDrain": "drain-rendered-b",
        "currentConfig": "rendered-b", "state": "Working"});
    let done = json!({"currentConfig": "rendered-b", "desiredConfig": "rendered-b"});
    let mut down = working("n", &drained);
    down.status = node("n", false, false, &json!({})).status;
    let mut silent = idle("n");
    silent.metadata.annotations = None;
    let rows = [
        (node("n", true, false, &done), Phase::Done, None),
        (node("n", true, true, &done), Phase::Done, None),
        (idle("n"), Phase::Starting, Some("its daemon")),
        (working("n", &asked), Phase::Draining, Some("the eviction of its pods")),
        (working("n", &drained), Phase::Applying, Some("its daemon, which applies the config")),
        (down, Phase::Rebooting, Some("its kubelet")),
        (working("n", &back), Phase::Uncordoning, Some("the controller, which uncordons it")),
        (silent, Phase::Unknown, Some("the first report of the daemon")),
    ];
    for (node, phase, waits_for) in rows {
        let progress = progress(&pool("worker", &json!({})), &[node]);
        let found = &progress.nodes[0];
        assert_eq!((found.phase, found.waits_for.as_deref()), (phase, waits_for), "{found:?}");
        assert_eq!(progress.pools[0].done, usize::from(phase == Phase::Done));
        assert_eq!(progress.is_done(), phase == Phase::Done);
    }
}

#[test]
fn a_waiting_node_names_the_cause_and_never_promises_a_turn() {
    let plain = pool("worker", &json!({}));
    let text =
        |pool: &MachineConfigPool, nodes: &[Node]| progress(pool, nodes).sentences().join("\n");
    assert_eq!(
        text(&plain, &[working("a", &json!({})), idle("b"), idle("c")]),
        "nodes b, c are waiting since 2026-01-01T00:00:00Z for a free slot (maxUnavailable 1, a is \
         updating); no action needed"
    );
    assert_eq!(
        text(&plain, &[blocked("a"), idle("b")]),
        "node a is draining since 2026-01-01T00:01:00Z, blocked by pod shop/web: PodDisruptionBudget \
         shop/keep requires 1 of 1 pods; add pods of ReplicaSet web, or lower the budget with `kubectl \
         -n shop edit pdb keep`; the drain then continues by itself\n\
         node b is waiting since 2026-01-01T00:00:00Z for a free slot (maxUnavailable 1, a is draining \
         and blocked); fix node a first: add pods of ReplicaSet web, or lower the budget with `kubectl \
         -n shop edit pdb keep`; the drain then continues by itself"
    );
    let failed =
        json!({"desiredConfig": "rendered-b", "state": "Degraded", "reason": "it is broken"});
    assert_eq!(
        text(&plain, &[node("a", true, false, &failed), idle("b")]),
        "node a is degraded: it is broken; fix the cause, or revert the change with `mco rollout undo \
         worker`: the node then gets the pool's config again\n\
         node b is waiting since 2026-01-01T00:00:00Z for a free slot (maxUnavailable 1, a is \
         degraded); fix node a first: fix the cause, or revert the change with `mco rollout undo \
         worker`: the node then gets the pool's config again"
    );
    assert_eq!(
        text(&plain, &[node("a", true, true, &json!({})), idle("b")]),
        "node a is waiting since 2026-01-01T00:00:00Z: cordoned by the user; run `mco node uncordon a` \
         to continue\n\
         node b is waiting since 2026-01-01T00:00:00Z for a free slot (maxUnavailable 1, a is \
         unavailable); fix node a first: run `mco node uncordon a` to continue"
    );
    assert_eq!(
        text(&pool("worker", &json!({"paused": true})), &[idle("a"), idle("b")]),
        "nodes a, b are waiting since 2026-01-01T00:00:00Z: the pool is paused; run `mco rollout resume \
         worker` to continue"
    );
    assert_eq!(
        text(&plain, &[node("a", false, false, &json!({})), idle("b")]),
        "node a is waiting since 2026-01-01T00:02:00Z: node a is reporting NotReady=False; make node a \
         ready: `kubectl describe node a` shows its conditions\n\
         node b is waiting since 2026-01-01T00:00:00Z for a free slot (maxUnavailable 1, a is \
         unavailable); fix node a first: make node a ready: `kubectl describe node a` shows its \
         conditions"
    );
}

/// Builds the MachineConfigNode of a node that the controller does not start.
fn waiting(name: &str, reason: &str, message: &str) -> MachineConfigNode {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"node": {"name": name}, "pool": {"name": "worker"},
                 "configVersion": {"desired": "rendered-a"}},
        "status": {"conditions": [{"type": "Waiting", "status": "True", "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:03:00Z"}]},
    }))
    .unwrap()
}

#[test]
fn reasons_that_only_the_controller_knows_come_from_its_report() {
    let broken = "MachineOSConfig x cannot be decoded";
    let rows = [
        (
            waiting("a", "Undecodable", &format!("Node waits for rendered-b: {broken}")),
            "node a is waiting since 2026-01-01T00:03:00Z: MachineOSConfig x cannot be decoded; repair \
             or delete that object",
        ),
        (
            waiting("a", "ControlPlane", "Node waits for rendered-b: x"),
            "node a is waiting since 2026-01-01T00:03:00Z: masters and arbiter are never updated \
             together; no action needed",
        ),
        // The report is about an earlier target.
        (waiting("a", "Undecodable", "Node waits for rendered-a: x"), ""),
    ];
    let (pool, node) = (pool("worker", &json!({})), idle("a"));
    for (report, want) in rows {
        let objects = Objects { pools: &[&pool], nodes: &[&node], reports: &[&report] };
        let found = super::of(objects);
        assert_eq!(found.sentences().join("\n"), want);
        let phase = if want.is_empty() { Phase::Starting } else { Phase::Waiting };
        assert_eq!(found.nodes[0].phase, phase);
    }
}

#[test]
fn nodes_in_the_same_situation_share_a_sentence_with_the_earliest_start() {
    let pool = pool("worker", &json!({"paused": true}));
    let nodes = ["a", "b", "c", "d", "e"].map(idle);
    let nodes: Vec<&Node> = nodes.iter().collect();
    let mut report = waiting("d", "PoolPaused", "Node waits for rendered-b: the pool is paused");
    let conditions = &mut report.status.as_mut().unwrap().conditions;
    conditions[0].last_transition_time = serde_json::from_str("\"2025-12-31T23:59:00Z\"").unwrap();
    let found = super::of(Objects { pools: &[&pool], nodes: &nodes, reports: &[&report] });
    assert_eq!(
        found.sentences(),
        [
            "nodes a, b, c and 2 more are waiting since 2025-12-31T23:59:00Z: the pool is paused; run \
          `mco rollout resume worker` to continue"
        ]
    );
}

#[test]
fn a_missing_builder_is_named_with_the_way_out() {
    let mut pool = pool("worker", &json!({}));
    let unsupported = json!({"type": "ImageModeUnsupported", "status": "True",
        "message": "no process builds images for MachineOSConfig x"});
    let conditions = &mut pool.status.get_or_insert_default().conditions;
    conditions.push(serde_json::from_value(unsupported).unwrap());
    let built = json!({"currentImage": "example.com/built@sha256:0", "desiredImage":
        "example.com/built@sha256:0"});
    let nodes = [node("a", true, false, &built)];
    assert_eq!(
        progress(&pool, &nodes).sentences().join("\n"),
        "pool worker is restricted: no process builds images for MachineOSConfig x; delete the \
         MachineOSConfig, which returns nodes with a built image to the image of their config: `mco get \
         machineosconfigs` lists it\n\
         node a is waiting since 2026-01-01T00:00:00Z: the node runs a built OS image and keeps it: no \
         process builds images for the pool's MachineOSConfig; delete the MachineOSConfig of pool \
         worker to leave image mode: `mco get machineosconfigs` lists it"
    );
}

#[test]
fn the_numbers_of_a_pool_count_the_phases_of_its_nodes() {
    let done = json!({"currentConfig": "rendered-b", "desiredConfig": "rendered-b"});
    let failed = json!({"desiredConfig": "rendered-b", "state": "Degraded", "reason": "x"});
    let nodes =
        [node("a", true, false, &done), blocked("b"), node("c", true, false, &failed), idle("d")];
    let progress = progress(&pool("worker", &json!({"maxUnavailable": 2})), &nodes);
    let phases: Vec<Phase> = progress.nodes.iter().map(|node| node.phase).collect();
    assert_eq!(phases, [Phase::Done, Phase::Draining, Phase::Degraded, Phase::Waiting]);
    let pool = &progress.pools[0];
    assert_eq!((pool.machines, pool.done, pool.updating, pool.degraded), (4, 1, 1, 1));
    assert!(!progress.is_done());
}

#[test]
fn a_part_has_one_pool_with_its_nodes_or_one_node_with_its_pool() {
    let (worker, master) = (pool("worker", &json!({})), pool("master", &json!({})));
    let mut other = idle("m");
    other.metadata.labels =
        Some([("node-role.kubernetes.io/master".to_owned(), String::new())].into());
    let mut stranger = idle("x");
    stranger.metadata.labels = None;
    let nodes = [idle("a"), idle("b"), other, stranger];
    let nodes: Vec<&Node> = nodes.iter().collect();
    let all = super::of(Objects { pools: &[&worker, &master], nodes: &nodes, reports: &[] });
    let names = |part: &Progress| {
        let pools = part.pools.iter().map(|pool| pool.name.as_str());
        let nodes = part.nodes.iter().map(|node| node.name.as_str());
        pools.chain(nodes).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&all), "master worker a b m x");
    for (name, want) in [("worker", "worker a b"), ("m", "master m"), ("x", "x")] {
        assert_eq!(names(&all.about(name).unwrap()), want);
    }
    assert_eq!(all.about("typo"), None);
    assert!(
        all.sentences().contains(
            &"node x is not updated: no pool selects the node; label the node, for example with \
          `kubectl label node NODE node-role.kubernetes.io/worker=`"
                .to_owned()
        )
    );
}

/// Builds the MachineConfigNode of a node that completed its update at a minute.
fn completed(name: &str, minute: u32) -> MachineConfigNode {
    let at = format!("2026-01-01T00:{minute:02}:00Z");
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"node": {"name": name}, "pool": {"name": "worker"},
                 "configVersion": {"desired": "rendered-a"}},
        "status": {"conditions": [{"type": "Updated", "status": "True", "reason": "Updated",
            "message": "", "lastTransitionTime": at}]},
    }))
    .unwrap()
}

#[test]
fn the_time_left_follows_the_pace_of_the_fleet() {
    let done = json!({"currentConfig": "rendered-b", "desiredConfig": "rendered-b"});
    let done = |name: &str| node(name, true, false, &done);
    let left = |spec: &Value, nodes: &[Node], reports: &[MachineConfigNode]| {
        let nodes: Vec<&Node> = nodes.iter().collect();
        let reports: Vec<&MachineConfigNode> = reports.iter().collect();
        let pool = pool("worker", spec);
        let found = super::of(Objects { pools: &[&pool], nodes: &nodes, reports: &reports });
        found.pools[0].left.map(|left| (left.seconds / 60, left.pace_of))
    };
    let plain = json!({});
    // The roll-out began at minute 0: two nodes took 8 minutes, and one is left.
    let nodes = [done("a"), done("b"), working("c", &json!({}))];
    let reports = [completed("a", 3), completed("b", 8)];
    assert_eq!(left(&plain, &nodes, &reports), Some((4, PaceOf::ThisUpdate)));
    // No node is done: the roll-out before took 6 minutes from the first node to the third.
    let nodes = [idle("a"), idle("b"), idle("c"), working("d", &json!({}))];
    let reports = [completed("a", 1), completed("b", 4), completed("c", 7)];
    assert_eq!(left(&plain, &nodes, &reports), Some((12, PaceOf::LastUpdate)));
    // Nothing is known, or nothing continues by itself.
    assert_eq!(left(&plain, &nodes, &[]), None);
    assert_eq!(left(&plain, &nodes, &reports[..1]), None);
    assert_eq!(left(&json!({"paused": true}), &nodes, &reports), None);
    let nodes = [done("a"), done("b"), blocked("c"), idle("d")];
    assert_eq!(left(&plain, &nodes, &[completed("a", 3), completed("b", 8)]), None);
    assert_eq!(left(&plain, &[done("a")], &[completed("a", 3)]), None, "all nodes are done");
}
