//! Tests of the processes that the operator deploys, on both API servers.

pub(crate) mod admission;
pub(crate) mod cluster;

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::ServiceAccount,
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_core::{
    render::Build,
    takeover::{AdoptedBuild, Order},
};
use mco_operator::{
    Config,
    manifests::{MANAGED_BY, ObjectName},
};
use serde_json::{Value, json};

use self::cluster::{Cluster, IMAGE, contains, settings};
use crate::support::{Operator, condition, established, wait, wait_for};

const CONTROLLER: &str = "machine-config-controller";
const DAEMON: &str = "machine-config-daemon";
const SERVER: &str = "machine-config-server";

/// Returns an edit of an object that the operator must revert; `None` if the kind has nothing to edit,
/// or an admission policy forbids it.
fn edit(name: &ObjectName) -> Option<Value> {
    // Two ports of one name are invalid, so that a merge of both lists is rejected.
    let port = if name.name == SERVER { "https" } else { "metrics" };
    Some(match name.kind.as_str() {
        "ClusterRole" | "Role" => json!({"rules": []}),
        "ClusterRoleBinding" | "RoleBinding" => json!({"subjects": []}),
        "Deployment" => json!({"spec": {"replicas": 0, "template": {"spec": {"hostPID": true,
            "serviceAccountName": "other"}}}}),
        "DaemonSet" => {
            json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null},
            "template": {"spec": {"serviceAccountName": "other"}}}})
        }
        "Service" => json!({"spec": {"selector": {"k8s-app": "other"}, "ports": [
            {"name": port, "port": 1}]}}),
        "ConfigMap" => json!({"data": {"machine-config.json": "{}"}}),
        "ValidatingAdmissionPolicy" => {
            json!({"spec": {"matchConstraints": {"matchPolicy": "Exact"}}})
        }
        "ValidatingAdmissionPolicyBinding" => json!({"spec": {"validationActions": ["Warn"]}}),
        _ => return None,
    })
}

/// Every operand exists after the start, and comes back when it is deleted or edited.
async fn operands_are_created_and_repaired(cluster: &Cluster) {
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let operands = cluster.operands();
    assert!(!operands.is_empty());
    for manifest in &operands {
        cluster.wait_for_manifest(manifest).await;
    }
    for manifest in &operands {
        let name = ObjectName::of(manifest);
        // An admission policy keeps these from being deleted.
        if name.kind == "NetworkPolicy" {
            continue;
        }
        let before = cluster.api(&name).get(&name.name).await.unwrap();
        cluster.api(&name).delete(&name.name, &DeleteParams::default()).await.unwrap();
        let is_new = |found: &Value| found["metadata"]["uid"] != json!(before.uid());
        cluster.wait_for(&name, "it comes back", |it| is_new(it) && contains(it, manifest)).await;
    }
    for manifest in &operands {
        let name = ObjectName::of(manifest);
        let Some(patch) = edit(&name) else { continue };
        let patch = Patch::Merge(patch);
        let api = cluster.api(&name);
        let edited = api.patch(&name.name, &PatchParams::default(), &patch).await.unwrap();
        let version = edited.resource_version();
        let is_later = |found: &Value| found["metadata"]["resourceVersion"] != json!(version);
        let what = "the edit is reverted";
        cluster.wait_for(&name, what, |it| is_later(it) && contains(it, manifest)).await;
    }
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0], "the operator has all rights that it needs");
}

// covers: O03
#[tokio::test]
async fn operands_are_created_and_repaired_on_the_embedded_api_server() {
    let cluster = Cluster::embedded().await;
    cluster.create_kinds().await;
    operands_are_repaired_and_policies_enforced(&cluster).await;
}

#[tokio::test]
async fn operands_are_created_and_repaired_on_a_real_kube_apiserver() {
    let Some(cluster) = Cluster::real().await else { return };
    operands_are_repaired_and_policies_enforced(&cluster).await;
}

async fn operands_are_repaired_and_policies_enforced(cluster: &Cluster) {
    admission::store_invalid_config(cluster).await;
    operands_are_created_and_repaired(cluster).await;
    if cluster.has_network_policies() {
        admission::network_policies_are_protected(cluster).await;
    }
    admission::pools_and_configurations_are_checked(cluster).await;
    admission::machine_configs_are_checked(cluster).await;
    admission::machine_configs_of_the_reference_are_admitted(cluster).await;
}

/// The clock is paused: the operator is idle for an hour.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_differs() {
    let cluster = Cluster::embedded().await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    for manifest in cluster.operands() {
        cluster.wait_for_manifest(&manifest).await;
    }
    wait(&cluster.admin, "a status", |it| !condition(it, "Degraded").is_empty()).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    cluster.take_writes();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let mut writes = cluster.take_writes();
    writes.retain(|line| !line.contains("clusteroperators"));
    assert_eq!(writes, [""; 0]);

    // An edit costs one write.
    let deployments = Api::<Deployment>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    deployments.patch(CONTROLLER, &PatchParams::default(), &patch).await.unwrap();
    let is_one = |found: Option<&Deployment>| {
        let spec = found.and_then(|found| found.spec.as_ref());
        spec.is_some_and(|spec| spec.replicas == Some(1))
    };
    wait_for(&deployments, CONTROLLER, "the edit is reverted", is_one).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let mut writes = cluster.take_writes();
    writes.retain(|line| !line.contains("clusteroperators"));
    assert_eq!(writes.len(), 1, "{writes:?}");
    operator.stop().await;
}

/// Labels have no generation.
#[tokio::test]
async fn an_edited_label_of_a_workload_is_reverted() {
    let cluster = Cluster::embedded().await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let deployments = Api::<Deployment>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    wait_for(&deployments, CONTROLLER, "it is applied", |found| found.is_some()).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"k8s-app": "other"}}}));
    deployments.patch(CONTROLLER, &PatchParams::default(), &patch).await.unwrap();
    let is_reverted = |found: Option<&Deployment>| {
        found.is_some_and(|it| it.labels().get("k8s-app").is_some_and(|app| app == CONTROLLER))
    };
    wait_for(&deployments, CONTROLLER, "the label is reverted", is_reverted).await;
    operator.stop().await;
}

#[tokio::test]
async fn an_object_of_another_owner_is_left_and_reported_until_it_is_given_to_the_operator() {
    let cluster = Cluster::embedded().await;
    cluster.create_namespace().await;
    let deployments = Api::<Deployment>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    let labels = json!({"app": "other"});
    let foreign: Deployment = serde_json::from_value(json!({
        "metadata": {"name": CONTROLLER},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "other", "image": "other"}]}}},
    }))
    .unwrap();
    let before = deployments.create(&PostParams::default(), &foreign).await.unwrap();
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let found =
        wait(&cluster.admin, "Degraded", |it| condition(it, "Degraded").starts_with("True"));
    let text = condition(&found.await, "Degraded");
    let name = format!("Deployment {}/{CONTROLLER} belongs to another owner", label::NAMESPACE);
    assert!(text.contains("MachineConfigControllerFailed") && text.contains(&name), "{text}");
    let sets = Api::<DaemonSet>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    wait_for(&sets, SERVER, "the other processes are deployed", |it| it.is_some()).await;
    assert_eq!(deployments.get(CONTROLLER).await.unwrap(), before);
    let events = Api::<Event>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    let is_about = |it: &Event| it.reason.as_deref() == Some("ObjectOfAnotherOwner");
    let events = events.list(&ListParams::default()).await.unwrap();
    assert_eq!(events.iter().filter(|event| is_about(event)).count(), 1);

    deployments.delete(CONTROLLER, &DeleteParams::default()).await.unwrap();
    let is_ours = |found: Option<&Deployment>| {
        found.is_some_and(|it| it.labels().get(MANAGED_BY.0).is_some_and(|it| it == MANAGED_BY.1))
    };
    wait_for(&deployments, CONTROLLER, "the operator deploys the controller", is_ours).await;
    wait(&cluster.admin, "Degraded is over", |it| condition(it, "Degraded").starts_with("False"))
        .await;
    operator.stop().await;
}

/// Returns true if the first container has the image.
fn has_image(object: &Value, image: &str) -> bool {
    object["spec"]["template"]["spec"]["containers"][0]["image"] == image
}

/// Acts as the Deployment controller.
async fn roll_out(cluster: &Cluster, unavailable: i32) {
    let deployments = Api::<Deployment>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    let generation = deployments.get(CONTROLLER).await.unwrap().metadata.generation;
    let ready = 1 - unavailable;
    let patch = Patch::Merge(json!({"status": {"observedGeneration": generation, "replicas": 1,
        "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": unavailable}}));
    deployments.patch_status(CONTROLLER, &PatchParams::default(), &patch).await.unwrap();
}

/// A new image reaches the controller first, and the DaemonSets when its pods are ready.
async fn an_upgrade_starts_with_the_controller(cluster: &Cluster) {
    let name = |kind: &str, name: &str| ObjectName {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some(label::NAMESPACE.to_owned()),
        name: name.to_owned(),
    };
    let (controller, daemon) = (name("Deployment", CONTROLLER), name("DaemonSet", DAEMON));
    let server = name("DaemonSet", SERVER);
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    for name in [&controller, &daemon, &server] {
        cluster.wait_for(name, "the first version", |it| has_image(it, IMAGE)).await;
    }
    operator.stop().await;
    roll_out(cluster, 0).await;
    let new = "registry.test/mco:2";
    let operator = Operator::start(&cluster.own, &settings(new));
    cluster.wait_for(&controller, "the new version", |it| has_image(it, new)).await;
    roll_out(cluster, 1).await;
    // Two reconciles have ended when the account has come back for the third time.
    let accounts = Api::<ServiceAccount>::namespaced(cluster.admin.clone(), label::NAMESPACE);
    for _ in 0..3 {
        let before = accounts.get(SERVER).await.unwrap();
        accounts.delete(SERVER, &DeleteParams::default()).await.unwrap();
        let is_new = |it: Option<&ServiceAccount>| it.is_some_and(|it| it.uid() != before.uid());
        wait_for(&accounts, SERVER, "the account comes back", is_new).await;
    }
    for name in [&daemon, &server] {
        let found = cluster.api(name).get(&name.name).await.unwrap();
        assert!(has_image(&json!(found), IMAGE), "{name} waits for the controller");
    }
    roll_out(cluster, 0).await;
    for name in [&daemon, &server] {
        cluster.wait_for(name, "the new version", |it| has_image(it, new)).await;
    }
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

#[tokio::test]
async fn an_upgrade_starts_with_the_controller_on_the_embedded_api_server() {
    an_upgrade_starts_with_the_controller(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn an_upgrade_starts_with_the_controller_on_a_real_kube_apiserver() {
    let Some(cluster) = Cluster::real().await else { return };
    an_upgrade_starts_with_the_controller(&cluster).await;
}

/// Returns true if the ClusterOperator reports the version as reached.
fn is_at(operator: &ClusterOperator, version: &str) -> bool {
    let versions = operator.status.iter().flat_map(|status| &status.versions);
    versions.into_iter().any(|found| found.name == "operator" && found.version == version)
}

// covers: O33
#[tokio::test]
async fn a_version_is_reached_when_its_controller_runs() {
    let cluster = Cluster::embedded().await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let pools = Api::<MachineConfigPool>::all(cluster.admin.clone());
    established(&cluster.admin, "machineconfigpools.machineconfiguration.openshift.io").await;
    wait_for(&pools, "master", "it exists", |found| found.is_some()).await;
    let config = json!({"name": "rendered-master-1"});
    let patch = Patch::Merge(json!({"spec": {"configuration": config}}));
    pools.patch("master", &PatchParams::default(), &patch).await.unwrap();
    let updated =
        json!({"type": "Updated", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"observedGeneration": 9, "configuration": config, "conditions": [updated]});
    let patch = Patch::Merge(json!({"status": status}));
    pools.patch_status("master", &PatchParams::default(), &patch).await.unwrap();
    wait(&cluster.admin, "the first version", |it| is_at(it, "4.20.0")).await;
    operator.stop().await;

    let new = Config { release: "4.21.0".to_owned(), ..settings("registry.test/mco:2") };
    let operator = Operator::start(&cluster.own, &new);
    let expected =
        "True : Working towards 4.21.0: deployment machine-config-controller is not ready";
    let waits = |it: &ClusterOperator| condition(it, "Progressing").starts_with(expected);
    let found = wait(&cluster.admin, "the operator waits for the controller", waits).await;
    assert!(is_at(&found, "4.20.0"), "{:?}", found.status);
    roll_out(&cluster, 0).await;
    wait(&cluster.admin, "the next version", |it| is_at(it, "4.21.0")).await;
    operator.stop().await;
}

// covers: O15
#[tokio::test(start_paused = true)]
async fn a_controller_that_does_not_become_ready_degrades_the_operator() {
    let cluster = Cluster::embedded().await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    for manifest in cluster.operands() {
        cluster.wait_for_manifest(&manifest).await;
    }
    operator.stop().await;
    roll_out(&cluster, 0).await;
    let operator = Operator::start(&cluster.own, &settings("registry.test/mco:2"));
    tokio::time::sleep(Duration::from_mins(9)).await;
    wait(&cluster.admin, "a wait", |it| condition(it, "Degraded").starts_with("False")).await;
    let failed = |it: &_| condition(it, "Degraded").starts_with("True");
    let text = condition(&wait(&cluster.admin, "Degraded", failed).await, "Degraded");
    let expected = "deployment machine-config-controller is not ready. status: (replicas: 1, ";
    assert!(text.contains("MachineConfigControllerFailed") && text.contains(expected), "{text}");
    roll_out(&cluster, 0).await;
    wait(&cluster.admin, "Degraded is over", |it| condition(it, "Degraded").starts_with("False"))
        .await;
    operator.stop().await;
}

/// The order to take a cluster over reaches controller and daemons, and the build to adopt the
/// controller.
async fn a_takeover_reaches_the_operands(cluster: &Cluster) {
    let workload = |kind: &str, name: &str| ObjectName {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some(label::NAMESPACE.to_owned()),
        name: name.to_owned(),
    };
    let name = workload("Deployment", CONTROLLER);
    let daemons = workload("DaemonSet", "machine-config-daemon");
    let has = |object: &Value, flag: &str| {
        let args = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        args.is_some_and(|args| args.iter().any(|arg| arg == flag))
    };
    let flags = ["--take-over", "--adopt-build=v4.21.0-7ff"];
    let build = Build { version: "v4.21.0".to_owned(), hash: "7ff".to_owned() };
    let order = Order::TakeOver(AdoptedBuild::Given(build));
    let operator = Operator::start(&cluster.own, &Config { order, ..settings(IMAGE) });
    let is_ordered = |it: &Value| flags.iter().all(|flag| has(it, flag));
    cluster.wait_for(&name, "the flags of the takeover", is_ordered).await;
    let is_ordered = |it: &Value| has(it, flags[0]) && !has(it, flags[1]);
    cluster.wait_for(&daemons, "the flag of the takeover", is_ordered).await;
    operator.stop().await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let is_over = |it: &Value| flags.iter().all(|flag| !has(it, flag));
    cluster.wait_for(&name, "the end of the takeover", is_over).await;
    cluster.wait_for(&daemons, "the end of the takeover", is_over).await;
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

#[tokio::test]
async fn a_takeover_reaches_the_operands_on_the_embedded_api_server() {
    a_takeover_reaches_the_operands(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_takeover_reaches_the_operands_on_a_real_kube_apiserver() {
    let Some(cluster) = Cluster::real().await else { return };
    a_takeover_reaches_the_operands(&cluster).await;
}
