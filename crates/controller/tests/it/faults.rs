//! The controllers when the API server misbehaves: a history that went back, an object that cannot be
//! decoded, a request without an answer.

use std::{
    future,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool, annotation};
use mco_cluster::Shutdown;
use mco_testkit::{objects, switch::switching};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    fleet::{self, Fleet, awaited, is},
    server::Server,
};

async fn patch<K>(client: &Client, name: &str, patch: Value)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Creates the objects of a cluster with one node, and waits until its config is rendered.
async fn create_cluster(client: &Client) -> String {
    // Before the ControllerConfig, for which the controller would create another base config.
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let base = objects::config("00-worker", "worker", "/etc/base", "hello");
    configs.create(&PostParams::default(), &base).await.unwrap();
    objects::create_controller_config(client, "v1").await.unwrap();
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    pools.create(&PostParams::default(), &objects::pool("worker")).await.unwrap();
    let pool = awaited(pools, "worker", "has a config", |pool: &MachineConfigPool| {
        !pool.spec.configuration.rendered.name.is_empty()
    });
    let rendered = pool.await.spec.configuration.rendered.name;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &objects::worker("n0", &rendered)).await.unwrap();
    rendered
}

#[tokio::test]
async fn a_restored_api_server_with_lower_versions_is_followed_without_a_restart() {
    let (first, second) = (Server::embedded().await, Server::embedded().await);
    let clients = [first.client().await, second.client().await];
    let (switch, switched) = watch::channel(false);
    let shutdown = Shutdown::new();
    let client = switching(clients.clone(), &switched);
    let running = tokio::spawn(mco_controller::run(fleet::config(), client, shutdown.clone()));
    let [before, after] = clients;
    create_cluster(&before).await;
    // The first server's versions are far above those that the second will have.
    for number in 0..200 {
        let mark = json!({"metadata": {"annotations": {"example.com/mark": number.to_string()}}});
        patch::<Node>(&before, "n0", mark.clone()).await;
        patch::<MachineConfigPool>(&before, "worker", mark.clone()).await;
        patch::<MachineConfig>(&before, "00-worker", mark).await;
    }
    switch.send_replace(true);
    let base = create_cluster(&after).await;
    let configs: Api<MachineConfig> = Api::all(after.clone());
    let more = objects::config("50-more", "worker", "/etc/more", "hello");
    configs.create(&PostParams::default(), &more).await.unwrap();
    let key = annotation::DESIRED_CONFIG.name();
    awaited(Api::<Node>::all(after), "n0", "has another desired config", |node: &Node| {
        let desired = node.metadata.annotations.as_ref().and_then(|all| all.get(key));
        desired.is_some_and(|desired| *desired != base)
    })
    .await;
    shutdown.request();
    running.await.unwrap();
}

#[tokio::test]
async fn a_config_that_cannot_be_decoded_degrades_its_pools_and_stops_nothing_else() {
    let fleet = Fleet::start(1).await;
    let before = fleet.rendered().await;
    fleet.apply_config("50-broken", "/etc/broken").await;
    let second = fleet.rendered_anew(&before).await;
    let api: Api<kube::core::DynamicObject> =
        Api::all_with(fleet.client.clone(), &kube::core::ApiResource::erase::<MachineConfig>(&()));
    objects::accept_everything::<MachineConfig>(&fleet.client).await.unwrap();
    let broken = json!({"spec": {"extensions": "MARKER"}});
    api.patch("50-broken", &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
    let degraded = |status: &_| is(status, "RenderDegraded", "True");
    let status = fleet.wait_for_pool("it is degraded", degraded).await;
    let found = status.conditions.iter().find(|c| c.kind == "RenderDegraded").unwrap();
    let fault = "MachineConfig 50-broken cannot be decoded: \
                 unexpected type or missing member at spec.extensions";
    assert!(found.message.contains(fault), "{}", found.message);
    assert!(!found.message.contains("MARKER"), "{}", found.message);
    let event = fleet.event("Undecodable").await;
    assert!(event.starts_with(fault) && !event.contains("MARKER"), "{event}");
    // The config was not dropped from the pool, and other objects are still heard.
    assert_eq!(fleet.rendered().await, second);
    fleet.create(&fleet::worker("n1", &second)).await;
    fleet.wait_for_pool("both nodes are counted", |status| status.machine_count == 2).await;
    let repaired = json!({"spec": {"extensions": null}});
    api.patch("50-broken", &PatchParams::default(), &Patch::Merge(repaired)).await.unwrap();
    fleet.wait_for_pool("it has recovered", |status| is(status, "RenderDegraded", "False")).await;
    fleet.stop().await;
}

#[tokio::test]
async fn no_node_starts_to_update_while_a_pool_cannot_be_decoded() {
    let fleet = Fleet::start(1).await;
    let before = fleet.rendered().await;
    let api: Api<kube::core::DynamicObject> = Api::all_with(
        fleet.client.clone(),
        &kube::core::ApiResource::erase::<MachineConfigPool>(&()),
    );
    fleet.infra_pool().await;
    objects::accept_everything::<MachineConfigPool>(&fleet.client).await.unwrap();
    let broken = json!({"spec": {"paused": "oops"}});
    api.patch("infra", &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
    fleet.event("Undecodable").await;
    fleet.apply_config("50-more", "/etc/more").await;
    let after = fleet.rendered_anew(&before).await;
    fleet
        .wait::<MachineConfigNode>("n0", "waits for the pool", |node| {
            let status = node.status.as_ref();
            status.is_some_and(|status| {
                status.conditions.iter().any(|c| c.type_ == "Waiting" && c.reason == "Undecodable")
            })
        })
        .await;
    assert!(fleet.under_way(&after).await.is_empty());
    let repaired = json!({"spec": {"paused": false}});
    api.patch("infra", &PatchParams::default(), &Patch::Merge(repaired)).await.unwrap();
    assert_eq!(fleet.wait_for_start(&after).await, "n0");
    fleet.stop().await;
}

#[tokio::test]
async fn a_request_without_an_answer_for_a_master_does_not_hold_up_the_arbiter_pool() {
    let server = Server::embedded().await;
    let direct = server.client().await;
    let hung = Arc::new(Mutex::new(None::<String>));
    let hanging = hung.clone();
    let client = server
        .gated(move |request| {
            let hangs = hanging.lock().unwrap().as_ref().is_some_and(|path| {
                request.method() == http::Method::PATCH && request.uri().path() == path
            });
            async move {
                if hangs {
                    future::pending::<()>().await;
                }
                request
            }
        })
        .await;
    let (configs, pools, nodes): (Api<MachineConfig>, Api<MachineConfigPool>, Api<Node>) =
        (Api::all(direct.clone()), Api::all(direct.clone()), Api::all(direct.clone()));
    let roles = ["master", "arbiter"];
    for role in roles {
        let base = objects::config(&format!("00-{role}"), role, "/etc/base", "hello");
        configs.create(&PostParams::default(), &base).await.unwrap();
    }
    objects::create_controller_config(&direct, "v1").await.unwrap();
    let shutdown = Shutdown::new();
    let running = tokio::spawn(mco_controller::run(fleet::config(), client, shutdown.clone()));
    for role in roles {
        pools.create(&PostParams::default(), &objects::pool(role)).await.unwrap();
        let pool = awaited(pools.clone(), role, "has a config", |pool: &MachineConfigPool| {
            !pool.spec.configuration.rendered.name.is_empty()
        });
        let rendered = pool.await.spec.configuration.rendered.name;
        let mut node = objects::worker(&format!("{role}-0"), &rendered);
        let label = format!("node-role.kubernetes.io/{role}");
        node.metadata.labels = Some([(label, String::new())].into());
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let counts = |count: i32| {
        move |pool: &MachineConfigPool| {
            pool.status.as_ref().is_some_and(|status| status.machine_count == count)
        }
    };
    awaited(pools.clone(), "master", "has its node", counts(1)).await;
    awaited(pools.clone(), "arbiter", "has its node", counts(1)).await;
    *hung.lock().unwrap() = Some("/api/v1/nodes/master-0".to_owned());
    let more = objects::config("50-more", "master", "/etc/more", "hello");
    configs.create(&PostParams::default(), &more).await.unwrap();
    awaited(pools.clone(), "master", "has a new config", |pool: &MachineConfigPool| {
        pool.spec.configuration.source.len() == 2
    })
    .await;
    // The arbiter's pool is reconciled while the master's patch has no answer.
    let mut another = objects::worker("arbiter-1", "none");
    let label = "node-role.kubernetes.io/arbiter".to_owned();
    another.metadata.labels = Some([(label, String::new())].into());
    nodes.create(&PostParams::default(), &another).await.unwrap();
    awaited(pools, "arbiter", "counts the new node", counts(2)).await;
    running.abort();
    shutdown.request();
}
