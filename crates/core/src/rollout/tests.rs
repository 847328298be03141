use super::*;
use crate::fixture::nodes;

fn pool(max_unavailable: i64) -> PoolView {
    PoolView {
        name: "worker".to_owned(),
        target: "new".to_owned(),
        phase: Phase::Active,
        max_unavailable,
        operator_node: None,
    }
}

fn starts(pool: &PoolView, before: &str) -> String {
    select(pool, &nodes(before)).starts.join(" ")
}

// covers: NOD-7, NOD-8, NOD-14
#[test]
fn fills_free_slots_and_no_more() {
    let cases = [
        // case, max unavailable, nodes before, nodes told to start
        ("all idle, one slot", 1, "a=old b=old c=old", "a"),
        ("all idle, two slots", 2, "a=old b=old c=old", "a b"),
        ("a working node holds the slot", 1, "a=working b=old", ""),
        ("a node failing this target does too", 2, "a=failed b=old c=old", "b"),
        ("so does one the admin cordoned", 1, "a=old+cordoned b=old", ""),
        ("finished nodes are free", 2, "a=done b=old c=old d=old", "b c"),
        ("a node that is down holds a slot", 2, "a=done+down b=old c=old", "b"),
        ("a node that failed another config may try this one", 1, "a=failed-other b=done", "a"),
        ("a limit below zero stops the pool", -1, "a=old b=old", ""),
        ("nothing to do", 1, "a=done b=done", ""),
        ("a node that has said nothing holds a slot", 1, "a=silent b=old", ""),
    ];
    for (case, max, before, expected) in cases {
        let plan = select(&pool(max), &nodes(before));
        assert_eq!(plan.starts.join(" "), expected, "{case}\n{plan}");
    }
}

// covers: NOD-9
#[test]
fn the_first_zone_goes_first_and_its_oldest_node_before_the_others() {
    let before = "a=old@b/1 b=old@a/2 c=old@a/1 d=old/0 e=old@b/0 f=old/2";
    assert_eq!(starts(&pool(1), before), "c");
    assert_eq!(starts(&pool(5), before), "c b e a d");
    assert_eq!(starts(&pool(6), before), "a b c d e f", "unsorted when all fit");
}

// covers: NOD-18, NOD-37
#[test]
fn a_paused_or_dying_pool_starts_nothing_and_says_so() {
    for (phase, why) in [(Phase::Paused, Hold::Paused), (Phase::Deleting, Hold::Deleting)] {
        let pool = PoolView { phase, ..pool(3) };
        let plan = select(&pool, &nodes("a=old b=done"));
        assert_eq!(plan.starts, [""; 0]);
        assert_eq!(plan.holds, [("a".to_owned(), why)]);
    }
}

// covers: NOD-10
#[test]
fn the_operators_own_node_goes_last() {
    let master = |max| PoolView {
        name: "master".to_owned(),
        operator_node: Some("b".to_owned()),
        ..pool(max)
    };
    assert_eq!(starts(&master(3), "a=old b=old c=old"), "a c");
    assert_eq!(starts(&master(3), "a=done b=old c=done"), "b");
    let worker = PoolView { name: "worker".to_owned(), ..master(3) };
    assert_eq!(starts(&worker, "a=old b=old"), "a b");
    let plan = select(&master(1), &nodes("a=old b=old"));
    assert_eq!(plan.deferred(), Some("b"));
}

// covers: NOD-13
#[test]
fn a_plan_says_what_it_starts_and_why_others_wait() {
    let plan = select(&pool(2), &nodes("a=old b=old+down c=old d=old"));
    assert_eq!(
        plan.to_string(),
        "to new: 1 may start\n  a  starts\n  \
         b  waits: node b is reporting NotReady=False\n  \
         c  waits: no more nodes may be out of service at a time\n  \
         d  waits: no more nodes may be out of service at a time"
    );
    assert_eq!(plan.started().unwrap(), "Targeted node a to MachineConfig: new");
    let plan = select(&pool(2), &nodes("a=old b=old"));
    assert_eq!(plan.started().unwrap(), "Set target for 2 nodes to MachineConfig: new");
    assert_eq!(select(&pool(1), &nodes("a=done")).started(), None);
}

#[test]
fn planning_again_after_the_starts_starts_nothing_more() {
    let pool = pool(2);
    let mut fleet = nodes("a=old b=old c=old d=failed e=old");
    let plan = select(&pool, &fleet);
    assert_eq!(plan.starts, ["a"], "{plan}");
    for node in &mut fleet {
        if plan.starts.contains(&node.name) {
            node.desired.clone_from(&plan.target);
        }
    }
    assert_eq!(select(&pool, &fleet).starts, [""; 0]);
}
