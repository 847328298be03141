//! A machine keeps the config that it has rebooted into only once it proves healthy.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mco_apply::{
    confirm::{
        self,
        standby::{self, Program},
    },
    execute::{self, Outcome},
    ledger::{self, Resume},
};
use mco_cluster::Shutdown;
use mco_daemon::{
    DaemonExit,
    startup::{Confirmation, Probe, confirm_or_roll_back, stand_by as await_daemon},
};
use mco_host::{
    CheckResult, Host, Root, SimulatedSystem, System as _,
    fault::{Fault, Faults},
};

use crate::crash::{
    Ways, begin, create_machine, faulty, folder, new, open, recover, system, tree, ways,
};

const HEALTH: &str = "kubelet healthz";
const MINUTE: Duration = Duration::from_mins(1);
/// Time left of a minute once the daemon has started. The clock is paused and advances only while a
/// task sleeps.
const LEFT: Duration = Duration::from_secs(50);

/// A cluster that can be reached from the probe with this number on.
struct Reachable {
    from: usize,
    asked: AtomicUsize,
}

impl Reachable {
    fn from(from: usize) -> Self {
        Self { from, asked: AtomicUsize::new(0) }
    }
}

impl Probe for Reachable {
    async fn check_api_server(&self) -> CheckResult {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= self.from {
            CheckResult::Passed
        } else {
            CheckResult::Failed("failed to reach the API server".to_owned())
        }
    }
}

/// Returns a machine that is about to reboot into the new config.
fn applied(folder: &Path, deadline: Duration) -> Host<SimulatedSystem> {
    create_machine(folder);
    let mut host = open(Root::open(folder).unwrap());
    host.system.call_log().answer(HEALTH);
    confirm::prepare(&host, deadline).unwrap();
    assert_eq!(begin(&mut host).unwrap(), Outcome::RebootDue);
    host
}

/// Returns a machine that has just rebooted into the new config.
fn rebooted(folder: &Path, deadline: Duration) -> Host<SimulatedSystem> {
    reboot(applied(folder, deadline))
}

fn reboot(mut host: Host<SimulatedSystem>) -> Host<SimulatedSystem> {
    execute::reboot(&mut host, "rendered-worker-new").unwrap();
    host.system.boot().unwrap();
    host
}

/// Returns the tree without the records of the attempt.
fn without_notes(mut tree: BTreeMap<String, String>) -> BTreeMap<String, String> {
    tree.retain(|name, _| !name.contains("mco-taken-back") && !name.contains("mco-confirm"));
    tree
}

fn assert_back(folder: &Path, ways: &Ways, at: &str) {
    similar_asserts::assert_eq!(without_notes(tree(folder)), ways.old, "{}", at);
    assert_eq!(system(folder), ways.old_system, "{at}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_gets_healthy_in_time_keeps_its_config() {
    for asked in [0, 1] {
        let folder = folder();
        let host = rebooted(folder.path(), MINUTE);
        let probe = Reachable::from(asked);
        let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
        let Confirmation::Proceed(host) = settled else { panic!("{settled:?}") };
        let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
        assert!(progress.confirmed);
        let booted = host.system.facts().unwrap().boot_id;
        assert_eq!(ledger::resume(&progress, &update.boot_id, &booted), Resume::Verify);
        // The next daemon of this boot probes nothing any longer.
        let probe = Reachable::from(usize::MAX);
        let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
        assert!(matches!(settled, Confirmation::Proceed(_)), "{settled:?}");
        recover(folder.path());
        assert_eq!(without_notes(tree(folder.path())), ways().new);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_machine_rolls_back_and_does_not_retry() {
    let ways = ways();
    let name = "rendered-worker-new";
    for (fault, want) in [("kubelet healthz", "kubelet healthz fails"), ("", "failed to reach")] {
        let folder = folder();
        let host = rebooted(folder.path(), MINUTE);
        host.system.call_log().fail(fault);
        let probe = Reachable::from(if fault.is_empty() { usize::MAX } else { 0 });
        let before = tokio::time::Instant::now();
        let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
        assert!(matches!(settled, Confirmation::Exit(DaemonExit::Rebooting)), "{settled:?}");
        assert_eq!(before.elapsed(), LEFT, "not before the deadline");

        let mut host = open(Root::open(folder.path()).unwrap());
        assert!(host.system.wants_reboot());
        // A daemon that starts again before the machine is down requests the reboot again.
        let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
        assert!(matches!(settled, Confirmation::Exit(DaemonExit::Rebooting)), "{settled:?}");
        host = open(Root::open(folder.path()).unwrap());
        host.system.boot().unwrap();
        let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
        let Confirmation::Proceed(host) = settled else { panic!("{settled:?}") };
        assert_back(folder.path(), &ways, fault);
        assert!(ledger::open(&host.root).unwrap().is_none());
        let back = confirm::refusal(&host.root, name, false).unwrap().unwrap();
        assert!(back.why.contains(want), "{back:?}");
        assert_eq!(confirm::refusal(&host.root, name, true).unwrap(), None, "forced");
    }
}

/// Gives the machine a default route, or none.
fn set_routes(folder: &Path, routes: &str) {
    fs::create_dir_all(folder.join("proc/net")).unwrap();
    fs::write(folder.join("proc/net/route"), format!("Iface Destination Gateway\n{routes}"))
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cluster_is_no_proof_against_a_config_if_the_network_works() {
    const DEFAULT: &str = "eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n";
    for (after, is_kept) in [(DEFAULT, true), ("", false)] {
        let folder = folder();
        create_machine(folder.path());
        set_routes(folder.path(), DEFAULT);
        let mut host = open(Root::open(folder.path()).unwrap());
        host.system.call_log().answer(HEALTH);
        confirm::prepare(&host, MINUTE).unwrap();
        assert_eq!(begin(&mut host).unwrap(), Outcome::RebootDue);
        let host = reboot(host);
        set_routes(folder.path(), after);
        let (probe, before) = (Reachable::from(usize::MAX), tokio::time::Instant::now());
        let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
        assert_eq!(before.elapsed(), LEFT, "the cluster has the whole time to come back");
        match settled {
            Confirmation::Proceed(host) => {
                let (_, progress) = ledger::open(&host.root).unwrap().unwrap();
                assert!(is_kept && progress.confirmed, "{after:?}: {progress:?}");
            }
            other @ (Confirmation::Failed(..) | Confirmation::Exit(_)) => assert!(
                !is_kept && matches!(other, Confirmation::Exit(DaemonExit::Rebooting)),
                "{after:?}: {other:?}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashing_daemon_runs_out_of_time_too() {
    let folder = folder();
    let mut host = rebooted(folder.path(), MINUTE);
    let probe = Reachable::from(usize::MAX);
    let mut starts = 0;
    let ended = loop {
        starts += 1;
        assert!(starts < 20, "it never ends");
        let shutdown = Shutdown::new();
        shutdown.request();
        let settled = confirm_or_roll_back(host, &probe, None, &shutdown).await;
        if !matches!(settled, Confirmation::Exit(DaemonExit::Stopped)) {
            break settled;
        }
        host = open(Root::open(folder.path()).unwrap());
    };
    assert!(matches!(ended, Confirmation::Exit(DaemonExit::Rebooting)), "{ended:?}");
    assert!(starts > 3, "not at once either: {starts}");
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_nothing_is_checked() {
    let folder = folder();
    let host = rebooted(folder.path(), Duration::ZERO);
    let probe = Reachable::from(usize::MAX);
    let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
    assert!(matches!(settled, Confirmation::Proceed(_)), "{settled:?}");
    assert_eq!(probe.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_crash_at_any_change_of_a_rollback_ends_rolled_back() {
    let ways = ways();
    let attempt = |folder: &Path, faults: &Arc<Faults>| {
        drop(rebooted(folder, MINUTE));
        let mut host = open(faulty(folder, faults));
        let (update, _) = ledger::open(&host.root).unwrap().unwrap();
        execute::roll_back_booted(&mut host, &update, "not healthy")
    };
    let folder = folder();
    let faults = Arc::new(Faults::none());
    assert_eq!(attempt(folder.path(), &faults).unwrap(), Outcome::RebootDue);
    recover(folder.path());
    assert_back(folder.path(), &ways, "without a fault");
    let mut back = 0;
    for number in 1..=faults.points() {
        let folder = crate::crash::folder();
        let faults = Arc::new(Faults::at(number, Fault::Crash));
        let died = attempt(folder.path(), &faults);
        let at = format!("{number} {}: {died:?}", faults.failed().unwrap_or_default());
        let root = Root::open(folder.path()).unwrap();
        let (_, progress) = ledger::open(&root).unwrap().unwrap();
        let host = recover(folder.path());
        if progress.back_in.is_none() {
            // Crashed before the rollback was recorded; the next daemon decides again.
            similar_asserts::assert_eq!(without_notes(tree(folder.path())), ways.new, "{}", at);
            continue;
        }
        back += 1;
        assert_back(folder.path(), &ways, &at);
        let name = new().metadata.name.unwrap();
        assert!(confirm::refusal(&host.root, &name, false).unwrap().is_some(), "{at}");
    }
    assert!(back > 40, "the rollback was crashed: {back}");
}

const UNIT: &str = "etc/systemd/system/machine-config-daemon-confirm.service";
const LINK: &str =
    "etc/systemd/system/multi-user.target.wants/machine-config-daemon-confirm.service";
const COPY: &str = "var/lib/machine-config-daemon/confirm/mco";

/// Any file will do: it is never started here.
fn program() -> Program {
    Program::new(PathBuf::from("/etc/passwd"), "")
}

/// Returns a machine that has just rebooted into the new config, with a standby.
fn rebooted_with_standby(folder: &Path) -> Host<SimulatedSystem> {
    let mut host = applied(folder, MINUTE);
    standby::arrange(&mut host, &program()).unwrap();
    assert!(folder.join(LINK).is_symlink(), "it is enabled");
    reboot(host)
}

/// Returns true if the path exists, even as a dangling link.
fn is_there(folder: &Path, path: &str) -> bool {
    fs::symlink_metadata(folder.join(path)).is_ok()
}

/// Checks once.
async fn stand_by(host: Host<SimulatedSystem>) -> Confirmation<SimulatedSystem> {
    let shutdown = Shutdown::new();
    shutdown.request();
    await_daemon(host, &shutdown).await
}

fn reopened(folder: &Path) -> Host<SimulatedSystem> {
    open(Root::open(folder).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_standby_rolls_back_at_the_deadline_if_no_daemon_starts() {
    let (folder, ways) = (folder(), ways());
    let host = rebooted_with_standby(folder.path());
    let settled = stand_by(host).await;
    assert!(
        matches!(settled, Confirmation::Exit(DaemonExit::Stopped)),
        "there is time left: {settled:?}"
    );
    let host = reopened(folder.path());
    let (_, progress) = ledger::open(&host.root).unwrap().unwrap();
    assert!(!progress.confirmed && progress.back_in.is_none(), "{progress:?}");

    confirm::set_deadline(&host.root, Duration::ZERO).unwrap();
    host.system.call_log().fail(HEALTH);
    let settled = await_daemon(host, &Shutdown::new()).await;
    assert!(
        matches!(settled, Confirmation::Exit(DaemonExit::Rebooting)),
        "the standby did not roll back an unhealthy machine at the deadline: {settled:?}"
    );
    let mut host = reopened(folder.path());
    assert!(host.system.wants_reboot());
    host.system.boot().unwrap();
    let settled = stand_by(host).await;
    assert!(matches!(settled, Confirmation::Proceed(_)), "{settled:?}");
    assert_back(folder.path(), &ways, "the standby is removed, too");

    // The daemon that starts at last finds the reason, and does not retry.
    let (host, probe) = (reopened(folder.path()), Reachable::from(0));
    let settled = confirm_or_roll_back(host, &probe, None, &Shutdown::new()).await;
    let Confirmation::Proceed(host) = settled else { panic!("{settled:?}") };
    let back = confirm::refusal(&host.root, "rendered-worker-new", false).unwrap().unwrap();
    assert_eq!(back.why, "kubelet healthz fails; no daemon started to confirm it within 0s");
}

#[tokio::test(start_paused = true)]
async fn a_standby_of_a_healthy_machine_waits_for_a_daemon_and_starts_anew() {
    let folder = folder();
    let host = rebooted_with_standby(folder.path());
    let daemon = reopened(folder.path());
    // The daemon lives, holds the lock and never decides.
    let lock = daemon.root.lock(mco_apply::disk::RECORDS).unwrap();
    assert!(lock.is_some());
    let before = tokio::time::Instant::now();
    let settled = await_daemon(host, &Shutdown::new()).await;
    assert!(matches!(settled, Confirmation::Failed(_, None)), "{settled:?}");
    assert_eq!(before.elapsed(), MINUTE + mco_core::lifecycle::Limits::default().standby);
    assert!(folder.path().join(LINK).is_symlink(), "systemd starts it again");
}

#[tokio::test(start_paused = true)]
async fn a_standby_never_decides_beside_a_daemon() {
    let folder = folder();
    let host = rebooted_with_standby(folder.path());
    confirm::set_deadline(&host.root, Duration::ZERO).unwrap();
    let daemon = reopened(folder.path());
    let lock = daemon.root.lock(mco_apply::disk::RECORDS).unwrap();
    assert!(lock.is_some());
    let settled = stand_by(host).await;
    assert!(matches!(settled, Confirmation::Exit(DaemonExit::Stopped)), "{settled:?}");
    let (_, progress) = ledger::open(&daemon.root).unwrap().unwrap();
    assert!(progress.back_in.is_none(), "{progress:?}");

    confirm::set_deadline(&daemon.root, MINUTE).unwrap();
    let settled = confirm_or_roll_back(daemon, &Reachable::from(0), None, &Shutdown::new()).await;
    assert!(matches!(settled, Confirmation::Proceed(_)), "{settled:?}");
    for path in [UNIT, LINK, COPY] {
        assert!(!is_there(folder.path(), path), "{path}");
    }
    // The daemon still holds the lock.
    let settled = stand_by(reopened(folder.path())).await;
    assert!(
        matches!(settled, Confirmation::Proceed(_)),
        "its unit is gone, so it is over: {settled:?}"
    );
    drop(lock);
}

#[test]
fn a_standby_is_installed_only_while_a_config_is_to_be_confirmed() {
    let folder = folder();
    let there = || [UNIT, COPY, LINK].map(|path| is_there(folder.path(), path));
    let mut host = applied(folder.path(), Duration::ZERO);
    standby::arrange(&mut host, &program()).unwrap();
    assert_eq!(there(), [false; 3], "nothing is confirmed");
    confirm::prepare(&host, MINUTE).unwrap();
    standby::arrange(&mut host, &program()).unwrap();
    assert_eq!(there(), [true; 3]);
    let stat = || [UNIT, COPY].map(|path| fs::metadata(folder.path().join(path)).unwrap());
    let before = stat();
    assert_eq!(before[1].mode() & 0o777, 0o755);
    standby::arrange(&mut host, &program()).unwrap();
    assert_eq!(stat().map(|it| it.ino()), before.map(|it| it.ino()), "not written again");
    ledger::close(&host.root).unwrap();
    standby::arrange(&mut host, &program()).unwrap();
    assert_eq!(there(), [false; 3], "nothing waits for a reboot");
}

/// An older ostree deployment keeps the unit in its `/etc` after the program in `/var` was removed.
#[test]
fn a_standby_whose_program_was_removed_does_not_start() {
    let folder = folder();
    let mut host = applied(folder.path(), Duration::ZERO);
    confirm::prepare(&host, MINUTE).unwrap();
    standby::arrange(&mut host, &program()).unwrap();
    let unit = fs::read_to_string(folder.path().join(UNIT)).unwrap();
    let condition = unit.lines().find_map(|line| line.strip_prefix("ConditionPathExists=/"));
    let needed = condition.expect("a condition in the unit");
    assert!(is_there(folder.path(), needed), "{needed}");
    standby::remove(&mut host).unwrap();
    assert!(!is_there(folder.path(), needed), "{needed}");
}

#[test]
fn after_a_crash_at_any_change_the_next_daemon_installs_the_standby() {
    let attempt = |folder: &Path, faults: &Arc<Faults>| {
        drop(applied(folder, MINUTE));
        standby::arrange(&mut open(faulty(folder, faults)), &program())
    };
    let whole = folder();
    let faults = Arc::new(Faults::none());
    attempt(whole.path(), &faults).unwrap();
    let want = tree(whole.path());
    assert!(faults.points() > 8, "{}", faults.points());
    for number in 1..=faults.points() {
        let folder = folder();
        let faults = Arc::new(Faults::at(number, Fault::Crash));
        let died = attempt(folder.path(), &faults);
        let at = format!("{number} {}: {died:?}", faults.failed().unwrap_or_default());
        let mut host = reopened(folder.path());
        standby::arrange(&mut host, &program()).unwrap();
        let names = |tree: &BTreeMap<String, String>| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&tree(folder.path())), names(&want), "{at}");
        standby::remove(&mut host).unwrap();
        let found = tree(folder.path());
        assert!(!found.keys().any(|name| name.contains("daemon-confirm")), "{at}: {found:?}");
    }
}
