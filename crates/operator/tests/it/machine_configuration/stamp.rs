//! Tests of the mark on the boot images of the release.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool, annotation, label};
use serde_json::json;

use super::on_both;
use crate::{
    operands::cluster::Cluster,
    support::{Operator, config, wait, wait_for},
};

on_both! { boot_images_are_marked_when_a_control_plane_node_runs_this_build }

// covers: O42
async fn boot_images_are_marked_when_a_control_plane_node_runs_this_build(cluster: &Cluster) {
    let client = &cluster.admin;
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    wait(client, "the kinds are served", |it| it.status.is_some()).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE);
    let map = json!({"metadata": {"name": "coreos-bootimages"}, "data": {"stream": "large"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let configs = Api::<MachineConfig>::all(client.clone());
    for (name, hash) in [("rendered-master-old", "other"), ("rendered-master-new", "hash of v1")] {
        let annotations = json!({annotation::GENERATED_BY_CONTROLLER_VERSION.name(): hash});
        let config = json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"config": {"ignition": {"version": "3.5.0"}}}});
        let config = serde_json::from_value(config).unwrap();
        configs.create(&PostParams::default(), &config).await.unwrap();
    }
    let pools = Api::<MachineConfigPool>::all(client.clone());
    wait_for(&pools, "master", "the pool exists", |it| it.is_some()).await;
    let now = "2026-01-01T00:00:00Z";
    let rows = [
        // config, nodes that run it, condition, marked
        ("rendered-master-old", 1, "Updated", false),
        ("rendered-master-new", 0, "Updating", false),
        ("rendered-master-new", 1, "Updating", true),
    ];
    for (config, updated, kind, is_marked) in rows {
        let patch = Patch::Merge(json!({"spec": {"configuration": {"name": config}}}));
        let pool = pools.patch("master", &PatchParams::default(), &patch).await.unwrap();
        let condition = json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let status = json!({"observedGeneration": pool.metadata.generation, "machineCount": 3, "updatedMachineCount": updated,
            "readyMachineCount": updated, "unavailableMachineCount": 0,
            "degradedMachineCount": 0, "certExpirys": [], "conditions": [condition]});
        let patch = Patch::Merge(json!({"status": status}));
        pools.patch_status("master", &PatchParams::default(), &patch).await.unwrap();
        if is_marked {
            let is_marked = |it: Option<&ConfigMap>| {
                let data = it.and_then(|it| it.data.clone()).unwrap_or_default();
                let expected = json!({"stream": "large", "MCOVersionHash": "hash of v1",
                    "MCOReleaseImageVersion": "4.20.0"});
                json!(data) == expected
            };
            wait_for(&maps, "coreos-bootimages", "the mark", is_marked).await;
        } else {
            // A pool that comes back was reconciled after the status was written.
            pools.delete("worker", &kube::api::DeleteParams::default()).await.unwrap();
            wait_for(&pools, "worker", "the pool comes back", |it| it.is_some()).await;
            let data = maps.get("coreos-bootimages").await.unwrap().data.unwrap();
            assert_eq!(data.keys().collect::<Vec<_>>(), ["stream"], "{config} {updated}");
        }
    }
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}
