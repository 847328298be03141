//! The objects of the benchmark's cluster: CRDs, pools, configs, and nodes as large as a kubelet
//! makes them.

use anyhow::Context as _;
use futures::future;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{
    Api, Client, CustomResourceDefinition, MachineConfig, Namespace, Node, PostParams, TIMEOUT,
    await_condition, conditions, json, label,
};
use crate::objects;

/// Number of source configs per pool.
const CONFIGS: usize = 16;

/// Maximum number of images that a kubelet reports.
const IMAGES: usize = 50;

/// Version that the ControllerConfig carries: that of the binary under test.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Installs CRDs, pools and configs.
pub(super) async fn install(client: &Client) -> anyhow::Result<()> {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let mut installed = Vec::new();
    for kind in mco_api::crds() {
        kinds.create(&PostParams::default(), &kind).await?;
        let name = kind.metadata.name.unwrap_or_default();
        let kinds = kinds.clone();
        installed.push(async move {
            let there = await_condition(kinds, &name, conditions::is_crd_established());
            tokio::time::timeout(TIMEOUT, there).await.map(drop)
        });
    }
    future::try_join_all(installed).await.context("failed to install the CRDs")?;
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": label::NAMESPACE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    objects::create_controller_config(client, VERSION).await?;
    let configs = Api::<MachineConfig>::all(client.clone());
    for role in ["master", "worker"] {
        for number in 0..CONFIGS {
            let name = format!("{number:02}-{role}");
            let config = config(&name, role, &format!("/etc/{name}"), 6_000);
            configs.create(&PostParams::default(), &config).await?;
        }
        let mut pool = objects::pool(role);
        let share = IntOrString::String("10%".to_owned());
        pool.spec.max_unavailable = Some(share).filter(|_| role == "worker");
        Api::all(client.clone()).create(&PostParams::default(), &pool).await?;
    }
    Ok(())
}

/// Builds a config with one file of this many bytes.
pub(super) fn config(name: &str, role: &str, path: &str, size: usize) -> MachineConfig {
    objects::config(name, role, path, &"x".repeat(size))
}

/// Returns the name of a node.
pub(super) fn name(number: usize) -> String {
    format!("worker-{number:05}")
}

/// Builds a node as its kubelet reports it: about 21 kB, most of it images.
pub(super) fn node(name: &str, config: &str) -> anyhow::Result<Node> {
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let image = |number: usize| {
        let digest = format!("{number:064x}");
        json!({"names": [
            format!("quay.test/openshift-release-dev/ocp-v4.0-art-dev@sha256:{digest}"),
            format!("quay.test/openshift-release-dev/ocp-v4.0-art-dev@sha256:{digest:.>64}-component"),
            format!("registry.test:5000/cluster/some-component-with-a-name-{number}:v4.20.0"),
        ], "sizeBytes": 500_000_000 + number})
    };
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("Kubelet{kind}"),
            "message": format!("kubelet reports {kind}={status}"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let capacity = json!({"cpu": "64", "memory": "263720460Ki", "pods": "250",
        "ephemeral-storage": "936102860Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                "node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                "node.openshift.io/os_id": "rhel",
                "topology.kubernetes.io/zone": format!("rack-{}", name.len() % 3),
            },
            "annotations": {
                key("currentConfig"): config, key("desiredConfig"): config,
                key("state"): "Done", key("reason"): "",
                key("desiredDrain"): format!("uncordon-{config}"),
                key("lastAppliedDrain"): format!("uncordon-{config}"),
                key("controlPlaneTopology"): "HighlyAvailable",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": "10.128.0.0/24", "providerID": format!("baremetal:///{name}")},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True")],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"},
                {"type": "Hostname", "address": name}],
            "nodeInfo": {"machineID": "0", "systemUUID": "0", "bootID": "0", "kernelVersion": "6.1.0",
                "osImage": "Linux", "containerRuntimeVersion": "cri-o://1.33.0", "operatingSystem":
                "linux", "kubeletVersion": "v1.36.4", "kubeProxyVersion": "v1.36.4", "architecture": "amd64"},
            "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
        },
    }))?)
}

/// Builds the MachineConfigNode status of a daemon that is done.
pub(super) fn report(config: &str) -> serde_json::Value {
    let kinds = [
        "UpdatePrepared",
        "UpdateExecuted",
        "UpdatePostActionComplete",
        "UpdateComplete",
        "Resumed",
        "AppliedFiles",
        "AppliedOSImage",
        "ImagePulledFromRegistry",
        "Cordoned",
        "Drained",
        "RebootedNode",
        "NodeDegraded",
        "PinnedImageSetsProgressing",
        "PinnedImageSetsDegraded",
    ];
    let condition = |kind: &&str| {
        json!({
            "type": kind, "status": "False", "reason": "NotYetOccurred",
            "message": format!("This node has not yet entered the {kind} phase"),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let mut conditions: Vec<_> = kinds.iter().map(condition).collect();
    conditions.push(json!({
        "type": "Updated", "status": "True", "reason": "Updated",
        "message": format!("Node has updated to {config}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    json!({"conditions": conditions, "observedGeneration": 1,
        "configVersion": {"current": config, "desired": config}})
}
