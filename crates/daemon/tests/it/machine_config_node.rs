//! Every step of an update is a condition of the node's MachineConfigNode, in order.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api,
    api::DeleteParams,
    runtime::{WatchStreamExt as _, watcher},
};
use mco_api::MachineConfigNode;
use mco_core::status::update_conditions::{
    self as steps, ChangedParts, DrainAnnotations, DrainEvent, DrainRequired as Drained,
    UpdateEvent,
};
use mco_testkit::PATIENCE;
use serde_json::json;
use tokio::sync::watch;

use crate::fleet::{Drains, Fleet};

/// Changed conditions of the MachineConfigNode, as `Type=Status`.
struct ConditionLog {
    words: Arc<Mutex<Vec<String>>>,
    last: watch::Receiver<Option<MachineConfigNode>>,
}

impl ConditionLog {
    fn start(reports: Api<MachineConfigNode>) -> Self {
        let words = Arc::new(Mutex::new(Vec::new()));
        let (sender, last) = watch::channel(None::<MachineConfigNode>);
        let into = words.clone();
        tokio::spawn(async move {
            let changes = watcher(reports, watcher::Config::default()).default_backoff();
            let mut changes = std::pin::pin!(changes.applied_objects());
            while let Some(change) = changes.next().await {
                let Ok(object) = change else { continue };
                let before = sender.borrow().as_ref().map(conditions).unwrap_or_default();
                for (kind, status, _) in conditions(&object) {
                    let old = before.iter().find(|(other, ..)| *other == kind);
                    let is_news = old.map_or(status != "False", |(_, old, _)| *old != status);
                    if is_news {
                        into.lock().unwrap().push(format!("{kind}={status}"));
                    }
                }
                sender.send_replace(Some(object));
            }
        });
        Self { words, last }
    }

    async fn wait(&mut self, what: &str, holds: impl Fn(&MachineConfigNode) -> bool) {
        let holds = |object: &Option<MachineConfigNode>| object.as_ref().is_some_and(&holds);
        let seen = tokio::time::timeout(PATIENCE, self.last.wait_for(holds));
        let seen = seen.await.is_ok();
        assert!(seen, "{what} not seen: {:#?}", self.last.borrow());
    }

    /// Waits for a new object in place of the previous one.
    async fn wait_anew(&mut self, before: &MachineConfigNode) {
        let uid = before.metadata.uid.clone();
        self.wait("a new object", |object| object.metadata.uid != uid).await;
    }

    async fn wait_updated(&mut self, config: &str) {
        let is_done = |object: &MachineConfigNode| {
            let status = object.status.clone().unwrap_or_default();
            status.config_version.is_some_and(|version| version.current == config)
                && conditions(object)
                    .iter()
                    .all(|(kind, status, _)| (*status == "True") == (kind == "Updated"))
        };
        self.wait(&format!("updated to {config}"), is_done).await;
    }

    /// Returns the changed conditions since the last call, without those that only end.
    fn take(&self) -> Vec<String> {
        let mut words = std::mem::take(&mut *self.words.lock().unwrap());
        words.retain(|word| is_step(word));
        words
    }

    fn message(&self, kind: &str) -> String {
        let last = self.last.borrow();
        let found = conditions(last.as_ref().unwrap()).into_iter().find(|(it, ..)| it == kind);
        found.map(|(_, _, message)| message).unwrap_or_default()
    }
}

fn is_step(word: &str) -> bool {
    !word.ends_with("=False") || word.starts_with("Updated=")
}

/// Returns the conditions of these events on an up to date node; other tests check which condition
/// an event sets.
fn replayed(events: &[UpdateEvent]) -> Vec<String> {
    let now: Time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let note = |before: &[_], event: &UpdateEvent| {
        steps::apply_event(before, "worker-0", "rendered-worker-2", event, &now)
    };
    let mut conditions = note(&[], &UpdateEvent::UpToDate).unwrap();
    let mut words = Vec::new();
    for event in events {
        let Some(after) = note(&conditions, event) else { continue };
        for (old, new) in conditions.iter().zip(&after) {
            if old.status != new.status {
                words.push(format!("{}={}", new.type_, new.status));
            }
        }
        conditions = after;
    }
    words.retain(|word| is_step(word));
    words
}

fn conditions(object: &MachineConfigNode) -> Vec<(String, String, String)> {
    let conditions = object.status.clone().unwrap_or_default().conditions;
    conditions.into_iter().map(|it| (it.type_, it.status, it.message)).collect()
}

async fn fleet(files: &[(&str, &str)]) -> (Fleet, ConditionLog) {
    let mut fleet = Fleet::new(files, Drains::Answered).await;
    fleet.create_machine_config_node().await;
    let mut record = ConditionLog::start(fleet.machine_config_nodes());
    fleet.start();
    record.wait_updated("rendered-worker-1").await;
    record.take();
    (fleet, record)
}

// covers: C108, C109, C110, MCN-1
#[tokio::test(flavor = "multi_thread")]
async fn an_update_with_a_reboot_is_reported_step_by_step() {
    let (mut fleet, mut record) = fleet(&[("/etc/foo", "1")]).await;
    fleet.render("rendered-worker-2", &[("/etc/foo", "2")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    record.wait_updated("rendered-worker-2").await;
    let reported = record.take();
    let texts =
        || DrainAnnotations { desired: "drain-rendered-worker-2".to_owned(), last: String::new() };
    let parts = ChangedParts { system: false, keys: false };
    let events = [
        UpdateEvent::NeedsUpdate,
        UpdateEvent::Prepared(Drained::Yes),
        UpdateEvent::Drain(DrainEvent::Cordoned),
        UpdateEvent::Drain(DrainEvent::Draining(texts())),
        UpdateEvent::Drain(DrainEvent::Drained(texts())),
        UpdateEvent::Applying(parts),
        UpdateEvent::Applied(parts),
        UpdateEvent::Rebooting,
        UpdateEvent::Rebooted,
        UpdateEvent::Resumed("rendered-worker-2".to_owned()),
        UpdateEvent::Drain(DrainEvent::Uncordoned),
        UpdateEvent::UpToDate,
    ];
    assert_eq!(reported, replayed(&events));
    let object = fleet.machine_config_nodes().get("worker-0").await.unwrap();
    let managers = object.metadata.managed_fields.unwrap_or_default();
    let ours = |manager: Option<&str>| manager == Some("machine-config-daemon");
    assert!(managers.iter().any(|entry| ours(entry.manager.as_deref())), "{managers:?}");
    assert_eq!(
        record.message("Drained"),
        "Action during update to rendered-worker-2: Drained node. The drain is complete as the \
         desired drainer matches current drainer: drain-rendered-worker-2"
    );
    fleet.stop().await;
}

// covers: C109, C127
#[tokio::test(flavor = "multi_thread")]
async fn an_update_without_a_reboot_ends_with_its_service_actions() {
    let (mut fleet, mut record) = fleet(&[]).await;
    fleet.render("rendered-worker-2", &[("/etc/containers/policy.json", "1")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    record.wait_updated("rendered-worker-2").await;
    let reported = record.take();
    let parts = ChangedParts { system: false, keys: false };
    let events = [
        UpdateEvent::NeedsUpdate,
        UpdateEvent::Prepared(Drained::No),
        UpdateEvent::Drain(DrainEvent::NotNeeded),
        UpdateEvent::Applying(parts),
        UpdateEvent::Applied(parts),
        UpdateEvent::ServiceReloaded("crio.service".to_owned()),
        UpdateEvent::Resumed("rendered-worker-2".to_owned()),
        UpdateEvent::Drain(DrainEvent::Uncordoned),
        UpdateEvent::UpToDate,
    ];
    assert_eq!(reported, replayed(&events));
    let events = fleet.events().await;
    for silent in ["Drain", "Cordon", "Reboot"] {
        assert!(!events.iter().any(|event| event == silent), "{silent} in {events:?}");
    }
    for reason in ["ServiceReload", "Uncordon", "NodeDone", "AddSigtermProtection"] {
        assert!(events.iter().any(|event| event == reason), "no {reason} in {events:?}");
    }
    fleet.stop().await;
}

// covers: C109
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_leaves_the_steps_open_and_names_node_and_cause() {
    let (mut fleet, mut record) = fleet(&[]).await;
    let file =
        json!({"path": "/etc/owned", "contents": {"source": "data:,1"}, "user": {"name": "none"}});
    fleet.render_files("rendered-worker-2", &json!([file]), &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    record
        .wait("degraded", |object| {
            conditions(object).iter().any(|(kind, status, message)| {
                kind == "NodeDegraded"
                    && status == "True"
                    && message.starts_with("Node worker-0 upgrade failure. ")
                    && message.contains("/etc/owned")
            })
        })
        .await;
    // After the stop no further attempt is in progress.
    fleet.stop().await;
    let last = fleet.machine_config_nodes().get("worker-0").await.unwrap();
    for open in ["UpdateExecuted", "AppliedFilesAndOS"] {
        let found = conditions(&last).into_iter().find(|(kind, ..)| kind == open).unwrap();
        assert_eq!(found.1, "Unknown", "{open}");
    }
    fleet.start();
    fleet.desire("rendered-worker-1").await;
    record.wait_updated("rendered-worker-1").await;
    fleet.stop().await;
}

// covers: C109
#[tokio::test(flavor = "multi_thread")]
async fn an_unreconcilable_change_is_not_prepared_and_not_reported_as_desired() {
    let (mut fleet, mut record) = fleet(&[]).await;
    fleet.render("rendered-worker-2", &[], &json!({"fips": true})).await;
    fleet.desire("rendered-worker-2").await;
    record
        .wait("refused", |object| {
            let status = object.status.clone().unwrap_or_default();
            let version = status.config_version.unwrap_or_default();
            version.desired == "not-yet-set"
                && conditions(object).iter().any(|(kind, status, message)| {
                    kind == "UpdatePrepared"
                        && status == "Unknown"
                        && message.contains("rendered-worker-1 and rendered-worker-2")
                })
        })
        .await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_object_gets_all_updates_and_a_restart_repeats_none() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let mut record = ConditionLog::start(fleet.machine_config_nodes());
    fleet.start();
    fleet.wait("state=Done").await;
    fleet.create_machine_config_node().await;
    record.wait_updated("rendered-worker-1").await;
    let before = fleet.machine_config_nodes().get("worker-0").await.unwrap();
    fleet.machine_config_nodes().delete("worker-0", &DeleteParams::default()).await.unwrap();
    fleet.create_machine_config_node().await;
    record.wait_anew(&before).await;
    record.wait_updated("rendered-worker-1").await;
    fleet.stop().await;

    let before = fleet.machine_config_node_version().await;
    fleet.forget_events().await;
    fleet.start();
    // The daemon verifies the disk before it reports UpToDate, and writes that before it stops.
    fleet.wait_for_event("ConfigDriftMonitorStarted").await;
    fleet.stop().await;
    assert_eq!(before, fleet.machine_config_node_version().await, "nothing new, nothing written");
}
