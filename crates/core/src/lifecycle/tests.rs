//! Tables of decisions about a node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mco_api::{
    RenderedName,
    annotation::{DrainVerb, DriftPolicy},
};

use super::{observe::drain_request, *};
use crate::{drift::Drift, machine::Machine};

const LIMITS: Limits = Limits {
    drain: Duration::from_hours(1),
    uncordon: Duration::from_mins(10),
    kubelet: Duration::from_mins(2),
    reboot: Duration::from_mins(10),
    standby: Duration::from_mins(30),
};

fn name(text: &str) -> RenderedName {
    text.parse().unwrap()
}

fn node(text: &str) -> NodeAnnotations {
    let mut annotations = BTreeMap::new();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap();
        let key = format!("machineconfiguration.openshift.io/{key}");
        annotations.insert(key, value.to_owned());
    }
    NodeAnnotations::read(&annotations).unwrap()
}

fn on_disk(current: Option<&str>) -> DiskView {
    DiskView { current: current.map(name), boot_id: "b1".to_owned(), ..DiskView::default() }
}

fn seen(annotations: &str, disk: DiskView, outcome: Outcome) -> Observation {
    Observation { node: Some(node(annotations)), disk, certificates: None, outcome }
}

/// Returns the state of a daemon that has prepared its machine.
fn prepared() -> State {
    State { is_prepared: true, ..State::default() }
}

fn first(annotations: &str, disk: DiskView) -> Action {
    next(prepared(), &seen(annotations, disk, Outcome::Started), &LIMITS, Duration::ZERO).action
}

fn complete(config: &str) -> Action {
    Action::Verify(name(config), Occasion::Complete)
}

fn change(from: &str, to: &str, force: bool) -> Update {
    Update { from: name(from), to: name(to), force }
}

fn update(from: &str, to: &str) -> Action {
    Action::Begin(change(from, to, false))
}

// covers: C27, C39
#[test]
fn the_recorded_config_overrides_the_annotation() {
    let cases = [
        ("currentConfig=a desiredConfig=a state=Done", Some("a"), complete("a")),
        ("currentConfig=a desiredConfig=a state=Degraded", Some("a"), complete("a")),
        ("currentConfig=a desiredConfig=b state=Done", Some("a"), update("a", "b")),
        ("currentConfig=a desiredConfig=b state=Degraded", Some("a"), update("a", "b")),
        ("currentConfig=a desiredConfig=b state=Working", Some("b"), complete("b")),
        ("currentConfig=old desiredConfig=b state=Done", Some("a"), update("a", "b")),
        ("currentConfig=a desiredConfig=b", None, update("a", "b")),
        ("currentConfig=a", Some("a"), Action::Fail(Cause::NoDesiredConfig)),
        ("", None, Action::Adopt),
        (
            "currentConfig=a desiredConfig=a post-config-action=Rebooting",
            Some("a"),
            Action::ClearRebooting,
        ),
    ];
    for (annotations, disk, want) in cases {
        assert_eq!(first(annotations, on_disk(disk)), want, "{annotations} {disk:?}");
    }
}

// covers: C93
#[test]
fn the_force_file_of_a_node_that_is_done_is_removed_once_the_disk_is_verified() {
    let disk = DiskView { force: true, ..on_disk(Some("a")) };
    let done = "currentConfig=a desiredConfig=a state=Done";
    assert_eq!(first(done, disk.clone()), complete("a"), "drift comes first");
    let verified = || Outcome::Verified(name("a"), Occasion::Complete);
    let removed = next(prepared(), &seen(done, disk, verified()), &LIMITS, Duration::ZERO);
    assert_eq!(removed.action, Action::RemoveForceFile(name("a")));
    let disk = on_disk(Some("a"));
    let waits = next(removed.state, &seen(done, disk, Outcome::Done), &LIMITS, Duration::ZERO);
    assert_eq!((waits.action, waits.state.phase), (Action::Wait, Phase::Done));
}

fn unfinished(progress: Progress) -> UnfinishedUpdate {
    UnfinishedUpdate {
        from: "a".to_owned(),
        to: "b".to_owned(),
        began_in: "b1".to_owned(),
        progress,
        deadline: None,
        is_booted: true,
    }
}

fn with_update(boot_id: &str, update: UnfinishedUpdate) -> DiskView {
    DiskView { update: Some(update), boot_id: boot_id.to_owned(), ..on_disk(Some("b")) }
}

// covers: C135
#[test]
fn an_unfinished_update_comes_first() {
    let at = |stage| Progress { stage, done: 2, ..Progress::default() };
    let back = Progress { back_in: Some("b2".to_owned()), ..at(Stage::Returning) };
    let again = Progress { again_in: Some("b2".to_owned()), ..at(Stage::Rebooting) };
    let fallen = |progress| UnfinishedUpdate { is_booted: false, ..unfinished(progress) };
    // The action with a cluster, and the action before the daemon has joined it.
    let reboot = |config: &str| Action::Reboot(config.to_owned());
    let cases = [
        ("b1", unfinished(at(Stage::Applying)), Action::Continue(2), Action::Connect),
        ("b1", unfinished(at(Stage::Undoing)), Action::Undo, Action::Connect),
        ("b1", unfinished(at(Stage::Rebooting)), reboot("b"), Action::Connect),
        ("b2", unfinished(at(Stage::Rebooting)), Action::Close, Action::Connect),
        ("b2", fallen(at(Stage::Rebooting)), Action::ApplyAgain, Action::Connect),
        ("b3", fallen(again), Action::Close, Action::Connect),
        ("b2", unfinished(back.clone()), reboot("a"), reboot("a")),
        ("b3", unfinished(back), Action::Undo, Action::Undo),
    ];
    let annotations = "currentConfig=a desiredConfig=c post-config-action=Rebooting";
    for (boot, update, joined, alone) in cases {
        let case = format!("{boot} {update:?}");
        let disk = with_update(boot, update);
        assert_eq!(first(annotations, disk.clone()), joined, "{case}");
        let alone_seen = Observation { disk, ..Observation::default() };
        let found = next(State::default(), &alone_seen, &LIMITS, Duration::ZERO);
        assert_eq!(found.action, alone, "before joining: {case}");
    }
}

// covers: C54
#[test]
fn a_failed_service_action_is_retried_until_another_config_is_desired() {
    let fault = Some("reload failed".to_owned());
    let kept = Progress { done: 2, fault, ..Progress::default() };
    let disk = |force| DiskView { force, ..with_update("b1", unfinished(kept.clone())) };
    let cases = [
        ("currentConfig=a desiredConfig=b state=Degraded", false, Action::Continue(2)),
        ("currentConfig=a state=Degraded", false, Action::Continue(2)),
        ("currentConfig=a desiredConfig=a state=Degraded", false, Action::Undo),
        ("currentConfig=a desiredConfig=c state=Degraded", false, Action::Undo),
        ("currentConfig=a desiredConfig=b state=Degraded", true, Action::Undo),
    ];
    for (annotations, force, want) in cases {
        assert_eq!(first(annotations, disk(force)), want, "{annotations} {force}");
    }
}

#[test]
fn a_rebooted_config_is_confirmed_or_rolled_back_without_a_cluster() {
    let progress = Progress { stage: Stage::Rebooting, ..Progress::default() };
    let mut update = unfinished(progress);
    update.deadline = Some(Duration::from_mins(1));
    let disk = with_update("b2", update);
    let at = |seconds| Duration::from_secs(seconds);
    let turn = |state, outcome, now| {
        let seen = Observation { disk: disk.clone(), outcome, ..Observation::default() };
        next(state, &seen, &LIMITS, now)
    };
    let health = |kubelet| {
        let (cluster, skipped) = (CheckResult::Passed, CheckResult::Skipped);
        let (network, checks) = (skipped.clone(), skipped);
        Outcome::Health(Health { cluster, network, kubelet, checks })
    };
    let asked = turn(State::default(), Outcome::Started, at(0));
    assert_eq!((asked.action, asked.state.phase), (Action::CheckHealth, Phase::Confirming));
    let kept = turn(asked.state.clone(), health(CheckResult::Passed), at(0));
    assert_eq!(kept.action, Action::Confirm);
    let ill = || health(CheckResult::Failed("ill".to_owned()));
    let waits = turn(asked.state, ill(), at(0));
    // Each start of a daemon counts as ten seconds.
    assert_eq!((waits.action, waits.wait), (Action::RecordWait(at(10)), Wait::Until(at(5))));
    let asked = turn(waits.state, Outcome::Woken(Wake::Deadline), at(49));
    assert_eq!(asked.action, Action::CheckHealth, "an old answer does not count");
    let waits = turn(asked.state.clone(), ill(), at(49));
    assert_eq!(waits.wait, Wait::Until(at(50)));
    let back = turn(asked.state, ill(), at(50));
    assert_eq!(back.action, Action::RollBack("ill".to_owned()));
    assert_eq!(back.state.phase, Phase::RollingBack);
}

// covers: C16, C17
#[test]
fn a_node_without_annotations_gets_those_of_the_file_or_the_record() {
    let mut disk = on_disk(Some("a"));
    let Action::SetInitialAnnotations(annotations) = first("", disk.clone()) else {
        panic!("introduced")
    };
    let view = NodeAnnotations::read(&annotations).unwrap();
    assert_eq!((view.current, view.desired), (Some(name("a")), Some(name("a"))));
    let file = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
    disk.initial_annotations = Some(file.clone());
    assert_eq!(first("", disk), Action::SetInitialAnnotations(file));
}

#[test]
fn force_applies_again_only_on_a_failing_node() {
    let mut disk = on_disk(Some("a"));
    disk.force = true;
    let done = "currentConfig=a desiredConfig=a state=Done";
    assert_eq!(first(done, disk.clone()), complete("a"));
    let degraded = "currentConfig=a desiredConfig=a state=Degraded";
    assert_eq!(first(degraded, disk), Action::Begin(change("a", "a", true)));
}

/// Carries actions out by giving each its outcome, and returns the decisions.
struct Node {
    state: State,
    annotations: String,
    disk: DiskView,
}

impl Node {
    fn new(annotations: &str, disk: DiskView) -> Self {
        Self { state: prepared(), annotations: annotations.to_owned(), disk }
    }

    fn turn(&mut self, outcome: Outcome, seconds: u64) -> (Action, Wait) {
        let seen = seen(&self.annotations, self.disk.clone(), outcome);
        let now = Duration::from_secs(seconds);
        let Decision { state, action, wait } =
            next(std::mem::take(&mut self.state), &seen, &LIMITS, now);
        self.state = state;
        (action, wait)
    }
}

const UPDATE: &str = "currentConfig=a desiredConfig=b state=Done";

/// Returns a node whose update to `b` is planned and needs a drain.
fn planned() -> (Node, (Action, Wait)) {
    let mut node = Node::new(UPDATE, on_disk(Some("a")));
    assert_eq!(node.turn(Outcome::Started, 0).0, update("a", "b"));
    let verify = Action::Verify(name("a"), Occasion::Preflight);
    assert_eq!(node.turn(Outcome::Begun(change("a", "b", false)), 0).0, verify);
    let outcome = Outcome::Verified(name("a"), Occasion::Preflight);
    assert_eq!(node.turn(outcome, 0).0, Action::Plan(change("a", "b", false)));
    let outcome = Outcome::Planned(Planned { drain: true, drain_limit: None });
    let decided = node.turn(outcome, 0);
    (node, decided)
}

#[test]
fn an_update_waits_for_its_drain_and_says_since_when() {
    let (mut node, (action, _)) = planned();
    assert!(matches!(&action, Action::Request(it) if it.to_string() == "drain-b"), "{action:?}");
    node.annotations = format!("{UPDATE} desiredDrain=drain-b lastAppliedDrain=uncordon-a");
    let (action, wait) = node.turn(Outcome::Done, 1);
    assert_eq!((action, wait), (Action::Wait, Wait::Until(LIMITS.drain)));
    let waiting = node.state.waiting();
    assert_eq!(waiting, Some(("drain-b".to_owned(), Duration::ZERO)));
    let (action, _) = node.turn(Outcome::Woken(Wake::Deadline), 3600);
    assert!(matches!(action, Action::Fail(Cause::DrainTimeout { .. })), "{action:?}");
    // A late answer lets the update go on, from its beginning.
    node.annotations = format!("{UPDATE} desiredDrain=drain-b lastAppliedDrain=drain-b");
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 3700).0, update("a", "b"));
    node.turn(Outcome::Begun(change("a", "b", false)), 3700);
    node.turn(Outcome::Verified(name("a"), Occasion::Preflight), 3700);
    let outcome = Outcome::Planned(Planned { drain: true, drain_limit: None });
    assert_eq!(node.turn(outcome, 3700).0, Action::Apply(change("a", "b", false)));
}

#[test]
fn a_drain_is_skipped_where_none_is_needed_or_possible() {
    for (topology, drain) in [("", false), ("controlPlaneTopology=SingleReplica", true)] {
        let mut node = Node::new(&format!("{UPDATE} {topology}"), on_disk(Some("a")));
        node.turn(Outcome::Started, 0);
        node.turn(Outcome::Begun(change("a", "b", false)), 0);
        node.turn(Outcome::Verified(name("a"), Occasion::Preflight), 0);
        let outcome = Outcome::Planned(Planned { drain, drain_limit: None });
        assert_eq!(node.turn(outcome, 0).0, Action::Apply(change("a", "b", false)), "{topology}");
    }
}

#[test]
fn a_change_of_the_disk_or_of_the_desired_config_restarts_the_update() {
    let (mut node, _) = planned();
    node.annotations = format!("{UPDATE} desiredDrain=drain-b");
    assert_eq!(node.turn(Outcome::Done, 0).0, Action::Wait);
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 0).0, Action::Wait, "still drained");
    assert_eq!(node.turn(Outcome::Woken(Wake::Disk), 0).0, update("a", "b"));
    let (mut node, _) = planned();
    node.annotations = "currentConfig=a desiredConfig=c state=Working desiredDrain=drain-b".into();
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 0).0, update("a", "c"));
}

#[test]
fn a_rolled_back_config_is_refused_unless_forced() {
    let back = RolledBackConfig { config: "b".to_owned(), why: "ill".to_owned() };
    let mut node = Node::new(UPDATE, on_disk(Some("a")));
    node.disk.rolled_back = Some(back.clone());
    node.turn(Outcome::Started, 0);
    let (action, _) = node.turn(Outcome::Begun(change("a", "b", false)), 0);
    assert_eq!(action, Action::Fail(Cause::RolledBack(back.clone())));
    // An update that was abandoned before is written in full, but not tried again and again.
    (node.disk.force, node.disk.abandoned) = (true, true);
    let (action, _) = node.turn(Outcome::Woken(Wake::Disk), 1);
    assert_eq!(action, Action::Begin(change("a", "b", true)));
    let (action, _) = node.turn(Outcome::Begun(change("a", "b", true)), 1);
    assert_eq!(action, Action::Fail(Cause::RolledBack(back)));
    node.disk.abandoned = false;
    let (action, _) = node.turn(Outcome::Woken(Wake::Disk), 1);
    assert_eq!(action, Action::Begin(change("a", "b", true)));
    let (action, _) = node.turn(Outcome::Begun(change("a", "b", true)), 1);
    assert_eq!(action, Action::Plan(change("a", "b", true)), "without a preflight check");
}

#[test]
fn a_completed_node_is_verified_asked_uncordoned_and_reported() {
    let done = "currentConfig=a desiredConfig=b state=Working";
    let mut node = Node::new(done, on_disk(Some("b")));
    assert_eq!(node.turn(Outcome::Started, 0).0, complete("b"));
    let verified = Outcome::Verified(name("b"), Occasion::Complete);
    assert_eq!(node.turn(verified, 0).0, Action::CheckKubelet);
    let ill = || Outcome::Kubelet(CheckResult::Failed("ill".to_owned()));
    assert_eq!(node.turn(ill(), 5).1, Wait::Until(Duration::from_secs(6)));
    let waiting = node.state.waiting();
    assert_eq!(waiting, Some(("the kubelet".to_owned(), Duration::from_secs(5))));
    assert_eq!(node.turn(Outcome::Woken(Wake::Deadline), 6).0, Action::CheckKubelet);
    let (action, wait) = node.turn(ill(), 125);
    assert_eq!(action, Action::Fail(Cause::KubeletUnhealthy("ill".to_owned())));
    assert_eq!(wait, Wait::Until(Duration::from_secs(126)));
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 126).0, Action::CheckKubelet);
    let (action, _) = node.turn(Outcome::Kubelet(CheckResult::Passed), 126);
    assert!(matches!(&action, Action::Request(it) if it.to_string() == "uncordon-b"), "{action:?}");
    node.annotations = format!("{done} desiredDrain=uncordon-b lastAppliedDrain=uncordon-b");
    let (action, _) = node.turn(Outcome::Done, 127);
    assert_eq!(action, Action::ReportDone(name("b"), Completion::Update));
    node.annotations = "currentConfig=b desiredConfig=b state=Done".to_owned();
    let (action, wait) = node.turn(Outcome::Reported, 127);
    assert_eq!((action, node.state.phase), (Action::Wait, Phase::Done));
    assert_eq!(wait, Wait::Until(Duration::from_secs(127) + VERIFY_INTERVAL));
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 200).0, Action::Wait, "still verified");
    assert_eq!(node.turn(Outcome::Woken(Wake::Deadline), 2000).0, complete("b"));
}

#[test]
fn a_reboot_that_does_not_happen_is_said_and_retried() {
    let progress = Progress { stage: Stage::Rebooting, done: 2, ..Progress::default() };
    let mut node = Node::new(UPDATE, with_update("b1", unfinished(progress)));
    let reboot = Action::Reboot("b".to_owned());
    assert_eq!(node.turn(Outcome::Started, 0).0, reboot);
    let (action, wait) = node.turn(Outcome::RebootStarted("b".to_owned()), 0);
    assert_eq!((action, wait), (Action::Wait, Wait::Until(LIMITS.reboot)));
    assert_eq!(node.state.waiting(), Some(("the reboot".to_owned(), Duration::ZERO)));
    // Nothing else is begun while the machine goes down.
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 300).0, Action::Wait);
    let (action, _) = node.turn(Outcome::Woken(Wake::Deadline), 600);
    assert!(matches!(action, Action::Fail(Cause::RebootOverdue { .. })), "{action:?}");
    assert_eq!(node.turn(Outcome::Woken(Wake::Deadline), 601).0, reboot);
}

#[test]
fn drift_is_repaired_once_and_then_reported() {
    let config = r#"{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "a"}, "spec": {"config": {"ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": "/etc/a"}]}}}}"#;
    let machine = Arc::new(Machine::read(&serde_json::from_str(config).unwrap()).unwrap());
    let drifted = |policy: DriftPolicy, occasion| {
        let drifts = vec![Drift::Contents("/etc/a".to_owned())];
        let machine = machine.clone();
        Outcome::Drifted(Drifted { config: name("a"), occasion, machine, drifts, policy })
    };
    let done = "currentConfig=a desiredConfig=a state=Done";
    let mut node = Node::new(done, on_disk(Some("a")));
    node.turn(Outcome::Started, 0);
    let (action, _) = node.turn(drifted(DriftPolicy::Heal, Occasion::Complete), 0);
    assert!(matches!(action, Action::Repair(..)), "{action:?}");
    assert_eq!(node.turn(Outcome::Repaired, 0).0, complete("a"));
    let (action, _) = node.turn(drifted(DriftPolicy::Heal, Occasion::Complete), 0);
    let Action::Fail(Cause::Drift { detected, .. }) = action else { panic!("{action:?}") };
    assert_eq!(detected, DriftDetected::AtStart);
    for (occasion, want) in [
        (Occasion::Complete, DriftDetected::WhileRunning),
        (Occasion::Preflight, DriftDetected::BeforeUpdate),
    ] {
        node.state.has_completed = true;
        let (action, _) = node.turn(drifted(DriftPolicy::Degrade, occasion), 0);
        let Action::Fail(Cause::Drift { detected, left, .. }) = action else {
            panic!("{action:?}")
        };
        assert_eq!((detected, left), (want, Some(NotRepaired::Policy)));
    }
}

#[test]
fn retries_are_further_and_further_apart() {
    let mut node = Node::new(UPDATE, on_disk(Some("a")));
    let pauses: Vec<u64> = (0..9)
        .map(|_| match node.turn(Outcome::Failed(Severity::Degraded), 0) {
            (Action::Fail(Cause::Action(Severity::Degraded)), Wait::Until(until)) => {
                until.as_secs()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn the_administrator_forces_a_node_by_an_annotation() {
    let degraded = "currentConfig=a desiredConfig=a state=Degraded";
    let mut node = Node::new(degraded, on_disk(Some("a")));
    node.turn(Outcome::Started, 0);
    node.annotations = format!("{degraded} recover=force");
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 1).0, Action::Force);
    node.disk.force = true;
    degraded.clone_into(&mut node.annotations);
    assert_eq!(node.turn(Outcome::Done, 1).0, Action::Begin(change("a", "a", true)));
}

#[test]
fn a_node_is_forgotten_when_no_update_is_recorded_and_left_alone_from_then_on() {
    let mut node = Node::new(&format!("{UPDATE} recover=forget"), on_disk(Some("a")));
    assert_eq!(node.turn(Outcome::Started, 0).0, Action::Forget);
    node.annotations = format!("{UPDATE} recover=forgotten");
    node.disk = on_disk(None);
    assert_eq!(node.turn(Outcome::Done, 1).0, Action::Wait);
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 2).0, Action::Wait);
    let mut unfinished = Node::new(&format!("{UPDATE} recover=forget"), on_disk(Some("a")));
    unfinished.disk.unreadable = Some("broken".to_owned());
    assert!(!matches!(unfinished.turn(Outcome::Started, 0).0, Action::Forget));
}

#[test]
fn a_node_that_is_forgotten_during_a_drain_withdraws_the_request() {
    let draining = format!("{UPDATE} desiredDrain=drain-b");
    let mut node = Node::new(&format!("{draining} recover=forget"), on_disk(Some("a")));
    let withdrawal = drain_request(DrainVerb::Uncordon, &name("a"));
    assert_eq!(node.turn(Outcome::Started, 0).0, Action::Request(withdrawal));
    // The drain controller does not answer, and need not.
    node.annotations = format!("{UPDATE} desiredDrain=uncordon-a recover=forget");
    assert_eq!(node.turn(Outcome::Done, 0).0, Action::Forget);
    // The update is complete, and not reported yet.
    let mut annotations = BTreeMap::new();
    mco_api::annotation::CURRENT_CONFIG.set(&mut annotations, &name("b"));
    let forgets = format!("{UPDATE} recover=forget");
    assert_eq!(first(&forgets, on_disk(Some("b"))), Action::SetInitialAnnotations(annotations));
    // A crash in between has removed the record of the config.
    let alone = "desiredDrain=drain-b recover=forget";
    let withdrawal = drain_request(DrainVerb::Uncordon, &name("b"));
    assert_eq!(first(alone, on_disk(None)), Action::Request(withdrawal));
}

#[test]
fn a_forgotten_node_that_is_managed_again_is_verified_at_once() {
    let done = "currentConfig=a desiredConfig=a state=Done";
    let mut node = Node::new(done, on_disk(Some("a")));
    node.turn(Outcome::Started, 0);
    let verified = Outcome::Verified(name("a"), Occasion::Complete);
    assert_eq!(node.turn(verified, 0).0, Action::Wait);
    node.annotations = format!("{done} recover=forget");
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 1).0, Action::Forget);
    node.annotations = format!("{done} recover=forgotten");
    node.disk = on_disk(None);
    assert_eq!(node.turn(Outcome::Done, 2).0, Action::Wait);
    node.annotations = done.to_owned();
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 3).0, complete("a"), "it has no record");
}

#[test]
fn an_update_that_cannot_be_read_is_reported_until_it_is_abandoned() {
    let mut node = Node::new(UPDATE, on_disk(Some("a")));
    node.disk.unreadable = Some("damaged".to_owned());
    let stuck = Action::Fail(Cause::UnreadableUpdate("damaged".to_owned()));
    assert_eq!(node.turn(Outcome::Started, 0).0, stuck);
    let alone = Observation { disk: node.disk.clone(), ..Observation::default() };
    let found = next(State::default(), &alone, &LIMITS, Duration::ZERO);
    assert_eq!(found.action, Action::Connect, "only the cluster can be told");
    node.annotations = format!("{UPDATE} recover=abandon");
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 1).0, Action::Abandon);
    node.disk.unreadable = None;
    node.disk.force = true;
    node.annotations = "currentConfig=a desiredConfig=b state=Degraded".to_owned();
    assert_eq!(node.turn(Outcome::Done, 1).0, Action::Begin(change("a", "b", true)));
    // A rollback that fails again and again can be abandoned, too.
    let progress = Progress { stage: Stage::Undoing, done: 2, ..Progress::default() };
    let mut node = Node::new(UPDATE, with_update("b1", unfinished(progress)));
    assert_eq!(node.turn(Outcome::Started, 0).0, Action::Undo);
    node.turn(Outcome::Failed(Severity::Degraded), 0);
    node.annotations = format!("{UPDATE} recover=abandon");
    assert_eq!(node.turn(Outcome::Woken(Wake::Change), 1).0, Action::Abandon);
}
