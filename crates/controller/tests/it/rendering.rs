//! Tests of the contents of a rendered config, and of rejected ones.

use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfiguration, OSImageStream, annotation, label,
};
use mco_cluster::admin::Registry;
use mco_controller::Metrics;
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, is},
    server::{Server, on_both},
};

on_both! {
    an_irreconcilable_config_is_not_rendered_unless_overridden,
    an_overridden_os_image_is_published,
    configs_that_are_too_large_together_are_not_rendered,
    a_custom_pool_follows_the_stream_of_the_workers,
}

fn config(name: &str, spec: &Value) -> MachineConfig {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: "worker"}}, "spec": spec,
    }))
    .unwrap()
}

// covers: REN-30, REN-31, REN-37
async fn an_irreconcilable_config_is_not_rendered_unless_overridden(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let before = fleet.rendered().await;
    let disks = json!({"config": {"ignition": {"version": "3.4.0"},
        "storage": {"disks": [{"device": "/dev/sdb", "wipeTable": true}]}}});
    fleet.create(&config("50-disks", &disks)).await;
    let status =
        fleet.wait_for_pool("it is degraded", |status| is(status, "RenderDegraded", "True")).await;
    let found = status.conditions.iter().find(|c| c.kind == "RenderDegraded").unwrap();
    assert_eq!(
        found.message,
        format!(
            "Failed to render configuration for pool worker: could not generate rendered \
             MachineConfig: reconciliation failed between current config \"{before}\" and base \
             config \"50-disks\": ignition disks section contains changes"
        )
    );
    assert_eq!(fleet.rendered().await, before);
    let settings: MachineConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "cluster"},
        "spec": {
            "managementState": "Managed",
            "irreconcilableValidationOverrides": {"storage": ["Disks"]},
        },
    }))
    .unwrap();
    fleet.create(&settings).await;
    fleet.rendered_anew(&before).await;
    fleet
        .wait_for_pool("the pool has recovered", |status| is(status, "RenderDegraded", "False"))
        .await;
    fleet.stop().await;
}

// covers: REN-10, REN-38
async fn an_overridden_os_image_is_published(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    fleet.pause().await;
    let mut registry = Registry::default();
    fleet.config.metrics = Metrics::register(&mut registry);
    fleet.resume();
    let count = |registry: &Registry| {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let line =
            text.lines().find(|line| line.starts_with("os_image_url_override{pool=\"worker"));
        line.unwrap_or_default().to_owned()
    };
    let before = fleet.rendered().await;
    let image = format!("quay.test/mine@sha256:{}", "1".repeat(64));
    fleet
        .create(&config(
            "50-image",
            &json!({"osImageURL": image, "config": {"ignition": {"version": "3.4.0"}}}),
        ))
        .await;
    let after = fleet.rendered_anew(&before).await;
    let rendered = fleet.all::<MachineConfig>().get(&after).await.unwrap();
    let marks = rendered.annotations();
    assert_eq!(marks[annotation::OS_IMAGE_URL_OVERRIDDEN.name()], "true");
    assert_eq!(
        fleet.event("OSImageURLOverridden").await,
        format!("OSImageURL was overridden via machineconfig in {after} (was:  is: {image})")
    );
    // The metric is updated before the event is published.
    assert_eq!(count(&registry), "os_image_url_override{pool=\"worker\"} 1");
    fleet.stop().await;
}

// covers: REN-34, REN-35
async fn a_custom_pool_follows_the_stream_of_the_workers(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    let custom: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": label::ROLE, "operator": "In", "values": ["worker", "infra"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
        },
    }))
    .unwrap();
    fleet.create(&custom).await;
    let streams: OSImageStream = serde_json::from_value(json!({
        "metadata": {"name": "cluster", "annotations": {
            annotation::RELEASE_IMAGE_VERSION.name(): "abc",
        }},
        "spec": {"defaultStream": "rhel-9"},
    }))
    .unwrap();
    fleet.create(&streams).await;
    let image = |digit: &str| format!("quay.test/os@sha256:{}", digit.repeat(64));
    let set = |name: &str, digit: &str| json!({"name": name, "osImage": image(digit), "osExtensionsImage": image(digit)});
    let status = json!({"status": {
        "defaultStream": "rhel-9",
        "availableStreams": [set("rhel-9", "9"), set("rhel-10", "a")],
    }});
    let api = Api::<OSImageStream>::all(fleet.client.clone());
    let patch = Patch::Merge(status);
    api.patch_status("cluster", &PatchParams::default(), &patch).await.unwrap();
    let has = async |pool: &str, wanted: String| {
        let mut seen = String::new();
        loop {
            let known = seen.clone();
            let found = fleet.wait::<MachineConfigPool>(pool, "another config", move |pool| {
                let name = &pool.spec.configuration.rendered.name;
                !name.is_empty() && *name != known
            });
            seen = found.await.spec.configuration.rendered.name;
            let config = fleet.all::<MachineConfig>().get(&seen).await.unwrap();
            if config.spec.os_image_url == wanted {
                return;
            }
        }
    };
    has("worker", image("9")).await;
    has("infra", image("9")).await;
    let stream = json!({"spec": {"osImageStream": {"name": "rhel-10"}}});
    fleet.patch::<MachineConfigPool>("worker", stream).await;
    has("worker", image("a")).await;
    has("infra", image("a")).await;
    // Two settings name different OS images.
    fleet
        .create(&config(
            "50-image",
            &json!({"osImageURL": image("1"), "config": {"ignition": {"version": "3.4.0"}}}),
        ))
        .await;
    let status =
        fleet.wait_for_pool("it is degraded", |status| is(status, "RenderDegraded", "True")).await;
    let found = status.conditions.iter().find(|c| c.kind == "RenderDegraded").unwrap();
    assert!(
        found.message.ends_with(
            "cannot override MachineConfig osImageURL and set MachineConfigPool \
             spec.osImageStream.name simultaneously"
        ),
        "{}",
        found.message
    );
    fleet.stop().await;
}

/// etcd stores each of them; the rendered config would exceed its limit.
async fn configs_that_are_too_large_together_are_not_rendered(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let before = fleet.rendered().await;
    let source = format!("data:,{}", "x".repeat(800_000));
    for number in 0..2 {
        let file = json!({"path": format!("/etc/large{number}"), "contents": {"source": source}});
        let spec =
            json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}}});
        fleet.create(&config(&format!("50-large{number}"), &spec)).await;
    }
    let is_decided = |pool: &MachineConfigPool| {
        let sources = &pool.spec.configuration.source;
        let has_all = sources.iter().filter(|it| it.name.starts_with("50-large")).count() == 2;
        has_all || pool.status.as_ref().is_some_and(|it| is(it, "RenderDegraded", "True"))
    };
    let pool = fleet.wait::<MachineConfigPool>("worker", "degraded or rendered", is_decided).await;
    let conditions = pool.status.unwrap().conditions;
    let found = conditions.iter().find(|c| c.kind == "RenderDegraded" && c.status == "True");
    let found = found.expect("RenderDegraded, not a config that etcd cannot store");
    assert!(found.message.contains("1572864"), "{}", found.message);
    let rendered = fleet.rendered().await;
    let made = fleet.all::<MachineConfig>().get(&rendered).await.unwrap();
    let size = serde_json::to_vec(&made).unwrap().len();
    assert!(size < 1_572_864, "{rendered} has {size} bytes; before: {before}");
    fleet.stop().await;
}
