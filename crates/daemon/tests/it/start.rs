//! Preparation of the machine at the daemon's start, and the report of a failed finalization.

use std::fs;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::fleet::{Drains, Fleet};

// covers: C24, C29
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_prepared_once_for_its_role() {
    let cases =
        [("worker", "worker"), ("master", "control-plane"), ("control-plane", "control-plane")];
    for (label, role) in cases {
        let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
        let label = format!("node-role.kubernetes.io/{label}");
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: ""}}}));
        fleet.nodes.patch("worker-0", &PatchParams::default(), &patch).await.unwrap();
        let journal = fleet.start_watched().await;
        fleet.wait("state=Done").await;
        let more = [("/etc/foo", "1"), ("/etc/containers/policy.json", "1")];
        fleet.render("rendered-worker-2", &more, &json!({})).await;
        fleet.desire("rendered-worker-2").await;
        fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
        fleet.stop().await;
        let calls = journal.calls();
        let prepared: Vec<&String> =
            calls.iter().filter(|call| call.starts_with("prepare")).collect();
        assert_eq!(prepared, [&format!("prepare {role}")], "{role}");
    }
}

// covers: C33
#[tokio::test(flavor = "multi_thread")]
async fn a_finalization_error_is_reported_until_it_is_resolved() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.stop().await;
    let last = fleet.path("/var/lib/mco-simulated/last-boot.log");
    fs::write(&last, "Finalizing staged deployment\nerror: opendir(/boot): no space\n").unwrap();
    fs::write(fleet.path("/etc/foo"), "edited").unwrap();
    fleet.start();
    fleet
        .wait(
            "state=Degraded, ostree-finalize-staged-failure=error: opendir(/boot): no space, \
             reason=unexpected on-disk state validating against rendered-worker-1: content \
             mismatch for file \"/etc/foo\"; possible root cause: error: opendir(/boot): no space",
        )
        .await;
    fleet.wait_for_event("FailedFinalization").await;
    fleet.stop().await;
    fs::remove_file(&last).unwrap();
    fs::write(fleet.path("/etc/foo"), "1").unwrap();
    fleet.start();
    fleet.wait("state=Done, reason=, ostree-finalize-staged-failure=").await;
    fleet.stop().await;
}
