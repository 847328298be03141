//! Tests that broken plans are rejected and that generated plans always pass.

use proptest::prelude::*;

use super::*;
use crate::{
    fixture::{machine, nodes},
    plan::{self, Circumstances, Force, default_policies},
};

fn plan_of(from: &str, to: &str) -> NodePlan {
    let at = Circumstances::default();
    plan::node(&machine("old", from), &machine("new", to), &default_policies(), &at).unwrap()
}

/// A change that breaks a valid plan.
type Breaking<'a> = &'a dyn Fn(&mut NodePlan);

#[test]
fn every_broken_plan_is_rejected() {
    let good = plan_of("", "/etc/foo=1 a.service=x");
    assert_eq!(node(&good, ApplyMode::Serving), Ok(()));
    let broken = |change: &dyn Fn(&mut NodePlan)| {
        let mut plan = good.clone();
        change(&mut plan);
        node(&plan, ApplyMode::Serving).unwrap_err()
    };
    let cases: [(Breaking<'_>, Violation); 8] = [
        (&|plan| plan.drain = Drain::NotNeeded(String::new()), Violation::RebootWithoutDrain),
        (&|plan| plan.actions = vec![Action::None], Violation::RebootDisagrees),
        (&|plan| plan.steps.push(Step::WriteKeys), Violation::AfterReboot),
        (&|plan| plan.steps.retain(|step| *step != Step::RecordConfig), Violation::Recorded(0)),
        (
            &|plan| plan.steps.insert(0, Step::ReloadSystemd),
            Violation::TooEarly("reload systemd".to_owned()),
        ),
        (
            &|plan| {
                let end = plan.steps.len() - 1;
                plan.steps.insert(end, Step::WriteFile("/x".to_owned()));
            },
            Violation::TooLate("write /x".to_owned()),
        ),
        (
            &|plan| plan.actions = vec![Action::Reboot, Action::Reboot],
            Violation::Twice("reboot".to_owned()),
        ),
        (
            &|plan| {
                plan.steps.retain(|step| !matches!(step, Step::WriteUnit(_) | Step::EnableUnit(_)));
            },
            Violation::MissingStep("unit a.service".to_owned()),
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(broken(change), expected);
    }
    assert!(matches!(broken(&|plan| plan.decisions.clear()), Violation::NoRule(_)));
}

#[test]
fn no_node_starts_on_hold_or_twice() {
    let pool = |phase| PoolView {
        name: "worker".to_owned(),
        target: "new".to_owned(),
        phase,
        max_unavailable: 1,
        operator_node: None,
        neighbour: crate::rollout::ControlPlanePeer::default(),
        built_images: crate::rollout::BuiltImages::default(),
    };
    let fleet = |text: &str| {
        let mut fleet = rollout::PoolNodes::with_target("new");
        for node in nodes(text) {
            fleet.set(node);
        }
        fleet
    };
    let active = pool(rollout::PoolPhase::Active);
    let plan = rollout::select(&active, &nodes("a=old b=old"));
    let idle = fleet("a=old b=old");
    assert_eq!(super::rollout(&plan, &active, &idle), Ok(()));
    let held = super::rollout(&plan, &pool(rollout::PoolPhase::Paused), &idle);
    assert_eq!(held, Err(Violation::OnHold("worker".to_owned())));
    let with = |starts: &[&str]| rollout::RolloutPlan {
        starts: starts.iter().map(|node| (*node).to_owned()).collect(),
        ..plan.clone()
    };
    let too_many = || Err(Violation::TooMany { pool: "worker".to_owned(), limit: 1 });
    let cases = [
        ("a=old b=old", &["a", "a"][..], Err(Violation::InvalidStart("a".to_owned()))),
        ("a=old b=old", &["c"], Err(Violation::InvalidStart("c".to_owned()))),
        ("a=old b=old", &["b"], Err(Violation::StartsAndWaits("b".to_owned()))),
        ("a=old+cordoned", &["a"], Err(Violation::UserCordon("a".to_owned()))),
        ("a=old c=old", &["a", "c"], too_many()),
        ("a=old c=working", &["a"], too_many()),
        ("a=old c=done+down", &["a"], too_many()),
        ("a=working-other", &["a"], too_many()),
    ];
    for (before, starts, expected) in cases {
        assert_eq!(super::rollout(&with(starts), &active, &fleet(before)), expected, "{before}");
    }
    let repair = rollout::RolloutPlan { repairs: vec!["a".to_owned()], ..with(&["a"]) };
    assert_eq!(super::rollout(&repair, &active, &fleet("a=working-other")), Ok(()));
}

/// Parts of a config; a random selection forms one config.
const PARTS: [&str; 16] = [
    "/etc/a=1",
    "/etc/a=2",
    "/etc/b=%61",
    "/etc/b=a",
    "/etc/b=a:600",
    "/etc/containers/policy.json=1",
    "/etc/containers/registries.conf=unqualified-search-registries%3D%5B%5D",
    "/etc/nmstate/openshift/x=1",
    "a.service=x",
    "a.service=y",
    "b.service",
    "iri-registry.service=x",
    "c.service/d.conf=1",
    "key:a",
    "karg:k",
    "os:2",
];

/// Generates a config without duplicate parts.
fn config() -> impl Strategy<Value = String> {
    proptest::collection::vec(0..PARTS.len(), 0..8).prop_map(|picks| {
        let mut names = BTreeSet::new();
        let parts = picks.into_iter().map(|pick| PARTS[pick]).filter(|part| {
            let name = part.split(['=', ':']).next().unwrap_or_default();
            names.insert(name.to_owned())
        });
        parts.collect::<Vec<_>>().join(" ")
    })
}

proptest! {
    /// For any two configs, the plan passes the checks, and planning again after it is applied
    /// gives an empty plan.
    #[test]
    fn plans_are_sound_and_planning_again_is_empty(from in config(), to in config()) {
        let plan = plan_of(&from, &to);
        prop_assert_eq!(node(&plan, ApplyMode::Serving), Ok(()), "{}", plan);
        let again = plan_of(&to, &to);
        prop_assert!(again.diff.is_empty(), "{}", again);
        prop_assert_eq!(&again.actions, &vec![Action::None]);
        prop_assert!(matches!(again.drain, Drain::NotNeeded(_)));
        let left: Vec<&Step> = again.steps.iter().filter(|step| {
            !matches!(step, Step::RecordConfig | Step::ProtectKubeconfig)
        }).collect();
        prop_assert!(left.is_empty(), "{:?}", left);
    }

    /// The rollback plan passes the checks and restarts no service.
    #[test]
    fn rollback_plans_are_sound(from in config(), to in config()) {
        let at = Circumstances { mode: ApplyMode::Rollback, ..Circumstances::default() };
        let policies = default_policies();
        let back = plan::node(&machine("new", &to), &machine("old", &from), &policies, &at).unwrap();
        prop_assert_eq!(node(&back, ApplyMode::Rollback), Ok(()), "{}", back);
        prop_assert!(!back.reboots());
    }

    /// A forced plan writes everything and always ends with a reboot after a drain.
    #[test]
    fn forced_plans_are_sound(to in config()) {
        let at = Circumstances { force: Force::Yes, ..Circumstances::default() };
        let to = machine("new", &to);
        let plan = plan::node(&to, &to, &default_policies(), &at).unwrap();
        prop_assert_eq!(node(&plan, ApplyMode::Serving), Ok(()), "{}", plan);
        prop_assert!(plan.reboots());
    }
}
