//! Tests of the MachineConfigs that the controller generates from ContainerRuntimeConfigs.

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::{ContainerRuntimeConfig, MachineConfig, MachineConfigPool, annotation};
use mco_core::generated::file_of;
use mco_testkit::objects;
use serde::Serialize;
use serde_json::json;

use crate::{
    fleet::{Fleet, INFRA},
    server::{Server, on_both},
};

on_both! {
    a_config_reaches_all_its_pools_and_leaves_no_trace,
    an_invalid_config_changes_no_node,
    the_newest_config_wins_and_a_pool_has_ten_at_most,
    a_pool_that_is_created_later_gets_its_config,
    a_pool_with_containerd_gets_what_containerd_has,
    a_pool_waits_for_its_runtime_settings,
}

/// Returns a config for the pools with the label `tuned`.
fn config(name: &str, settings: impl Serialize) -> ContainerRuntimeConfig {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {"tuned": ""}},
            "containerRuntimeConfig": settings,
        },
    }))
    .unwrap()
}

async fn tune(fleet: &Fleet, pool: &str) {
    fleet.patch::<MachineConfigPool>(pool, json!({"metadata": {"labels": {"tuned": ""}}})).await;
}

/// Waits for the last condition of a config; returns its message.
async fn message(fleet: &Fleet, name: &str, kind: &str) -> String {
    let last = |config: &ContainerRuntimeConfig| {
        let status = config.status.clone().unwrap_or_default();
        let is_current = Some(status.observed_generation) == config.metadata.generation;
        status.conditions.into_iter().next_back().filter(|last| is_current && last.kind == kind)
    };
    let found = fleet.wait::<ContainerRuntimeConfig>(name, kind, |one| last(one).is_some()).await;
    last(&found).unwrap().message
}

fn text(config: &MachineConfig, path: &str) -> Option<String> {
    file_of(config, path).map(|bytes| String::from_utf8(bytes).unwrap())
}

const PIDS: &str = "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit";
const STORAGE: &str = "/etc/containers/storage.conf";

// covers: CRC-4, CRC-5
async fn a_config_reaches_all_its_pools_and_leaves_no_trace(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let base = "%5Bstorage%5D%0Adriver%3D%22overlay%22%0A";
    fleet.create(&objects::config("01-worker-container-runtime", "worker", STORAGE, base)).await;
    let old = fleet.rendered_anew(&fleet.rendered().await).await;
    fleet.infra_pool().await;
    for pool in ["worker", "infra"] {
        tune(&fleet, pool).await;
    }
    fleet.create(&config("big", json!({"pidsLimit": 2048, "overlaySize": "8G"}))).await;
    let names = ["99-worker-generated-containerruntime", "99-infra-generated-containerruntime"];
    for name in names {
        let made = fleet.wait::<MachineConfig>(name, "it is generated", |_| true).await;
        assert!(text(&made, PIDS).unwrap().contains("pids_limit = 2048"));
        assert!(text(&made, STORAGE).unwrap().contains("size = \"8G\""));
        assert_eq!(made.owner_references()[0].name, "big");
    }
    assert_eq!(message(&fleet, "big", "Success").await, "Success");
    let known = fleet.all::<ContainerRuntimeConfig>().get("big").await.unwrap();
    assert_eq!(known.annotations()[annotation::CONFIG_NAME_SUFFIX.name()], "");
    assert_eq!(known.finalizers().len(), 2);

    // An edit is reverted, a change of the base config and of the settings is followed.
    let edit = json!({"spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": null}}});
    fleet.patch::<MachineConfig>(names[0], edit).await;
    let restored = |config: &MachineConfig| text(config, PIDS).is_some();
    fleet.wait::<MachineConfig>(names[0], "it is restored", restored).await;
    let change = json!({"spec": {"containerRuntimeConfig": {"pidsLimit": 4096}}});
    fleet.patch::<ContainerRuntimeConfig>("big", change).await;
    for name in names {
        let has = |config: &MachineConfig| text(config, PIDS).unwrap().contains("4096");
        fleet.wait::<MachineConfig>(name, "it is changed", has).await;
    }

    // A pool that is no longer selected loses its config.
    let gone = json!({"metadata": {"labels": {"tuned": null}}});
    fleet.patch::<MachineConfigPool>("infra", gone).await;
    fleet.gone::<MachineConfig>(names[1]).await;
    fleet.all::<ContainerRuntimeConfig>().delete("big", &DeleteParams::default()).await.unwrap();
    fleet.gone::<ContainerRuntimeConfig>("big").await;
    fleet.gone::<MachineConfig>(names[0]).await;
    fleet
        .wait::<MachineConfigPool>("worker", "it has its old config again", |pool| {
            pool.spec.configuration.rendered.name == old
        })
        .await;
    fleet.stop().await;
}

async fn an_invalid_config_changes_no_node(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    let none = "Error: could not find any MachineConfigPool set for ContainerRuntimeConfig small";
    fleet.create(&config("small", json!({"pidsLimit": 4096}))).await;
    assert_eq!(message(&fleet, "small", "Failure").await, none);
    let change = |limit: i64| json!({"spec": {"containerRuntimeConfig": {"pidsLimit": limit}}});
    fleet.patch::<ContainerRuntimeConfig>("small", change(10)).await;
    tune(&fleet, "worker").await;
    fleet
        .wait::<ContainerRuntimeConfig>("small", "it names its fault", |config| {
            let status = config.status.clone().unwrap_or_default();
            let last = status.conditions.last().map(|last| last.message.clone());
            last.as_deref() == Some("Error: invalid PidsLimit 10")
        })
        .await;
    let made = fleet.all::<MachineConfig>();
    let name = "99-worker-generated-containerruntime";
    assert_eq!(made.get_opt(name).await.unwrap(), None);
    assert_eq!(fleet.rendered().await, old);

    // A fault in a config that has an effect leaves the effect as it is.
    fleet.patch::<ContainerRuntimeConfig>("small", change(4096)).await;
    assert_eq!(message(&fleet, "small", "Success").await, "Success");
    let before = made.get(name).await.unwrap().spec;
    fleet.patch::<ContainerRuntimeConfig>("small", change(5)).await;
    assert_eq!(message(&fleet, "small", "Failure").await, "Error: invalid PidsLimit 5");
    assert_eq!(made.get(name).await.unwrap().spec, before);
    let conditions = fleet.all::<ContainerRuntimeConfig>().get("small").await.unwrap().status;
    assert!(conditions.unwrap().conditions.len() <= 3);
    fleet.stop().await;
}

async fn the_newest_config_wins_and_a_pool_has_ten_at_most(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    tune(&fleet, "worker").await;
    for number in 0..10 {
        let name = format!("c{number}");
        fleet.create(&config(&name, json!({"pidsLimit": 100 + number}))).await;
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let made = format!("99-worker-generated-containerruntime{suffix}");
        fleet.wait::<MachineConfig>(&made, "it is generated", |_| true).await;
        message(&fleet, &name, "Success").await;
    }
    fleet.create(&config("more", json!({"pidsLimit": 2048}))).await;
    let text = "could not get ctrcfg key: max number of supported ctrcfgs (10) has been reached. \
        Please delete old ctrcfgs before retrying";
    assert_eq!(message(&fleet, "more", "Failure").await, text);
    // A number that is free again is used.
    fleet.all::<ContainerRuntimeConfig>().delete("c9", &DeleteParams::default()).await.unwrap();
    assert_eq!(message(&fleet, "more", "Success").await, "Success");
    fleet.stop().await;
}

async fn a_pool_that_is_created_later_gets_its_config(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    tune(&fleet, "worker").await;
    fleet.create(&config("all", json!({"logLevel": "debug"}))).await;
    message(&fleet, "all", "Success").await;
    let mut pool = objects::pool("infra");
    pool.metadata.labels = Some([("tuned".to_owned(), String::new())].into());
    fleet.create(&pool).await;
    let name = "99-infra-generated-containerruntime";
    fleet.wait::<MachineConfig>(name, "it is generated", |_| true).await;
    fleet.all::<MachineConfigPool>().delete("infra", &DeleteParams::default()).await.unwrap();
    fleet.gone::<MachineConfig>(name).await;
    fleet.stop().await;
}

async fn a_pool_with_containerd_gets_what_containerd_has(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    fleet.infra_pool().await;
    for pool in ["worker", "infra"] {
        tune(&fleet, pool).await;
    }
    fleet.create(&config("logs", json!({"logSizeMax": "50M", "logLevel": "debug"}))).await;
    assert_eq!(message(&fleet, "logs", "Success").await, "Success");
    let label = json!({"metadata": {"labels": {INFRA: ""}}});
    fleet.patch::<Node>("n0", label).await;
    let info = json!({"nodeInfo": {
        "containerRuntimeVersion": "containerd://2.1.4", "architecture": "", "bootID": "",
        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
        "operatingSystem": "", "osImage": "", "systemUUID": "",
    }});
    fleet.patch_status::<Node>("n0", info).await;
    let path = "/etc/kubernetes/kubelet.conf.d/40-container-runtime.conf";
    let has = |config: &MachineConfig| text(config, path).is_some();
    let infra = "99-infra-generated-containerruntime";
    let made = fleet.wait::<MachineConfig>(infra, "it is for containerd", has).await;
    assert!(text(&made, path).unwrap().contains("containerLogMaxSize: \"50000000\""));
    assert_eq!(text(&made, "/etc/crio/crio.conf.d/01-ctrcfg-logLevel"), None);
    fleet
        .wait::<ContainerRuntimeConfig>("logs", "it names what has no effect", |config| {
            let last = config.status.clone().unwrap_or_default().conditions.pop().unwrap();
            let start = "Success, except for settings without effect: logLevel: the base config ";
            last.kind == "Success" && last.message.starts_with(start)
        })
        .await;

    // With a base config that has the file, containerd gets the level too.
    let (base, path) = ("01-worker-container-runtime", "/etc/containerd/config.toml");
    fleet.create(&objects::config(base, "worker", path, "version%20%3D%202%0A")).await;
    let has = |config: &MachineConfig| {
        text(config, path).is_some_and(|text| text == "version = 2\n\n[debug]\nlevel = \"debug\"\n")
    };
    fleet.wait::<MachineConfig>(infra, "its containerd has the level", has).await;
    fleet
        .wait::<ContainerRuntimeConfig>("logs", "all settings have an effect", |config| {
            let last = config.status.clone().unwrap_or_default().conditions.pop().unwrap();
            last.kind == "Success" && last.message == "Success"
        })
        .await;
    fleet.stop().await;
}

// covers: REN-9
async fn a_pool_waits_for_its_runtime_settings(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    tune(&fleet, "worker").await;
    let before = fleet.rendered().await;
    fleet.pause().await;
    fleet.apply_config("50-more", "/etc/more").await;
    fleet.create(&config("pids", json!({"pidsLimit": 2048}))).await;
    fleet.resume();
    let after = fleet.rendered_anew(&before).await;
    let rendered = fleet.all::<MachineConfig>().get(&after).await.unwrap();
    assert!(text(&rendered, PIDS).is_some() && text(&rendered, "/etc/more").is_some());
    fleet.stop().await;
}
