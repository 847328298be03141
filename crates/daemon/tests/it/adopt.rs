//! Adoption of machines that joined the cluster before any config existed.

use std::fs;

use serde_json::json;

use crate::fleet::{Drains, Fleet};

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_machine_keeps_its_files_until_it_is_updated() {
    let files = [("/etc/same", "1"), ("/etc/other", "theirs"), ("/etc/new", "3")];
    let mut fleet = Fleet::new(&files, Drains::Answered).await;
    for (path, text) in [("same", "1"), ("other", "ours"), ("unnamed", "stays")] {
        let path = fleet.path(&format!("/etc/{path}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fleet.adopt();
    fleet.wait("currentConfig=adopted-worker-1, desiredConfig=adopted-worker-1, state=Done").await;
    assert_eq!(fleet.text("/etc/other").as_deref(), Some("ours"), "adoption changes nothing");
    assert_eq!(fleet.text("/etc/new"), None);
    let kept = fs::metadata(fleet.path("/etc/same")).unwrap().modified().unwrap();

    fleet.desire("rendered-worker-1").await;
    fleet.wait("state=Working, post-config-action=Rebooting").await;
    assert_eq!(fleet.text("/etc/other").as_deref(), Some("theirs"));
    assert_eq!(fleet.text("/etc/new").as_deref(), Some("3"));
    assert_eq!(fleet.text("/etc/unnamed").as_deref(), Some("stays"));
    let same = fs::metadata(fleet.path("/etc/same")).unwrap().modified().unwrap();
    assert_eq!(same, kept, "a file that is up to date is not written");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_matches_its_config_is_done() {
    let mut fleet = Fleet::new(&[("/etc/same", "1")], Drains::Ignored).await;
    fs::create_dir_all(fleet.path("/etc")).unwrap();
    fs::write(fleet.path("/etc/same"), "1").unwrap();
    fleet.adopt();
    fleet
        .wait("currentConfig=rendered-worker-1, desiredConfig=rendered-worker-1, state=Done")
        .await;
    fleet.stop().await;
}

// covers: C22, C23
#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_first_boot_are_removed() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let preset = fleet.path("/etc/systemd/system-preset/20-ignition.preset");
    let left = fleet.path("/etc/ignition-machine-config-encapsulated.json");
    fs::create_dir_all(preset.parent().unwrap()).unwrap();
    fs::write(&preset, "enable x.service").unwrap();
    fs::write(&left, "{}").unwrap();
    fleet.adopt();
    // An update comes after the verification.
    fleet.render("rendered-worker-2", &[("/etc/containers/policy.json", "1")], &json!({})).await;
    fleet.wait("state=Done").await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    assert!(!preset.exists() && !left.exists());
    assert!(fleet.path("/etc/ignition-machine-config-encapsulated.json.bak").exists());
    fleet.stop().await;
}
