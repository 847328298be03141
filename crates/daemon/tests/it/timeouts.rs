//! Timeouts of the daemon, and its shutdown.

use std::{fs, time::Duration};

use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfigPool, MachineConfiguration};
use mco_daemon::state::State;
use mco_testkit::{PATIENCE, objects};
use serde_json::{Value, json};

use crate::fleet::{Drains, Fleet};

const SHORT: Duration = Duration::from_millis(300);

/// A change that reloads the container engine and needs neither drain nor reboot.
const QUIET: &[(&str, &str)] = &[("/etc/containers/policy.json", "1")];

// covers: C57
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_timeout_degrades_the_node_and_a_late_answer_lets_it_go_on() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Ignored).await;
    fleet.limits.drain = SHORT;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet
        .wait(
            "state=Degraded, reason=failed to drain node: worker-0 after 300ms. Please see \
             machine-config-controller logs for more information",
        )
        .await;
    fleet.wait_for_event("FailedToDrain").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"), "nothing changes without the drain");
    fleet.annotate("lastAppliedDrain", "drain-rendered-worker-2").await;
    fleet.wait("desiredDrain=uncordon-rendered-worker-2").await;
    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-2").await;
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-2").await;
    fleet.stop().await;
}

// covers: C36
#[tokio::test(flavor = "multi_thread")]
async fn an_uncordon_timeout_degrades_the_node() {
    let mut fleet = Fleet::new(&[], Drains::Ignored).await;
    fleet.limits.uncordon = SHORT;
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", QUIET, &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet
        .wait(
            "state=Degraded, reason=failed to uncordon node: worker-0 after 300ms. Please \
             see machine-config-controller logs for more information",
        )
        .await;
    fleet.wait_for_event("FailedToUncordon").await;
    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-2").await;
    fleet.wait("state=Done, reason=").await;
    fleet.stop().await;
}

// covers: C137
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_config_replaces_one_that_waits_for_its_drain() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Ignored).await;
    fleet.start();
    fleet.wait("state=Done").await;
    for number in [2, 3] {
        let (name, text) = (format!("rendered-worker-{number}"), number.to_string());
        fleet.render(&name, &[("/etc/foo", &text)], &json!({})).await;
    }
    fleet.desire("rendered-worker-2").await;
    fleet.wait("desiredDrain=drain-rendered-worker-2").await;
    let waits = fleet.glass.get().waiting_for.expect("it waits");
    assert_eq!(waits.what, "drain-rendered-worker-2");
    fleet.desire("rendered-worker-3").await;
    fleet.wait("desiredDrain=drain-rendered-worker-3").await;
    // The answer to the old request is ignored.
    fleet.annotate("lastAppliedDrain", "drain-rendered-worker-2").await;
    fleet.annotate("lastAppliedDrain", "drain-rendered-worker-3").await;
    fleet.wait("desiredDrain=uncordon-rendered-worker-3").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("3"));
    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-3").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-3").await;
    fleet.stop().await;
}

// covers: C137
#[tokio::test(start_paused = true)]
async fn an_answer_is_noticed_without_polling() {
    let mut fleet = Fleet::new(&[], Drains::Ignored).await;
    let _journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", QUIET, &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("desiredDrain=uncordon-rendered-worker-2").await;
    // The clock is paused and advances only while all tasks sleep, so that each wait shows in full.
    let before = tokio::time::Instant::now();
    fleet.annotate("lastAppliedDrain", "uncordon-rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    let waited = before.elapsed();
    assert!(waited < Duration::from_secs(1), "a task polls: {waited:?}");
    fleet.stop().await;
}

// covers: C58
#[tokio::test(flavor = "multi_thread")]
async fn the_only_node_of_a_control_plane_is_not_drained() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Ignored).await;
    fleet.annotate("controlPlaneTopology", "SingleReplica").await;
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("desiredDrain=uncordon-rendered-worker-2").await;
    assert_ne!(fleet.boot_id(), boot);
    assert!(!fleet.events().await.contains(&"Cordon".to_owned()));
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_that_does_not_happen_is_reported_and_retried() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.limits.reboot = Some(SHORT);
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Degraded, reason~reboot into config rendered-worker-2 and still runs").await;
    fleet.wait_for_event("RebootOverdue").await;
    assert_ne!(fleet.metric("mcd_reboots_failed_total"), "mcd_reboots_failed_total 0");
    let reboots = || journal.calls().iter().filter(|call| *call == "reboot").count();
    fleet.wait_for_state("the reboot is retried", |_| reboots() > 1).await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_damaged_ledger_is_degraded_until_its_update_is_abandoned() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    let _journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait_for_event("Reboot").await;
    fleet.stop().await;
    fs::write(fleet.path(mco_apply::ledger::LEDGER), "{").unwrap();
    fleet.start();
    fleet.wait("state=Degraded, reason~the record of an unfinished update cannot be used").await;
    fleet.wait_for_event("UpdateUnreadable").await;
    fleet.annotate("recover", "abandon").await;
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-2, recover=").await;
    fleet.wait_for_event("UpdateAbandoned").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("2"));
    fleet.stop().await;
}

// covers: C09
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_in_the_middle_of_an_update_waits_for_its_end() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.limits.shutdown_grace = PATIENCE;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    journal.hold("reload crio.service");
    fleet.render("rendered-worker-2", QUIET, &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait_for_event("AddSigtermProtection").await;
    fleet.terminate();
    fleet.wait_for_event("GotSigtermDuringUpdate").await;
    journal.release("reload crio.service");
    fleet.stop().await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    assert_eq!(fleet.text("/etc/containers/policy.json").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_breaks_the_kubelet_in_place_degrades_the_node() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.limits.kubelet = SHORT;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    journal.answer("kubelet healthz");
    journal.hold("reload crio.service");
    fleet.render("rendered-worker-2", QUIET, &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait_for_event("AddSigtermProtection").await;
    journal.fail("kubelet healthz");
    journal.release("reload crio.service");
    fleet
        .wait(
            "state=Degraded, reason=kubelet is unhealthy since this config was applied: \
             kubelet healthz fails. Fix the config or roll it back",
        )
        .await;
    fleet.wait_for_event("KubeletUnwell").await;
    // A rollback needs no kubelet.
    fleet.desire("rendered-worker-1").await;
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-1").await;
    fleet.stop().await;
}

// The clock is paused and advances only while all tasks sleep.
#[tokio::test(start_paused = true)]
async fn each_config_has_the_full_kubelet_timeout() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    journal.answer("kubelet healthz");
    let is_missed = |config: &'static str| {
        move |state: &State| {
            state.current_config.as_deref() == Some(config)
                && state.waiting_for.as_ref().is_some_and(|it| it.what == "the kubelet")
        }
    };
    let authorities = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
    for (config, path, step) in [
        ("rendered-worker-2", "/etc/containers/policy.json", "reload crio.service"),
        ("rendered-worker-3", authorities, "restart crio.service"),
    ] {
        journal.succeed("kubelet healthz");
        journal.hold(step);
        fleet.render(config, &[(path, "1")], &json!({})).await;
        fleet.desire(config).await;
        let is_held = |state: &State| state.last_step.as_deref() == Some(step);
        fleet.wait_for_state("it is in the middle of the change", is_held).await;
        journal.fail("kubelet healthz");
        journal.release(step);
        fleet.wait_for_state("the kubelet is waited for", is_missed(config)).await;
        fleet.wait("state=Degraded, reason~kubelet is unhealthy since this config").await;
    }
    fleet.stop().await;
}

async fn set_policies(fleet: &Fleet, spec: Value) -> MachineConfiguration {
    let api: Api<MachineConfiguration> = Api::all(fleet.client.clone());
    let object = json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"managementState": "Managed", "nodeDisruptionPolicy": spec}
    });
    if api.get_opt("cluster").await.unwrap().is_some() {
        return api
            .patch("cluster", &PatchParams::default(), &Patch::Merge(&object))
            .await
            .unwrap();
    }
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

fn policy(action: &Value) -> Value {
    json!({"files": [{"path": "/etc/app", "actions": [action]}]})
}

// covers: C53, C54
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_a_failing_action_degrades_and_a_working_one_recovers() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let reload = json!({"type": "Reload", "reload": {"serviceName": "missing.service"}});
    set_policies(&fleet, policy(&reload)).await;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    journal.fail("reload missing.service");
    fleet.render("rendered-worker-2", &[("/etc/app", "1")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet
        .wait(
            "state=Degraded, reason=could not apply update: reloading missing.service \
             configuration failed. Error: error running systemctl reload missing.service: exit \
             status 1",
        )
        .await;
    fleet.wait_for_event("FailedServiceReload").await;
    // After the stop no further attempt is in progress.
    fleet.stop().await;
    assert_eq!(fleet.text("/etc/app").as_deref(), Some("1"), "the file stays");
    let restart = json!({"type": "Restart", "restart": {"serviceName": "app.service"}});
    set_policies(&fleet, policy(&restart)).await;
    let journal = fleet.start_again();
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-2").await;
    assert_eq!(fleet.text("/etc/app").as_deref(), Some("1"));
    assert!(journal.calls().contains(&"restart app.service".to_owned()));
    fleet.wait_for_event("ServiceRestart").await;
    fleet.stop().await;
}

// covers: C54
#[tokio::test(flavor = "multi_thread")]
async fn a_config_whose_service_fails_gives_way_to_another_config() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let reload = json!({"type": "Reload", "reload": {"serviceName": "missing.service"}});
    set_policies(&fleet, policy(&reload)).await;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    journal.fail("reload missing.service");
    fleet.render("rendered-worker-2", &[("/etc/app", "1")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Degraded, reason~reloading missing.service configuration failed").await;
    fleet.desire("rendered-worker-1").await;
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-1").await;
    assert_eq!(fleet.text("/etc/app"), None);
    fleet.stop().await;
}

// covers: C51
#[tokio::test(flavor = "multi_thread")]
async fn policies_that_the_operator_has_not_merged_are_waited_for() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.limits.policies = SHORT;
    let made = set_policies(&fleet, policy(&json!({"type": "None"}))).await;
    let api: Api<MachineConfiguration> = Api::all(fleet.client.clone());
    let merged = |generation: i64| {
        let nothing = json!([{"type": "None"}]);
        json!({"status": {"observedGeneration": generation, "nodeDisruptionPolicyStatus": {
            "clusterPolicies": {"files": [{"path": "/etc/app", "actions": nothing}]}}}})
    };
    let generation = made.metadata.generation.unwrap();
    let patch = Patch::Merge(merged(generation + 1));
    api.patch_status("cluster", &PatchParams::default(), &patch).await.unwrap();
    fleet.start();
    fleet.wait("state=Done").await;
    let boot = fleet.boot_id();
    fleet.render("rendered-worker-2", &[("/etc/app", "1")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet
        .wait(
            "state=Degraded, reason=NodeDisruptionPolicyStatus was not ready: \
             NodeDisruptionPolicyStatus is not up to date",
        )
        .await;
    let patch = Patch::Merge(merged(generation));
    api.patch_status("cluster", &PatchParams::default(), &patch).await.unwrap();
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-2").await;
    assert_eq!(fleet.boot_id(), boot);
    fleet.stop().await;
}

// covers: C42
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_disks_is_refused_until_it_is_allowed() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let disks = json!({"config": {"storage": {"disks": [{"device": "/dev/sdb"}]}}});
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &disks).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Unreconcilable, reason~disks").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"));
    set_policies(&fleet, json!({})).await;
    let api: Api<MachineConfiguration> = Api::all(fleet.client.clone());
    let lets = json!({"spec": {"irreconcilableValidationOverrides": {"storage": ["Disks"]}}});
    api.patch("cluster", &PatchParams::default(), &Patch::Merge(lets)).await.unwrap();
    fleet.wait("state=Done, reason=, currentConfig=rendered-worker-2").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("2"));
    fleet.stop().await;
}

// covers: C130
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_two_custom_pools_is_degraded() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    let pools: Api<MachineConfigPool> = Api::all(fleet.client.clone());
    for name in ["infra", "edge"] {
        let mut pool = objects::pool("worker");
        pool.metadata.name = Some(name.to_owned());
        "rendered-worker-1".clone_into(&mut pool.spec.configuration.rendered.name);
        pools.create(&PostParams::default(), &pool).await.unwrap();
    }
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Degraded, reason~node worker-0 belongs to 2 custom roles").await;
    assert_eq!(fleet.text("/etc/foo").as_deref(), Some("1"));
    fleet.stop().await;
}

// covers: C131
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_record_is_written_again() {
    let mut fleet = Fleet::new(&[("/etc/foo", "1")], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    fs::remove_file(fleet.path("/etc/machine-config-daemon/currentconfig")).unwrap();
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    let record = fleet.text("/etc/machine-config-daemon/currentconfig").unwrap();
    assert!(record.contains("\"rendered-worker-2\""), "{record}");
    fleet.stop().await;
}

// covers: C40, C100, C127
#[tokio::test(flavor = "multi_thread")]
async fn drift_is_counted_while_it_lasts_and_a_long_reason_is_cut() {
    let folder = "x".repeat(200);
    let long = format!("/etc/{}", [folder.as_str(); 12].join("/"));
    let mut fleet = Fleet::new(&[(&long, "1")], Drains::Answered).await;
    fleet.start();
    // After the first Done, differences count as drift.
    let more = [(long.as_str(), "1"), ("/etc/containers/policy.json", "1")];
    fleet.render("rendered-worker-2", &more, &json!({})).await;
    fleet.wait("state=Done").await;
    fleet.desire("rendered-worker-2").await;
    fleet.wait("state=Done, currentConfig=rendered-worker-2").await;
    assert_eq!(fleet.metric("mcd_config_drift"), "mcd_config_drift 0");
    assert!(fleet.metric("mcd_state{").starts_with("mcd_state{state=\"Done\",reason=\"\"} 1"));
    fs::write(fleet.path(&long), "edited").unwrap();
    let degraded = fleet.wait("state=Degraded, reason~content mismatch for file").await;
    let reason = &degraded["machineconfiguration.openshift.io/reason"];
    assert_eq!(reason.chars().count(), 2000);
    assert_ne!(fleet.metric("mcd_config_drift"), "mcd_config_drift 0");
    assert!(fleet.metric("mcd_state{").contains("state=\"Degraded\",reason=\"ConfigDrift\""));
    assert!(fleet.glass.get().drift.is_some());
    fs::write(fleet.path(&long), "1").unwrap();
    fleet.wait("state=Done, reason=").await;
    assert_eq!(fleet.metric("mcd_config_drift"), "mcd_config_drift 0");
    let events = fleet.events().await;
    for reason in ["ConfigDriftMonitorStarted", "ConfigDriftDetected"] {
        assert!(events.iter().any(|event| event == reason), "no {reason} in {events:?}");
    }
    fleet.stop().await;
}
