//! Tests of remote contents in a cluster: fetched once, stored, embedded.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigPoolStatus, MachineConfiguration, annotation,
    label,
};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, is},
    server::{Server, on_both},
    web::{Web, ok, status},
};

on_both! {
    contents_are_fetched_once_even_if_the_controller_restarts,
    a_failing_server_degrades_the_pool_until_it_recovers,
    contents_with_a_wrong_hash_are_neither_used_nor_stored,
    contents_are_not_fetched_if_disabled,
}

/// SHA-256 of "hello".
const HELLO: &str = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

async fn allow_local(fleet: &Fleet) {
    set_remote_content(fleet, "local").await;
}

async fn set_remote_content(fleet: &Fleet, value: &str) {
    let patch = json!({"metadata": {"annotations": {annotation::REMOTE_CONTENT.name(): value}}});
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, patch).await;
}

fn config(name: &str, contents: &Value) -> MachineConfig {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/remote", "contents": contents},
        ]}}},
    }))
    .unwrap()
}

async fn embedded(fleet: &Fleet, rendered: &str) -> String {
    let config = fleet.all::<MachineConfig>().get(rendered).await.unwrap();
    let text = config.spec.config.unwrap().get().to_owned();
    let config: Value = serde_json::from_str(&text).unwrap();
    let files = config["storage"]["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == "/etc/remote").unwrap();
    assert_eq!(file["contents"]["httpHeaders"], Value::Null);
    file["contents"]["source"].as_str().unwrap().to_owned()
}

async fn kept(fleet: &Fleet) -> Vec<Secret> {
    let api = Api::<Secret>::namespaced(fleet.client.clone(), label::NAMESPACE);
    api.list(&ListParams::default().labels(label::REMOTE_CONTENT)).await.unwrap().items
}

/// Waits until the pool's `RenderDegraded` message contains these words; returns the message.
///
/// The controller may see the objects that allow the fetch later than the config.
async fn refused(fleet: &Fleet, words: &str) -> String {
    let find = |status: &MachineConfigPoolStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|c| c.kind == "RenderDegraded" && c.status == "True");
        found.map(|c| c.message.clone()).filter(|text| text.contains(words))
    };
    let status = fleet.wait_for_pool(words, |status| find(status).is_some()).await;
    find(&status).unwrap()
}

async fn contents_are_fetched_once_even_if_the_controller_restarts(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    allow_local(&fleet).await;
    let changed = Arc::new(AtomicBool::new(false));
    let now = changed.clone();
    let web =
        Web::start(move |_| if now.load(Ordering::SeqCst) { ok(b"other") } else { ok(b"hello") });
    let web = web.await;
    let before = fleet.rendered().await;
    let contents = json!({
        "source": format!("http://{}/a?token=s3cret", web.address),
        "httpHeaders": [{"name": "X-Token", "value": "s3cret"}],
        "verification": {"hash": HELLO},
    });
    fleet.create(&config("50-remote", &contents)).await;
    let first = fleet.rendered_anew(&before).await;
    let data = embedded(&fleet, &first).await;
    assert_eq!(data, "data:text/plain;charset=utf-8;base64,aGVsbG8=");

    // From now on the server may serve other contents.
    changed.store(true, Ordering::SeqCst);
    fleet.pause().await;
    fleet.resume();
    fleet.apply_config("60-motd", "/etc/motd").await;
    let second = fleet.rendered_anew(&first).await;
    assert_eq!(embedded(&fleet, &second).await, data);
    assert_eq!(web.asked().len(), 1, "{:?}", web.asked());

    let secrets = kept(&fleet).await;
    let owner = &secrets[0].owner_references()[0];
    let made = fleet.all::<MachineConfig>().get("50-remote").await.unwrap();
    assert_eq!(
        (secrets.len(), &owner.name, Some(&owner.uid)),
        (1, &"50-remote".to_owned(), made.metadata.uid.as_ref())
    );
    let said = format!("{:?}", secrets[0].annotations());
    assert!(said.contains("/etc/remote") && !said.contains("s3cret"), "{said}");

    // The Secret is deleted with its config; a config that is created again is another one, and its
    // contents are fetched anew.
    fleet.all::<MachineConfig>().delete("50-remote", &DeleteParams::default()).await.unwrap();
    let third = fleet.rendered_anew(&second).await;
    let contents = json!({"source": format!("http://{}/a", web.address)});
    fleet.create(&config("50-remote", &contents)).await;
    let fourth = fleet.rendered_anew(&third).await;
    assert_eq!(embedded(&fleet, &fourth).await, "data:text/plain;charset=utf-8;base64,b3RoZXI=");
    fleet.stop().await;
}

async fn a_failing_server_degrades_the_pool_until_it_recovers(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    allow_local(&fleet).await;
    let repaired = Arc::new(AtomicBool::new(false));
    let now = repaired.clone();
    let web = Web::start(move |_| {
        if now.load(Ordering::SeqCst) { ok(b"hello") } else { status("503 Service Unavailable") }
    });
    let web = web.await;
    let before = fleet.rendered().await;
    let url = format!("http://user:s3cret@{}/a?s3cret", web.address);
    fleet.create(&config("50-remote", &json!({ "source": url }))).await;
    assert_eq!(
        refused(&fleet, "503").await,
        format!(
            "Failed to render configuration for pool worker: failed to fetch http://{}/a \
             (file /etc/remote of MachineConfig 50-remote): the server responded 503 Service Unavailable",
            web.address
        )
    );
    assert_eq!(fleet.rendered().await, before, "the nodes keep their config");
    repaired.store(true, Ordering::SeqCst);
    // The retry succeeds without any change.
    let after = fleet.rendered_anew(&before).await;
    assert!(embedded(&fleet, &after).await.ends_with("aGVsbG8="));
    fleet
        .wait_for_pool("the pool has recovered", |status| is(status, "RenderDegraded", "False"))
        .await;
    fleet.stop().await;
}

async fn contents_with_a_wrong_hash_are_neither_used_nor_stored(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    allow_local(&fleet).await;
    let web = Web::start(|_| ok(b"hullo")).await;
    let contents = json!({
        "source": format!("http://{}/a", web.address),
        "verification": {"hash": HELLO},
    });
    fleet.create(&config("50-remote", &contents)).await;
    let text = refused(&fleet, "have the hash sha256-").await;
    assert!(text.contains("MachineConfig 50-remote"), "{text}");
    assert!(kept(&fleet).await.is_empty());
    fleet.stop().await;
}

// covers: REN-22
async fn contents_are_not_fetched_if_disabled(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    // The MachineConfiguration takes precedence over the ControllerConfig. Controllers that start
    // afterwards see both.
    fleet.pause().await;
    set_remote_content(&fleet, "local").await;
    let settings: MachineConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "cluster", "annotations": {annotation::REMOTE_CONTENT.name(): "disabled"}},
        "spec": {"managementState": "Managed"},
    }))
    .unwrap();
    fleet.create(&settings).await;
    fleet.resume();
    let web = Web::start(|_| ok(b"hello")).await;
    let before = fleet.rendered().await;
    let url = format!("http://{}/a", web.address);
    fleet.create(&config("50-remote", &json!({"source": url.clone()}))).await;
    let after = fleet.rendered_anew(&before).await;
    assert_eq!(embedded(&fleet, &after).await, url);
    // An unknown value is an error.
    let patch = json!({"metadata": {"annotations": {annotation::REMOTE_CONTENT.name(): "off"}}});
    fleet.patch::<MachineConfiguration>("cluster", patch).await;
    let text = refused(&fleet, "is \"off\"").await;
    assert!(text.ends_with("is \"off\"; set it to enabled, local or disabled"), "{text}");
    // Without the annotation the controller's own machine is not allowed.
    let patch =
        json!({"metadata": {"annotations": {annotation::REMOTE_CONTENT.name(): "enabled"}}});
    fleet.patch::<MachineConfiguration>("cluster", patch).await;
    refused(&fleet, "is not public").await;
    assert_eq!(web.asked(), Vec::<String>::new());
    fleet.stop().await;
}
