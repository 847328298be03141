//! An edited file is detected at once, reported, and overwritten only if the pool's policy asks for
//! it.

use std::{fs, os::unix::fs::PermissionsExt as _};

use mco_daemon::state::State;
use serde_json::json;

use crate::fleet::{Drains, Fleet};

// covers: C94, C95, C97, C98
#[tokio::test(flavor = "multi_thread")]
async fn drift_degrades_blocks_updates_and_is_over_once_repaired() {
    let files = [("/etc/foo", "1"), ("/etc/sub/bar", "1")];
    let mut fleet = Fleet::new(&files, Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();

    fs::write(fleet.path("/etc/sub/bar"), "edited").unwrap();
    fleet
        .wait(
            "state=Degraded, reason=unexpected on-disk state validating against \
             rendered-worker-1: content mismatch for file \"/etc/sub/bar\"",
        )
        .await;
    fs::set_permissions(fleet.path("/etc/foo"), fs::Permissions::from_mode(0o600)).unwrap();
    fleet
        .wait("state=Degraded, reason~: mode mismatch for file: \"/etc/foo\"; expected: -rw-r--r--/420/0644; received: -rw-------/384/0600")
        .await;

    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fs::set_permissions(fleet.path("/etc/foo"), fs::Permissions::from_mode(0o644)).unwrap();
    fleet.wait("reason~content mismatch for file \"/etc/sub/bar\"").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"), "a drifted node is not updated");
    assert_eq!(fleet.text("/etc/sub/bar").as_deref(), Some("edited"), "nor repaired");
    fleet.desire("rendered-worker-1").await;
    // A daemon that has not observed the change yet would begin the update, and rightly so, once it
    // can.
    let is_back = |state: &State| state.desired_config.as_deref() == Some("rendered-worker-1");
    fleet.wait_for_state("the old config is desired again", is_back).await;

    // As an editor saves: a new file in place of the old.
    fs::write(fleet.path("/etc/sub/.bar.swp"), "1").unwrap();
    fs::rename(fleet.path("/etc/sub/.bar.swp"), fleet.path("/etc/sub/bar")).unwrap();
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-1").await;
    assert_eq!(fleet.boot_id(), boot);

    fs::rename(fleet.path("/etc/sub"), fleet.path("/etc/elsewhere")).unwrap();
    fleet.wait("state=Degraded, reason~could not stat file \"/etc/sub/bar\"").await;
    fs::rename(fleet.path("/etc/elsewhere"), fleet.path("/etc/sub")).unwrap();
    fleet.wait("state=Done, reason=").await;
    fleet.stop().await;
}

// covers: C30
#[tokio::test(flavor = "multi_thread")]
async fn drift_while_the_daemon_was_stopped_is_found_at_its_start() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.stop().await;
    fs::remove_file(fleet.path("/etc/foo")).unwrap();
    fleet.start();
    fleet
        .wait(
            "state=Degraded, reason=unexpected on-disk state validating against \
             rendered-worker-1: could not stat file \"/etc/foo\": lstat /etc/foo: no such file or \
             directory",
        )
        .await;
    fleet.stop().await;
}

// covers: C96
#[tokio::test(flavor = "multi_thread")]
async fn a_drifted_node_gets_its_config_back_by_the_force_file_and_a_reboot() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1"), ("/etc/bar", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fs::write(fleet.path("/etc/foo"), "edited").unwrap();
    fs::remove_file(fleet.path("/etc/bar")).unwrap();
    fleet.wait("state=Degraded").await;
    // No wait for the next retry: the file is noticed at once.
    fs::write(fleet.path("/run/machine-config-daemon-force"), "").unwrap();
    fleet.wait("state=Done, reason=, desiredDrain=uncordon-rendered-worker-1").await;
    for path in ["/etc/foo", "/etc/bar"] {
        assert_eq!(fleet.text(path).as_deref(), Some("1"), "{path}");
    }
    assert_ne!(fleet.boot_id(), boot);
    assert!(!fleet.path("/run/machine-config-daemon-force").exists(), "it counts once");
    assert_eq!(fleet.metric("mcd_config_drift"), "mcd_config_drift 0");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_repaired_by_policy_until_a_path_keeps_changing() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1"), ("/etc/bar", "1")], Drains::Answered).await;
    fleet.set_drift_policy("heal").await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    for _ in 0..3 {
        fs::write(fleet.path("/etc/foo"), "edited").unwrap();
        fleet.wait_for_text("/etc/foo", "1").await;
    }
    fs::remove_file(fleet.path("/etc/bar")).unwrap();
    fleet.wait_for_text("/etc/bar", "1").await;
    fs::write(fleet.path("/etc/foo"), "edited").unwrap();
    fleet.wait("state=Degraded, reason~content mismatch for file \"/etc/foo\"").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("edited"), "left alone");
    assert_eq!(fleet.boot_id(), boot, "a repair never reboots");
    fs::write(fleet.path("/etc/foo"), "1").unwrap();
    fleet.wait("state=Done, reason=").await;
    fleet.stop().await;
}

// covers: C96
#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_forces_a_drifted_node_to_its_config() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fs::write(fleet.path("/etc/foo"), "edited").unwrap();
    fleet.wait("state=Degraded").await;
    fleet.annotate("recover", "force").await;
    let event = fleet.wait_for_event("ForceFileCreated").await;
    let note = event.note.unwrap_or_default();
    assert!(note.starts_with("Created /run/machine-config-daemon-force, as annotation "), "{note}");
    let annotations = fleet.wait("state=Done, reason=").await;
    let recover = "machineconfiguration.openshift.io/recover";
    assert!(!annotations.contains_key(recover), "{annotations:?}");
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"));
    assert_ne!(fleet.boot_id(), boot);
    assert!(!fleet.path("/run/machine-config-daemon-force").exists(), "it counts once");
    fleet.stop().await;
}
