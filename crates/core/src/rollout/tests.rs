use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::fixture::nodes;

fn pool(max_unavailable: i64) -> PoolView {
    PoolView {
        name: "worker".to_owned(),
        target: "new".to_owned(),
        phase: PoolPhase::Active,
        max_unavailable,
        operator_node: None,
        neighbour: ControlPlanePeer::default(),
        built_images: BuiltImages::default(),
    }
}

fn starts(pool: &PoolView, before: &str) -> String {
    select(pool, &nodes(before)).starts.join(" ")
}

// covers: NOD-7, NOD-8, NOD-14
#[test]
fn fills_free_slots_and_no_more() {
    let cases = [
        // case, max unavailable, nodes before, nodes selected to start
        ("all idle, one slot", 1, "a=old b=old c=old", "a"),
        ("all idle, two slots", 2, "a=old b=old c=old", "a b"),
        ("a working node holds the slot", 1, "a=working b=old", ""),
        ("a node failing this target does too", 2, "a=failed b=old c=old", "b"),
        ("so does one the admin cordoned", 1, "a=old+cordoned b=old", ""),
        ("finished nodes are free", 2, "a=done b=old c=old d=old", "b c"),
        ("a node that is down holds a slot", 2, "a=done+down b=old c=old", "b"),
        ("a node that failed another config may try this one", 1, "a=failed-other b=done", "a"),
        ("and keeps its place", 1, "b=old a=failed-other", "a"),
        ("a negative limit stops the pool", -1, "a=old b=old", ""),
        ("nothing to do", 1, "a=done b=done", ""),
        ("a node that has not reported holds a slot", 1, "a=silent b=old", ""),
        ("and gets a free one", 2, "a=silent b=done", "a"),
    ];
    for (case, max, before, expected) in cases {
        let plan = select(&pool(max), &nodes(before));
        assert_eq!(plan.starts.join(" "), expected, "{case}\n{plan}");
    }
}

#[test]
fn a_revert_reaches_the_nodes_that_the_change_broke() {
    let cases = [
        // case, max unavailable, nodes before, nodes selected without a slot
        ("updating", 1, "a=working-other b=old", "a"),
        ("updating and cordoned by the controller", 1, "a=working-other+drained b=old", "a"),
        ("not back from its reboot", 1, "a=working-other+lost b=old", "a"),
        ("failed before its drain", 1, "a=failed-other b=old", "a"),
        ("failed after its drain", 1, "a=failed-other+drained b=old", "a"),
        ("went down afterwards", 1, "a=old+down b=old", "a"),
        ("drifted", 1, "a=drifted b=old", "a"),
        ("all that are updating", 1, "a=working-other b=failed-other+drained", "a b"),
        ("idle ones one at a time", 1, "a=old+down b=old+down", "a"),
        ("the most responsive first", 1, "a=old+lost b=old+down c=drifted", "c"),
        ("or two", 2, "a=old+lost b=old+down c=drifted", "c b"),
        ("and none while others are updating", 1, "a=old+down b=working", ""),
        ("or may be", 1, "a=old+down b=faulty", ""),
        ("its daemon has not reported", 1, "a=silent+down", ""),
        ("cordoned by the user", 3, "a=working-other+cordoned b=old+cordoned", ""),
    ];
    for (case, max, before, expected) in cases {
        let plan = select(&pool(max), &nodes(before));
        assert_eq!(plan.repairs.join(" "), expected, "{case}\n{plan}");
    }
}

// covers: NOD-9
#[test]
fn the_first_zone_goes_first_and_its_oldest_node_before_the_others() {
    let before = "a=old@b/1 b=old@a/2 c=old@a/1 d=old/0 e=old@b/0 f=old/2";
    assert_eq!(starts(&pool(1), before), "c");
    assert_eq!(starts(&pool(5), before), "c b e a d");
    assert_eq!(starts(&pool(6), before), "c b e a d f");
}

// covers: NOD-18, NOD-37
#[test]
fn a_paused_or_deleted_pool_starts_nothing_and_says_why() {
    for (phase, why) in [(PoolPhase::Paused, Hold::Paused), (PoolPhase::Deleting, Hold::Deleting)] {
        let pool = PoolView { phase, ..pool(3) };
        let plan = select(&pool, &nodes("a=old b=done c=failed-other+drained"));
        assert_eq!(plan.starts, [""; 0]);
        assert_eq!(plan.holds, [("a".to_owned(), why.clone()), ("c".to_owned(), why)]);
    }
}

// covers: NOD-10
#[test]
fn the_node_of_the_operator_is_updated_last() {
    let master = |max| PoolView {
        name: "master".to_owned(),
        operator_node: Some("b".to_owned()),
        ..pool(max)
    };
    assert_eq!(starts(&master(3), "a=old b=old c=old"), "a c");
    assert_eq!(starts(&master(3), "a=done b=old c=done"), "b");
    assert_eq!(starts(&master(1), "a=done b=old+down c=old"), "b", "unless it is broken");
    let worker = PoolView { name: "worker".to_owned(), ..master(3) };
    assert_eq!(starts(&worker, "a=old b=old"), "a b");
    let plan = select(&master(1), &nodes("a=old b=old"));
    assert_eq!(plan.deferred.as_deref(), Some("b"));
    assert_eq!(plan.passed_over().unwrap(), "Deferring update of machine config operator node b");
}

/// Selects nodes of masters and arbiter, by their states.
fn together(masters: &str, phase: PoolPhase, arbiters: &str) -> (String, String) {
    let fleet = |text| {
        let mut fleet = PoolNodes::with_target("new");
        for node in nodes(text) {
            fleet.set(node);
        }
        fleet
    };
    let master = PoolView { name: "master".to_owned(), phase, ..pool(1) };
    let arbiter = PoolView { name: "arbiter".to_owned(), ..pool(1) };
    let (first, second) =
        choose_control_plane((&master, &mut fleet(masters)), (&arbiter, &mut fleet(arbiters)));
    (first.starts.join(" "), second.starts.join(" "))
}

// covers: NOD-29, NOD-30
#[test]
fn masters_and_arbiter_take_turns() {
    use PoolPhase::{Active, Paused};
    let cases = [
        // case, masters, their phase, arbiter, selected
        ("masters first", "a=old b=old", Active, "x=old", ("a", "")),
        ("arbiter when they are done", "a=done b=done", Active, "x=old", ("", "x")),
        ("not while one works", "a=working b=done", Active, "x=old", ("", "")),
        ("not while one has failed", "a=failed b=done", Active, "x=old", ("", "")),
        ("no master while the arbiter works", "a=old b=old", Active, "x=working", ("", "")),
        ("paused masters have no turn", "a=old b=old", Paused, "x=old", ("", "x")),
        ("but count", "a=old b=old+down", Paused, "x=old", ("", "")),
        ("a change that broke both", "a=old+down b=done", Active, "x=old+down", ("a", "")),
        ("the arbiter's turn", "a=working b=done", Active, "x=old+down", ("", "")),
        ("is taken back", "a=done b=done", Active, "x=old+down", ("", "x")),
    ];
    for (case, masters, phase, arbiter, (first, second)) in cases {
        let selected = together(masters, phase, arbiter);
        assert_eq!(selected, (first.to_owned(), second.to_owned()), "{case}");
    }
}

// covers: NOD-13
#[test]
fn a_plan_names_its_starts_and_the_reasons_of_waiting_nodes() {
    let plan =
        select(&pool(3), &nodes("a=old b=silent+down c=old d=old e=failed-other f=old+cordoned"));
    assert_eq!(
        plan.to_string(),
        "to new: 0 may start\n  e  is repaired\n  \
         a  waits: no free slot: maxUnavailable nodes are unavailable or updating\n  \
         b  waits: node b is reporting NotReady=False\n  \
         c  waits: no free slot: maxUnavailable nodes are unavailable or updating\n  \
         d  waits: no free slot: maxUnavailable nodes are unavailable or updating\n  \
         f  waits: cordoned by the user"
    );
    assert_eq!(plan.started().unwrap(), "Targeted node e to MachineConfig: new");
    let plan = select(&pool(2), &nodes("a=old b=old"));
    assert_eq!(plan.started().unwrap(), "Set target for 2 nodes to MachineConfig: new");
    assert_eq!(select(&pool(1), &nodes("a=done")).started(), None);
}

const STATES: &[&str] =
    &["old", "done", "working", "failed", "failed-other", "working-other", "drifted", "silent"];
const TROUBLES: &[&str] = &["", "", "", "+cordoned", "+drained", "+down", "+lost"];

prop_compose! {
    fn fleet()(
        nodes in prop::collection::vec((0..STATES.len(), 0..TROUBLES.len(), 0..3_u8, 0..4_u8), 0..12)
    ) -> String {
        let word = |(index, (state, trouble, zone, age)): (usize, (usize, usize, u8, u8))| {
            let zone = if zone == 0 { String::new() } else { format!("@z{zone}") };
            format!("n{index}={}{}{zone}/{age}", STATES[state], TROUBLES[trouble])
        };
        nodes.into_iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// Applies the plan to the nodes.
fn after(nodes: &[NodeView], plan: &RolloutPlan) -> Vec<NodeView> {
    let selected: BTreeSet<&String> = plan.starts.iter().collect();
    let tell = |node: &NodeView| {
        let mut node = node.clone();
        if selected.contains(&node.name) {
            node.desired.clone_from(&plan.target);
        }
        node
    };
    nodes.iter().map(tell).collect()
}

fn count(nodes: &[NodeView], counts: impl Fn(&NodeView) -> bool) -> i64 {
    i64::try_from(nodes.iter().filter(|node| counts(node)).count()).unwrap()
}

proptest! {
    #[test]
    fn slots_are_never_exceeded(text in fleet(), max in -1_i64..5) {
        let before = nodes(&text);
        let plan = select(&pool(max), &before);
        let after = after(&before, &plan);
        let under_way = |nodes: &[NodeView]| count(nodes, NodeView::is_updating);
        prop_assert!(under_way(&after) <= max.max(under_way(&before)), "{}", plan);
        let counts = |nodes: &[NodeView]| {
            count(nodes, |node| node.is_unavailable() || node.is_failing())
        };
        prop_assert!(counts(&after) <= max.max(counts(&before)), "{}", plan);
    }

    #[test]
    fn planning_again_starts_nothing_more(text in fleet(), max in -1_i64..5) {
        // Compat: a node that has not reported occupies a slot, and another one when it is
        // targeted.
        let before = nodes(&text.replace("silent", "old"));
        let plan = select(&pool(max), &before);
        let again = select(&pool(max), &after(&before, &plan));
        prop_assert!(again.starts.is_empty(), "first {plan}\nthen {again}");
    }

    #[test]
    fn every_node_that_needs_the_target_is_selected_or_waits(text in fleet(), max in -1_i64..5) {
        let before = nodes(&text);
        let plan = select(&pool(max), &before);
        let held = plan.holds.iter().map(|(node, _)| node);
        let named: Vec<&String> = plan.starts.iter().chain(held).collect();
        let needy = before.iter().filter(|node| !node.is_targeted("new")).map(|node| &node.name);
        prop_assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), needy.collect::<BTreeSet<_>>());
        prop_assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len());
    }

    #[test]
    fn a_cordon_of_the_user_is_never_touched(text in fleet(), max in -1_i64..5) {
        let before = nodes(&text);
        let plan = select(&pool(max), &before);
        let cordoned = before.iter().filter(|node| node.cordon == Cordon::User);
        for node in cordoned {
            prop_assert!(!plan.starts.contains(&node.name), "{}", plan);
        }
    }

    #[test]
    fn incremental_updates_select_the_same_nodes_as_a_fresh_index(
        first in fleet(), second in fleet(), drop in 0..12_usize, max in 0_i64..5
    ) {
        let mut fleet = PoolNodes::with_target("old");
        for node in nodes(&first).into_iter().chain(nodes(&second)) {
            fleet.set(node);
        }
        fleet.remove(&format!("n{drop}"));
        fleet.retarget("new");
        let left: Vec<NodeView> = fleet.nodes().cloned().collect();
        let mut anew = PoolNodes::with_target("new");
        // In order of arrival.
        for index in 0..12 {
            for node in left.iter().filter(|node| node.name == format!("n{index}")) {
                anew.set(node.clone());
            }
        }
        prop_assert_eq!(fleet.select(&pool(max)), anew.select(&pool(max)));
        prop_assert_eq!(fleet.counts(), anew.counts());
        prop_assert_eq!(fleet.counts().unavailable, left.iter().filter(|n| n.is_unavailable()).count());
    }
}
