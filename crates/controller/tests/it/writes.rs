//! Tests of all writes of the controllers: their number, their content, and their field manager.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::{core::v1::Node, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool, annotation, label};
use mco_cluster::Shutdown;
use mco_testkit::{
    PATIENCE,
    daemons::{Daemons, REBOOT},
};
use serde_json::json;

use crate::{
    fleet::{Fleet, is},
    leader::Controller,
    server::{Server, on_both},
};

on_both! {
    nothing_is_written_without_changes_or_in_fields_of_other_owners,
    events_are_in_the_namespace_and_name_their_component,
    an_update_with_an_empty_drain_costs_six_requests_and_its_status,
}

// covers: MCN-1, APL-1
async fn nothing_is_written_without_changes_or_in_fields_of_other_owners(server: Server) {
    let mut fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    for node in ["n0", "n1"] {
        fleet.wait_for_machine_config_node(node, &old).await;
    }
    let theirs = json!({"metadata": {"annotations": {"theirs": "kept"}}});
    fleet.patch::<Node>("n1", theirs.clone()).await;
    fleet.patch::<MachineConfigPool>("worker", theirs.clone()).await;
    fleet.patch::<MachineConfigNode>("n1", theirs).await;
    let reports = fleet.all::<MachineConfigNode>();
    let foreign = json!({"type": "Resumed", "status": "True", "reason": "Resumed",
        "message": "by the daemon", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let said = Patch::Merge(json!({"status": {"conditions": [foreign]}}));
    reports.patch_status("n1", &PatchParams::default(), &said).await.unwrap();

    // The pool counts the node's own conditions.
    let before = fleet
        .wait::<MachineConfigPool>("worker", "it has counted the node", |pool| {
            let status = pool.status.clone().unwrap_or_default().pool_synchronizers_status;
            status.iter().any(|counts| counts.updated_machine_count == 1)
        })
        .await;
    fleet.pause().await;
    // A controller that starts finds everything up to date; a kubelet's heartbeat changes nothing
    // relevant.
    let controller = Controller::start(&fleet, "it").await;
    controller.leads(&fleet).await;
    let now = "2026-01-01T00:00:00Z";
    let beat = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": now}]}});
    let nodes = fleet.all::<Node>();
    nodes.patch_status("n0", &PatchParams::default(), &Patch::Merge(beat)).await.unwrap();
    // A request that the controller must acknowledge, which proves that it has seen all earlier
    // changes.
    let request = json!({annotation::DESIRED_DRAIN.name(): "uncordon-x"});
    fleet.patch::<Node>("n1", json!({"metadata": {"annotations": request}})).await;
    let answer = annotation::LAST_APPLIED_DRAIN.name();
    let node = fleet
        .wait::<Node>("n1", "the request is acknowledged", |node| {
            node.annotations().contains_key(answer)
        })
        .await;
    let kept = |annotations: &std::collections::BTreeMap<String, String>| {
        annotations.get("theirs").map(String::as_str) == Some("kept")
    };
    assert!(kept(node.annotations()));
    let pool = fleet.all::<MachineConfigPool>().get("worker").await.unwrap();
    assert!(kept(pool.annotations()));
    assert_eq!(pool.status, before.status);
    let report = reports.get("n1").await.unwrap();
    assert!(kept(report.annotations()));
    let conditions = report.status.unwrap().conditions;
    assert!(conditions.iter().any(|found| found.message == "by the daemon"), "{conditions:?}");
    let writes = controller.stop().await.all();
    let other: Vec<&String> = writes.iter().filter(|line| !line.contains("/n1")).collect();
    assert!(other.is_empty(), "{other:?}");
    assert!(writes.len() <= 3, "{writes:?}");
}

// covers: EVT-1
async fn events_are_in_the_namespace_and_name_their_component(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    let node = fleet.wait_for_start(&new).await;
    fleet.wait_for_pool("it updates", |status| is(status, "Updating", "True")).await;
    fleet.write_daemon_state(&node, "Done", &new, "").await;
    fleet.wait_for_update(&new).await;
    for reason in ["SetDesiredConfig", "RenderedConfigGenerated", "Completed"] {
        fleet.event(reason).await;
    }
    let key = annotation::ROLLOUT_SECONDS;
    let has_duration =
        |config: &MachineConfig| key.get(config.annotations()).is_ok_and(|found| found.is_some());
    fleet.wait(&new, "has the duration of its roll-out", has_duration).await;
    let all = Api::<Event>::all(fleet.client.clone()).list(&ListParams::default()).await.unwrap();
    let ours = |event: &&Event| {
        let by = event.reporting_controller.as_deref().unwrap_or_default();
        by.contains("machineconfig") && !by.ends_with("certrotationcontroller")
    };
    for event in all.iter().filter(ours) {
        let reason = event.reason.as_deref().unwrap_or_default();
        assert_eq!(event.namespace().as_deref(), Some(label::NAMESPACE), "{reason}");
        let by = match reason {
            "RenderedConfigGenerated" => "machineconfigcontroller-rendercontroller",
            _ => "machineconfigcontroller-nodecontroller",
        };
        assert_eq!(event.reporting_controller.as_deref(), Some(by), "{reason}");
        let regarding = event.regarding.clone().unwrap_or_default();
        assert_eq!(regarding.kind.as_deref(), Some("MachineConfigPool"), "{reason}");
    }
    assert!(all.iter().filter(ours).count() >= 3);
    fleet.stop().await;
}

/// Returns the requests that name this node, each without its version.
fn of<'r>(requests: &'r [String], node: &str) -> Vec<&'r str> {
    let names = |line: &&String| line.split(['/', '=', '?', '&', ' ']).any(|word| word == node);
    requests.iter().filter(names).map(String::as_str).collect()
}

// covers: DRN-1
async fn an_update_with_an_empty_drain_costs_six_requests_and_its_status(server: Server) {
    const NODES: usize = 3;
    let mut fleet = Fleet::on(server, NODES).await;
    let spec = json!({"spec": {"maxUnavailable": NODES}});
    fleet.patch::<MachineConfigPool>("worker", spec).await;
    let old = fleet.rendered().await;
    for number in 0..NODES {
        fleet.wait_for_machine_config_node(&format!("n{number}"), &old).await;
    }
    fleet.pause().await;
    // Nodes that are about to start do not get the waiting taint before.
    fleet.config.delays.waiting_status = PATIENCE;
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = requests.clone();
    let client = fleet.server.watched(move |request| {
        let uri = percent_encoding::percent_decode_str(&request.uri().to_string())
            .decode_utf8_lossy()
            .into_owned();
        noted.lock().unwrap().push(format!("{} {uri}", request.method()));
    });
    let (client, shutdown) = (client.await, Shutdown::new());
    let running = tokio::spawn(mco_controller::run(fleet.config.clone(), client, shutdown.clone()));
    let daemons = Daemons::start(fleet.client.clone(), |_, _| REBOOT);
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    fleet.wait_for_update(&new).await;
    for number in 0..NODES {
        fleet.wait_for_machine_config_node(&format!("n{number}"), &new).await;
    }
    drop(daemons);
    shutdown.request();
    running.await.unwrap();
    let requests = requests.lock().unwrap();
    for number in 0..NODES {
        let node = format!("n{number}");
        let all = of(&requests, &node);
        let count = |method: &str, path: &str| {
            let is_it = |line: &&&str| line.starts_with(method) && line.contains(path);
            all.iter().filter(is_it).count()
        };
        // Desired config, cordon, acknowledgement, and uncordon with its acknowledgement.
        assert_eq!(count("PATCH", &format!("/nodes/{node}")), 4, "{all:#?}");
        assert_eq!(count("GET", "/pods?"), 1, "{all:#?}");
        // The desired config; and, if the update takes long enough, each stage once.
        let (both, status) = (count("PATCH", "/machineconfignodes/"), count("PATCH", "/status?"));
        assert_eq!(both - status, 1, "{all:#?}");
        assert!(status <= 3, "{all:#?}");
        assert_eq!(all.len(), 6 + status, "{all:#?}");
    }
}
