//! Lines of the daemon's log that administrators and tools search for.

use std::{fs, future::Future};

use mco_testkit::{PATIENCE, log::Lines};
use serde_json::json;
use tracing::Level;

use crate::{
    certificates,
    fleet::{Drains, Fleet},
};

/// Runs a future on its own threads, and returns everything logged there.
fn logged<F: Future<Output = ()> + Send + 'static>(work: F) -> String {
    logged_at(Level::INFO, work)
}

fn logged_at<F: Future<Output = ()> + Send + 'static>(level: Level, work: F) -> String {
    let lines = Lines::default();
    let dispatch = lines.dispatch(level);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || {
            // For as long as the thread lives.
            std::mem::forget(tracing::dispatcher::set_default(&dispatch));
        })
        .build()
        .unwrap();
    runtime.block_on(async {
        let done = tokio::time::timeout(PATIENCE, tokio::spawn(work)).await;
        done.expect("it ends").unwrap();
    });
    runtime.shutdown_background();
    lines.text()
}

fn contains_all(log: &str, lines: &[&str]) {
    for line in lines {
        assert!(log.contains(line), "no {line:?} in {log}");
    }
    for line in ["Unable to rotate token", "unable to update node", "panic:", "panicked"] {
        assert!(!log.contains(line), "{line:?} in {log}");
    }
}

// covers: C128
#[test]
fn an_update_of_everything_logs_every_promised_line() {
    let log = logged(async {
        let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
        let version = certificates::configure(&fleet, false, json!({})).await;
        fleet.start();
        let synced = format!("lastSyncedControllerConfigResourceVersion={version}");
        fleet.wait(&format!("state=Done, {synced}")).await;
        let user = json!({"name": "core", "sshAuthorizedKeys": ["a key"], "passwordHash": "$6$x"});
        let rest = json!({
            "osImageURL": "image-2", "kernelArguments": ["nosmt"],
            "config": {"passwd": {"users": [user]}},
        });
        fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &rest).await;
        fleet.desire("rendered-worker-2").await;
        fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
        fs::write(fleet.path("/etc/foo"), "edited").unwrap();
        fleet.wait("state=Degraded").await;
        fs::write(fleet.path("/etc/foo"), "2").unwrap();
        fleet.wait("state=Done, reason=").await;
        fleet.render("rendered-worker-3", &[], &json!({"fips": true})).await;
        fleet.desire("rendered-worker-3").await;
        fleet.wait("state=Unreconcilable").await;
        // An annotation that is older than the disk.
        fleet.stop().await;
        fleet.desire("rendered-worker-2").await;
        fleet.annotate("currentConfig", "rendered-worker-1").await;
        fleet.start();
        fleet.wait("state=Done, reason=, currentConfig=rendered-worker-2").await;
        fleet.stop().await;
    });
    contains_all(
        &log,
        &[
            "Starting to manage node: worker-0",
            "In bootstrap mode",
            "Booted osImageURL: image-2",
            "Current+desired config: rendered-worker-1",
            "Current config: rendered-worker-1",
            "Desired config: rendered-worker-2",
            "Validated on-disk state",
            "Disk currentConfig \"rendered-worker-2\" overrides node's currentConfig annotation",
            "Preflight config drift check",
            "Checking Reconcilable for config rendered-worker-1 to rendered-worker-2",
            "SSH Keys reconcilable",
            "Changes detected from rendered-worker-1 to rendered-worker-2: &{osUpdate:true kargs:true",
            "Starting update from rendered-worker-1 to rendered-worker-2",
            "Drain calculated for node disruption: true for config rendered-worker-2",
            "requesting cordon and drain via annotation to controller",
            "drain complete",
            "Adding SIGTERM protection",
            "Removing SIGTERM protection",
            "Writing file \"/etc/foo\"",
            "Writing SSH keys to \"/home/core/.ssh/authorized_keys.d/ignition\"",
            "Password has been configured",
            "Performing post config change action: Reboot for config rendered-worker-2",
            "initiating reboot: Node will reboot into config rendered-worker-2",
            "reboot successful",
            "Update completed for config rendered-worker-2",
            "In desired state MachineConfig: rendered-worker-2",
            "Config Drift Monitor started",
            "Config Drift Monitor has shut down",
            "Marking Degraded due to: ",
            "content mismatch for file \\\"/etc/foo\\\"",
            // As in the documentation of administrators.
            "Transitioned from state: Degraded -> Done",
            "Transitioned from degraded/unreconcilable reason unexpected on-disk state validating \
             against rendered-worker-2: content mismatch for file \"/etc/foo\" -> \n",
            "Marking Unreconcilable due to: ",
            "Certificate was synced from controllerconfig resourceVersion",
        ],
    );
    assert!(!log.contains("a key") && !log.contains("$6$x"), "contents are never logged");
}

// covers: C104, C128, C132
#[test]
fn a_new_pull_secret_needs_neither_drain_nor_reboot_and_is_logged() {
    let log = logged(async {
        let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
        fs::create_dir_all(fleet.path("/etc/pivot")).unwrap();
        fs::write(fleet.path("/etc/pivot/kernel-args"), "ADD nosmt\n").unwrap();
        let journal = fleet.start_watched().await;
        fleet.wait("state=Done").await;
        let files = [("/etc/foo", "1"), ("/var/lib/kubelet/config.json", "c2VjcmV0")];
        fleet.render("rendered-worker-2", &files, &json!({})).await;
        fleet.desire("rendered-worker-2").await;
        fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
        let secret = fleet.text("/var/lib/kubelet/config.json");
        assert_eq!(secret.as_deref(), Some("c2VjcmV0"));
        let events = fleet.events().await;
        for silent in ["Drain", "Cordon", "Reboot"] {
            assert!(!events.iter().any(|event| event == silent), "{silent} in {events:?}");
        }
        let calls = journal.calls();
        assert_eq!(calls, ["prepare worker"], "nothing is restarted or reloaded");
        fleet.stop().await;
    });
    contains_all(
        &log,
        &[
            "Writing file \"/var/lib/kubelet/config.json\"",
            "Changes do not require drain, skipping",
            "Drain calculated for node disruption: false for config rendered-worker-2",
            "Performing post config change action: None for config rendered-worker-2",
            "Node has Desired Config rendered-worker-2, skipping reboot",
            "Ignoring /etc/pivot/kernel-args; use kernelArguments of a MachineConfig instead",
        ],
    );
    assert!(!log.contains("c2VjcmV0"), "contents are never logged");
}

#[test]
fn an_update_parses_its_config_once() {
    let log = logged_at(Level::DEBUG, async {
        let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
        fleet.start();
        fleet.wait("state=Done").await;
        let files = [("/etc/foo", "1"), ("/etc/containers/policy.json", "1")];
        fleet.render("rendered-worker-2", &files, &json!({})).await;
        fleet.desire("rendered-worker-2").await;
        fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
        fleet.render("rendered-worker-3", &[("/etc/foo", "3")], &json!({})).await;
        fleet.desire("rendered-worker-3").await;
        fleet.wait("state=Done, currentConfig=rendered-worker-3").await;
        fleet.stop().await;
    });
    let parses = |config: &str| {
        let is_it = |line: &&str| line.contains("Parsed config") && line.contains(config);
        log.lines().filter(is_it).count()
    };
    // It is the target of one update, and later the start of another.
    assert_eq!(parses("rendered-worker-2"), 2, "{log}");
    // The daemon that starts after the reboot verifies the disk.
    assert_eq!(parses("rendered-worker-3"), 2, "{log}");
}
