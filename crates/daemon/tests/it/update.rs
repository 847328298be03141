//! A node follows its desired config and reports so as the reference does.

use std::fs;

use kube::{Api, api::DeleteParams};
use mco_api::MachineConfig;
use mco_daemon::simulate::Power;
use serde_json::json;

use crate::fleet::{Drains, Fleet};

// covers: C16, C35, C37, C56, C135
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_needs_it_drains_reboots_and_uncordons() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Ignored).await;
    fleet.start();
    fleet
        .wait("currentConfig=rendered-worker-1, desiredConfig=rendered-worker-1, state=Done")
        .await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"));
    let first_boot = fleet.boot_id();

    let rest = json!({"kernelArguments": ["nosmt"]});
    fleet.render("rendered-worker-2", &[("/etc/foo", "2"), ("/etc/bar", "1")], &rest).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Working, desiredDrain=drain-rendered-worker-2").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"), "nothing changes before the drain");

    fleet.annotate("lastAppliedDrain", "drain-rendered-worker-2").await;
    fleet.wait("state=Working, desiredDrain=uncordon-rendered-worker-2").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("2"));
    assert_eq!(fleet.text("/etc/bar").as_deref(), Some("1"));
    assert_ne!(fleet.boot_id(), first_boot);

    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-2").await;
    let done = fleet.wait("currentConfig=rendered-worker-2, state=Done, reason=").await;
    let after = done.get("machineconfiguration.openshift.io/post-config-action");
    assert_eq!(after.map(String::as_str), Some(""));

    fleet.desire("rendered-worker-1").await;
    fleet.wait("desiredDrain=drain-rendered-worker-1").await;
    fleet.annotate("lastAppliedDrain", "drain-rendered-worker-1").await;
    fleet.wait("desiredDrain=uncordon-rendered-worker-1").await;
    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-1").await;
    fleet.wait("currentConfig=rendered-worker-1, state=Done").await;
    assert_eq!(fleet.text("/etc/bar"), None, "a file that no config has is removed");
    let on = fleet.power.subscribe().borrow().to_owned();
    assert_eq!(on, Power::On);
    fleet.stop().await;
}

// covers: C92
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_needs_no_drain_and_no_reboot_has_neither() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fleet.render("rendered-worker-2", &[("/etc/containers/policy.json", "1")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    let done = fleet.wait("currentConfig=rendered-worker-2, state=Done").await;
    assert_eq!(fleet.boot_id(), boot);
    let asked = done.get("machineconfiguration.openshift.io/desiredDrain").map(String::as_str);
    assert_eq!(asked, Some("uncordon-rendered-worker-2"));
    fleet.stop().await;
}

// covers: C38, C43
#[tokio::test(flavor = "multi_thread")]
async fn an_unreconcilable_change_is_refused_and_a_new_config_is_picked_up() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", &[], &json!({"fips": true})).await;
    fleet.desire("rendered-worker-2").await;
    fleet
        .wait(
            "state=Unreconcilable, reason~can't reconcile config rendered-worker-1 with \
             rendered-worker-2: configs rendered-worker-1",
        )
        .await;
    fleet.desire("rendered-worker-9").await;
    fleet
        .wait(
            "state=Degraded, reason=machineconfig.machineconfiguration.openshift.io \
             \"rendered-worker-9\" not found",
        )
        .await;
    fleet.render("rendered-worker-3", &[("/etc/foo", "3")], &json!({})).await;
    fleet.desire("rendered-worker-3").await;
    fleet.wait("currentConfig=rendered-worker-3, state=Done, reason=").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("3"));
    fleet.stop().await;
}

// covers: C17, C59
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_daemon_resumes_its_update() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Ignored).await;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("desiredDrain=drain-rendered-worker-2").await;
    fleet.stop().await;
    fleet.annotate("lastAppliedDrain", "drain-rendered-worker-2").await;
    fleet.start();
    fleet.wait("desiredDrain=uncordon-rendered-worker-2").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("2"));
    fleet.stop().await;
    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-2").await;
    fleet.annotate("currentConfig", "").await;
    fleet.start();
    fleet.wait("currentConfig=rendered-worker-2, state=Done").await;
    fleet.stop().await;
}

// covers: C93
#[tokio::test(flavor = "multi_thread")]
async fn the_force_file_applies_the_config_again_with_a_reboot() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fs::write(fleet.path("/etc/foo"), "edited").unwrap();
    fs::write(fleet.path("/run/machine-config-daemon-force"), "").unwrap();
    fleet.wait("state=Done, desiredDrain=uncordon-rendered-worker-1").await;
    let is_back = || fleet.text("/etc/foo").as_deref() == Some("1");
    assert!(is_back(), "{:?}", fleet.text("/etc/foo"));
    assert_ne!(fleet.boot_id(), boot);
    assert!(!fleet.path("/run/machine-config-daemon-force").exists());
    fleet.stop().await;
}

// covers: C93
#[tokio::test(flavor = "multi_thread")]
async fn the_force_file_of_a_healthy_node_is_removed_and_reported() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fs::write(fleet.path("/run/machine-config-daemon-force"), "").unwrap();
    let event = fleet.wait_for_event("ForceFileRemoved").await;
    let text = "Removed /run/machine-config-daemon-force: the node is Done with config \
                rendered-worker-1";
    assert_eq!(event.note.as_deref(), Some(text));
    assert!(!fleet.path("/run/machine-config-daemon-force").exists());
    fleet.wait("state=Done, reason=").await;
    assert_eq!(fleet.boot_id(), boot, "nothing is applied again");
    fleet.stop().await;
}

// covers: C107
#[tokio::test(flavor = "multi_thread")]
async fn new_authorities_of_the_user_are_trusted_without_drain_or_reboot() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    let path = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
    fleet.render("rendered-worker-2", &[(path, "authority")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    assert_eq!(fleet.text(path).as_deref(), Some("authority"));
    let calls = journal.calls().split_off(1);
    assert_eq!(calls, ["restart coreos-update-ca-trust.service", "restart crio.service"]);
    let events = fleet.events().await;
    for silent in ["Drain", "Cordon", "Reboot"] {
        assert!(!events.iter().any(|event| event == silent), "{silent} in {events:?}");
    }
    // The certificate stays trusted when its config is removed, as with the reference.
    fleet.desire("rendered-worker-1").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-1").await;
    assert_eq!(fleet.text(path).as_deref(), Some("authority"));
    fleet.stop().await;
}

// covers: C26
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_not_in_the_cluster_is_read_from_the_disk() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1"), ("/etc/old", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    let configs: Api<MachineConfig> = Api::all(fleet.client.clone());
    configs.delete("rendered-worker-1", &DeleteParams::default()).await.unwrap();
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2, reason=").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("2"));
    assert_eq!(fleet.text("/etc/old"), None, "a file of the old config only is removed");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_was_rolled_back_is_tried_again_once_the_node_had_another() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done, currentConfig=rendered-worker-1").await;
    let record = fleet.path("/var/lib/machine-config-daemon/mco-taken-back.json");
    fs::create_dir_all(record.parent().unwrap()).unwrap();
    fs::write(&record, r#"{"config": "rendered-worker-2", "why": "ill"}"#).unwrap();
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Degraded, reason~was rolled back after its reboot: ill").await;
    // The administrator deletes the MachineConfig, and adds it again later.
    fleet.desire("rendered-worker-1").await;
    fleet.wait("state=Done, reason=").await;
    assert!(!record.exists());
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    fleet.stop().await;
}
