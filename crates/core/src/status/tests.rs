use mco_api::{machine_config_pool::PoolConfiguration, meta::LooseCondition};

use super::*;
use crate::fixture::nodes;

fn at(text: &str) -> Time {
    serde_json::from_str(&format!("\"{text}\"")).unwrap()
}

fn fixture() -> MachineConfigPool {
    let mut pool = MachineConfigPool::default();
    pool.metadata.name = Some("worker".to_owned());
    pool.metadata.generation = Some(7);
    pool.spec.configuration.rendered.name = "new".to_owned();
    pool
}

fn of(pool: &MachineConfigPool, fleet: &str) -> MachineConfigPoolStatus {
    let now = at("2026-02-02T00:00:00Z");
    let nodes = nodes(fleet);
    super::pool(&Inputs {
        pool,
        nodes: &nodes,
        reports: &[],
        context: StatusContext::default(),
        now,
    })
}

/// Returns `Updated=True: text` for every condition.
fn lines(status: &MachineConfigPoolStatus) -> Vec<String> {
    let line = |c: &LooseCondition| format!("{}={} {}: {}", c.kind, c.status, c.reason, c.message);
    status.conditions.iter().map(line).collect()
}

// covers: NOD-19
#[test]
fn counters_follow_the_nodes() {
    let cases = [
        // nodes; total updated ready unavailable degraded
        ("a=done b=done", [2, 2, 2, 0, 0]),
        ("a=done b=old", [2, 1, 1, 0, 0]),
        ("a=done+down b=old", [2, 1, 0, 1, 0]),
        ("a=working b=old+cordoned c=failed", [3, 0, 0, 2, 1]),
        ("", [0, 0, 0, 0, 0]),
    ];
    for (fleet, expected) in cases {
        let status = of(&fixture(), fleet);
        let found = [
            status.machine_count,
            status.updated_machine_count,
            status.ready_machine_count,
            status.unavailable_machine_count,
            status.degraded_machine_count,
        ];
        assert_eq!(found, expected, "{fleet}");
        assert_eq!(status.observed_generation, 7);
    }
}

// covers: NOD-18, NOD-20, NOD-21, NOD-22
#[test]
fn conditions_follow_the_progress_of_the_pool() {
    let rest =
        |node: &str, overall: &str| [format!("NodeDegraded={node}"), format!("Degraded={overall}")];
    let healthy = rest("False : ", "False : ");
    let paused = {
        let mut pool = fixture();
        pool.spec.paused = true;
        pool
    };
    let broken = "Node c is reporting: \"c is broken\"";
    let cases = [
        (
            &fixture(),
            "a=done",
            "Updated=True : All nodes are updated with MachineConfig new",
            "Updating=False : ",
            healthy.clone(),
        ),
        (
            &fixture(),
            "a=done b=old",
            "Updated=False : ",
            "Updating=True : All nodes are updating to MachineConfig new",
            healthy.clone(),
        ),
        (
            &paused,
            "a=done b=old",
            "Updated=False : ",
            "Updating=False : Pool is paused; will not update to MachineConfig new",
            healthy.clone(),
        ),
        (
            &paused,
            "",
            "Updated=True : All nodes are updated with MachineConfig new",
            "Updating=False : ",
            healthy,
        ),
        (
            &fixture(),
            "b=old c=failed",
            "Updated=False : ",
            "Updating=True : All nodes are updating to MachineConfig new",
            rest(
                &format!("True 1 nodes are reporting degraded status on sync: {broken}"),
                &format!("True : {broken}"),
            ),
        ),
    ];
    for (pool, fleet, updated, updating, degraded) in cases {
        let mut expected = vec![updated.to_owned(), updating.to_owned()];
        expected.extend(degraded);
        assert_eq!(lines(&of(pool, fleet)), expected, "{fleet}");
    }
}

// covers: NOD-22
#[test]
fn a_pool_that_cannot_be_rendered_is_degraded() {
    let mut pool = fixture();
    let conditions = &mut pool.status.get_or_insert_default().conditions;
    let failed = Finding::yes("", "Failed to render configuration for pool worker: x");
    set(conditions, &PoolCondition::RenderDegraded, failed, &at("2026-01-01T00:00:00Z"));
    let status = of(&pool, "a=done");
    assert!(holds(&status.conditions, &PoolCondition::Degraded));
    assert_eq!(status.conditions[0].last_transition_time, Some(at("2026-01-01T00:00:00Z")));
}

// covers: NOD-23
#[test]
fn the_status_config_changes_only_when_all_nodes_have_the_new_one() {
    let mut pool = fixture();
    let mut old = PoolConfiguration::default();
    old.rendered.name = "old".to_owned();
    pool.status.get_or_insert_default().configuration = old;
    assert_eq!(of(&pool, "a=done b=working").configuration.rendered.name, "old");
    assert_eq!(of(&pool, "a=done b=done+down").configuration.rendered.name, "old");
    assert_eq!(of(&pool, "a=done b=done").configuration.rendered.name, "new");
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let (old, new) = (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z"));
    let mut conditions = Vec::new();
    let kind = &PoolCondition::Updating;
    set(&mut conditions, kind, Finding::yes("", "to a"), &old);
    set(&mut conditions, &PoolCondition::Updated, Finding::no("", ""), &old);
    set(&mut conditions, kind, Finding::yes("", "to a"), &new);
    assert_eq!(conditions[0].kind, "Updating", "an equal value does not move");
    set(&mut conditions, kind, Finding::yes("", "to b"), &new);
    assert_eq!(conditions[1].last_transition_time, Some(old));
    set(&mut conditions, kind, Finding::no("", ""), &new);
    assert_eq!(conditions[1].last_transition_time, Some(new));
    assert_eq!(conditions.len(), 2);
}

#[test]
fn machine_config_nodes_are_reported_before_annotations() {
    let degraded = Some("disk full".to_owned());
    let nodes = nodes("a=failed b=failed");
    let reports = [
        MachineConfigNodeView {
            daemon_report: DaemonReport::Present,
            degraded,
            ..MachineConfigNodeView::without_report("a")
        },
        MachineConfigNodeView::without_report("b"),
    ];
    let pool = fixture();
    let now = at("2026-02-02T00:00:00Z");
    let inputs = Inputs {
        pool: &pool,
        nodes: &nodes,
        reports: &reports,
        context: StatusContext::default(),
        now,
    };
    let status = super::pool(&inputs);
    assert_eq!(
        lines(&status)[2],
        "NodeDegraded=True 2 nodes are reporting degraded status on sync: \
         Node a is reporting: \"disk full\", Node a is reporting: \"a is broken\", \
         Node b is reporting: \"b is broken\"",
        "a node without conditions of its daemon has its annotation"
    );
}

#[test]
fn a_message_in_machine_config_node_and_annotation_is_written_once() {
    let degraded = Some("Node a upgrade failure. a is broken".to_owned());
    let reports = [MachineConfigNodeView {
        daemon_report: DaemonReport::Present,
        degraded,
        ..MachineConfigNodeView::without_report("a")
    }];
    let (pool, nodes) = (fixture(), nodes("a=failed"));
    let now = at("2026-02-02T00:00:00Z");
    let inputs = Inputs {
        pool: &pool,
        nodes: &nodes,
        reports: &reports,
        context: StatusContext::default(),
        now,
    };
    assert_eq!(
        lines(&super::pool(&inputs))[2],
        "NodeDegraded=True 1 nodes are reporting degraded status on sync: \
         Node a is reporting: \"a is broken\""
    );
}

mod kept_up_to_date {
    use proptest::prelude::*;

    use super::*;

    const STATES: [&str; 7] =
        ["old", "done", "working", "failed", "failed-other", "silent", "done+down"];

    fn change() -> impl Strategy<Value = (u8, Option<usize>)> {
        (0..12_u8, proptest::option::weighted(0.8, 0..STATES.len()))
    }

    proptest! {
        /// After any sequence of node changes, the incremental counts give the same status as a
        /// scan of all nodes.
        #[test]
        fn incremental_counts_equal_a_full_scan(
            changes in proptest::collection::vec(change(), 0..60),
        ) {
            let pool = fixture();
            let mut counter = StatusCounter::new(&pool, &ImageBuild::default());
            let mut fleet = std::collections::BTreeMap::new();
            for (number, state) in changes {
                let name = format!("n{number:02}");
                if let Some(state) = state.and_then(|state| STATES.get(state)) {
                    let node = nodes(&format!("{name}={state}")).remove(0);
                    let degraded = state.contains("failed").then(|| "broken".to_owned());
                    let daemon_report = if number % 3 == 0 { DaemonReport::Absent } else { DaemonReport::Present };
                    let report = MachineConfigNodeView { daemon_report, degraded, ..MachineConfigNodeView::without_report(&name) };
                    let report = (number % 4 != 0).then_some(report);
                    counter.put(&node, report.as_ref());
                    fleet.insert(name, (node, report));
                } else {
                    counter.remove(&name);
                    fleet.remove(&name);
                }
            }
            let now = at("2026-02-02T00:00:00Z");
            let nodes: Vec<NodeView> = fleet.values().map(|(node, _)| node.clone()).collect();
            let reports: Vec<MachineConfigNodeView> =
                fleet.values().filter_map(|(_, report)| report.clone()).collect();
            let context = StatusContext::default();
            let kept = from_counter(&pool, &counter, &context, &now);
            let inputs = Inputs { pool: &pool, nodes: &nodes, reports: &reports, context, now };
            prop_assert_eq!(kept, super::super::pool(&inputs));
        }
    }
}
