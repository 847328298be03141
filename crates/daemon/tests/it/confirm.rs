//! A machine keeps the config that it has rebooted into only once it proves healthy.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mco_cluster::Shutdown;
use mco_daemon::{
    Ended,
    confirm::{self, Probe, Settled},
    execute::{self, Outcome},
    ledger::{self, Resume},
};
use mco_host::{
    Answer, Host, Root, SimulatedSystem, System as _,
    fault::{Fault, Faults},
};

use crate::crash::{Ways, begin, faulty, folder, furnish, new, open, recover, system, tree, ways};

const HEALTH: &str = "kubelet healthz";
const MINUTE: Duration = Duration::from_mins(1);
/// Little more than a start of the daemon costs.
const BRIEF: Duration = Duration::from_secs(11);

/// A cluster that can be reached from some question on.
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
    async fn cluster(&self) -> Answer {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= self.from {
            Answer::Yes
        } else {
            Answer::No("the cluster cannot be reached".to_owned())
        }
    }
}

/// A machine that has just rebooted into the new config.
fn rebooted(folder: &Path, deadline: Duration) -> Host<SimulatedSystem> {
    furnish(folder);
    let mut host = open(Root::open(folder).unwrap());
    host.system.journal().answer(HEALTH);
    confirm::prepare(&host, deadline).unwrap();
    assert_eq!(begin(&mut host).unwrap(), Outcome::RebootDue);
    execute::reboot(&mut host, "rendered-worker-new").unwrap();
    host.system.boot().unwrap();
    host
}

/// The tree without what speaks of the attempt.
fn without_notes(mut tree: BTreeMap<String, String>) -> BTreeMap<String, String> {
    tree.retain(|name, _| !name.contains("mco-taken-back") && !name.contains("mco-confirm"));
    tree
}

fn assert_back(folder: &Path, ways: &Ways, at: &str) {
    similar_asserts::assert_eq!(without_notes(tree(folder)), ways.old, "{}", at);
    assert_eq!(system(folder), ways.old_system, "{at}");
}

#[tokio::test]
async fn a_machine_that_gets_healthy_in_time_keeps_its_config() {
    for asked in [0, 1] {
        let folder = folder();
        let host = rebooted(folder.path(), BRIEF);
        let probe = Reachable::from(asked);
        let settled = confirm::settle(host, &probe, &Shutdown::new()).await;
        let Settled::Go(host) = settled else { panic!("{settled:?}") };
        let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
        assert!(progress.confirmed);
        let booted = host.system.facts().unwrap().boot_id;
        assert_eq!(ledger::resume(&progress, &update.boot_id, &booted), Resume::Verify);
        // The next daemon of this boot asks nobody any longer.
        let probe = Reachable::from(usize::MAX);
        let settled = confirm::settle(host, &probe, &Shutdown::new()).await;
        assert!(matches!(settled, Settled::Go(_)), "{settled:?}");
        recover(folder.path());
        assert_eq!(without_notes(tree(folder.path())), ways().new);
    }
}

#[tokio::test]
async fn a_machine_that_does_not_get_healthy_goes_back_by_itself_and_stays_there() {
    let ways = ways();
    let name = "rendered-worker-new";
    for (fault, want) in [("kubelet healthz", "kubelet healthz fails"), ("", "cannot be reached")] {
        let folder = folder();
        let host = rebooted(folder.path(), BRIEF);
        host.system.journal().fail(fault);
        let probe = Reachable::from(if fault.is_empty() { usize::MAX } else { 0 });
        let before = tokio::time::Instant::now();
        let settled = confirm::settle(host, &probe, &Shutdown::new()).await;
        assert!(matches!(settled, Settled::Ended(Ended::Rebooting)), "{settled:?}");
        assert!(before.elapsed() > Duration::from_millis(500), "not before its time is up");

        let mut host = open(Root::open(folder.path()).unwrap());
        assert!(host.system.wants_reboot());
        // A daemon that starts again before the machine is down asks for the reboot again.
        let settled = confirm::settle(host, &probe, &Shutdown::new()).await;
        assert!(matches!(settled, Settled::Ended(Ended::Rebooting)), "{settled:?}");
        host = open(Root::open(folder.path()).unwrap());
        host.system.boot().unwrap();
        let settled = confirm::settle(host, &probe, &Shutdown::new()).await;
        let Settled::Go(host) = settled else { panic!("{settled:?}") };
        assert_back(folder.path(), &ways, fault);
        assert!(ledger::open(&host.root).unwrap().is_none());
        let back = confirm::refusal(&host.root, name, false).unwrap().unwrap();
        assert!(back.why.contains(want), "{back:?}");
        assert_eq!(confirm::refusal(&host.root, name, true).unwrap(), None, "asked for");
    }
}

#[tokio::test]
async fn a_daemon_that_cannot_stay_up_runs_out_of_time_too() {
    let folder = folder();
    let mut host = rebooted(folder.path(), MINUTE);
    let probe = Reachable::from(usize::MAX);
    let mut starts = 0;
    let ended = loop {
        starts += 1;
        assert!(starts < 20, "it would try for ever");
        let shutdown = Shutdown::new();
        shutdown.request();
        let settled = confirm::settle(host, &probe, &shutdown).await;
        if !matches!(settled, Settled::Ended(Ended::Stopped)) {
            break settled;
        }
        host = open(Root::open(folder.path()).unwrap());
    };
    assert!(matches!(ended, Settled::Ended(Ended::Rebooting)), "{ended:?}");
    assert!(starts > 3, "not at once either: {starts}");
}

#[tokio::test]
async fn without_a_deadline_nobody_is_asked() {
    let folder = folder();
    let host = rebooted(folder.path(), Duration::ZERO);
    let probe = Reachable::from(usize::MAX);
    let settled = confirm::settle(host, &probe, &Shutdown::new()).await;
    assert!(matches!(settled, Settled::Go(_)), "{settled:?}");
    assert_eq!(probe.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn at_whatever_change_it_dies_while_taking_back_it_ends_up_back() {
    let ways = ways();
    let attempt = |folder: &Path, faults: &Arc<Faults>| {
        drop(rebooted(folder, MINUTE));
        let mut host = open(faulty(folder, faults));
        let (update, _) = ledger::open(&host.root).unwrap().unwrap();
        execute::take_back(&mut host, &update, "not healthy")
    };
    let folder = folder();
    let faults = Arc::new(Faults::none());
    assert_eq!(attempt(folder.path(), &faults).unwrap(), Outcome::RebootDue);
    recover(folder.path());
    assert_back(folder.path(), &ways, "without a fault");
    let mut back = 0;
    for number in 1..=faults.points() {
        let folder = crate::crash::folder();
        let faults = Arc::new(Faults::at(number, Fault::Die));
        let died = attempt(folder.path(), &faults);
        let at = format!("{number} {}: {died:?}", faults.failed().unwrap_or_default());
        let root = Root::open(folder.path()).unwrap();
        let (_, progress) = ledger::open(&root).unwrap().unwrap();
        let host = recover(folder.path());
        if progress.back_in.is_none() {
            // It died before it had said so; the next daemon decides anew.
            similar_asserts::assert_eq!(without_notes(tree(folder.path())), ways.new, "{}", at);
            continue;
        }
        back += 1;
        assert_back(folder.path(), &ways, &at);
        let name = new().metadata.name.unwrap();
        assert!(confirm::refusal(&host.root, &name, false).unwrap().is_some(), "{at}");
    }
    assert!(back > 40, "the way back was tried: {back}");
}
