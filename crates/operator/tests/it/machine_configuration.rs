//! Tests of the MachineConfiguration, the log level and the platform, on both API servers.

mod platform;
mod stamp;
mod taken_over;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use mco_api::{MachineConfiguration, label, machine_configuration::disruption::ClusterPolicies};
use mco_cluster::client;
use mco_core::plan::default_policies;
use mco_operator::manifests::ObjectName;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    operands::cluster::{Cluster, IMAGE, settings},
    support::{self, Operator, condition, config, wait, wait_for},
};

/// Makes every function a test on each of the two API servers.
macro_rules! on_both {
    ($($claim:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim(&crate::operands::cluster::Cluster::embedded().await).await;
            })+
        }
        mod real {
            $(#[tokio::test]
            async fn $claim() {
                let Some(cluster) = crate::operands::cluster::Cluster::real().await else { return };
                super::$claim(&cluster).await;
            })+
        }
    };
}
pub(crate) use on_both;

on_both! {
    the_object_is_created_and_its_policies_are_published,
    mistakes_and_failed_boot_images_degrade_the_operator,
    the_log_level_reaches_all_processes,
    the_schema_refuses_invalid_settings,
}

/// Waits until the policies of the current generation are published, and returns the object.
pub(crate) async fn published(
    client: &Client,
    what: &str,
    holds: impl Fn(&MachineConfiguration) -> bool,
) -> MachineConfiguration {
    wait(client, "the kinds are served", |_| true).await;
    let api = Api::<MachineConfiguration>::all(client.clone());
    let is_current = |found: Option<&MachineConfiguration>| {
        found.is_some_and(|it| {
            let observed = it.status.as_ref().map(|status| status.observed_generation);
            observed == it.metadata.generation && holds(it)
        })
    };
    wait_for(&api, label::CLUSTER, what, is_current).await.unwrap()
}

/// Changes the spec of the MachineConfiguration.
pub(crate) async fn edit(client: &Client, spec: Value) -> MachineConfiguration {
    let api = Api::<MachineConfiguration>::all(client.clone());
    let patch = Patch::Merge(json!({"spec": spec}));
    api.patch(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap()
}

fn policies(found: &MachineConfiguration) -> ClusterPolicies {
    let status = found.status.clone().unwrap_or_default().node_disruption_policy_status;
    status.and_then(|status| status.cluster_policies).unwrap_or_default()
}

// covers: O37, O38
async fn the_object_is_created_and_its_policies_are_published(cluster: &Cluster) {
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    let first = published(&cluster.admin, "it is created", |_| true).await;
    assert_eq!(first.spec.management_state, "Managed");
    let managers: Vec<_> =
        first.managed_fields().iter().filter_map(|it| it.manager.as_deref()).collect();
    assert!(managers.contains(&"machine-config-operator"), "{managers:?}");
    assert_eq!(policies(&first), default_policies());
    assert_eq!(first.status.as_ref().unwrap().managed_boot_images_status, None);
    assert_eq!(first.status.as_ref().unwrap().boot_image_skew_enforcement_status, None);

    let file = |path: &str| json!({"path": path, "actions": [{"type": "None"}]});
    let own = [file("/etc/new"), file("/etc/containers/policy.json")];
    edit(&cluster.admin, json!({"nodeDisruptionPolicy": {"files": own}})).await;
    let found = published(&cluster.admin, "an edit is published", |it| {
        policies(it).files.last().is_some_and(|file| file.path == "/etc/new")
    });
    let merged = policies(&found.await);
    assert_eq!(merged.files.len(), default_policies().files.len() + 1);
    assert_eq!(json!(merged.files[2]), file("/etc/containers/policy.json"));

    let api = Api::<MachineConfiguration>::all(cluster.admin.clone());
    api.delete(label::CLUSTER, &DeleteParams::default()).await.unwrap();
    let is_new = |it: &MachineConfiguration| it.uid() != first.uid();
    let again = published(&cluster.admin, "it comes back", is_new).await;
    assert_eq!(policies(&again), default_policies());
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0], "the operator has all rights that it needs");
}

// covers: O43
async fn mistakes_and_failed_boot_images_degrade_the_operator(cluster: &Cluster) {
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    published(&cluster.admin, "it is created", |_| true).await;
    let file = |path: &str| json!({"path": path, "actions": [{"type": "None"}]});
    let own = [file("etc/relative"), file("/etc/valid")];
    edit(&cluster.admin, json!({"nodeDisruptionPolicy": {"files": own}})).await;
    let is_degraded = |it: &_| condition(it, "Degraded").starts_with("True");
    let found = wait(&cluster.admin, "a mistake degrades", is_degraded).await;
    let text = condition(&found, "Degraded");
    assert!(text.contains("MachineConfigurationFailed"), "{text}");
    assert!(text.contains("spec.nodeDisruptionPolicy of MachineConfiguration cluster"), "{text}");
    assert!(text.contains("files[0] (path \"etc/relative\"): the path is not absolute"), "{text}");
    // The valid entry has an effect.
    let found = published(&cluster.admin, "the status is current", |_| true).await;
    let last = policies(&found).files.last().cloned().unwrap();
    assert_eq!(json!(last), file("/etc/valid"));
    edit(&cluster.admin, json!({"nodeDisruptionPolicy": null})).await;
    let is_over = |it: &_| condition(it, "Degraded").starts_with("False");
    wait(&cluster.admin, "Degraded is over", is_over).await;

    let failed: Condition = serde_json::from_value(json!({
        "type": "BootImageUpdateDegraded", "status": "True", "reason": "Failed",
        "message": "1 MachineSet failed", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    let api = Api::<MachineConfiguration>::all(cluster.admin.clone());
    let patch = Patch::Merge(json!({"status": {"conditions": [failed]}}));
    api.patch_status(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    let found = wait(&cluster.admin, "failed boot images degrade", is_degraded).await;
    let text = condition(&found, "Degraded");
    assert!(text.contains("MachineConfigurationFailed"), "{text}");
    assert!(text.ends_with("bootimage update failed: 1 MachineSet failed"), "{text}");
    // The other stages run all the same.
    let pools = Api::<mco_api::MachineConfigPool>::all(cluster.admin.clone());
    pools.delete("worker", &DeleteParams::default()).await.unwrap();
    wait_for(&pools, "worker", "the pool comes back", |it| it.is_some()).await;
    operator.stop().await;
}

fn verbosity(object: &Value) -> Vec<&str> {
    let args = object.pointer("/spec/template/spec/containers/0/args");
    let args = args.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    args.filter(|arg| arg.starts_with("--v")).collect()
}

// covers: O41
async fn the_log_level_reaches_all_processes(cluster: &Cluster) {
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let name = |kind: &str, name: &str| ObjectName {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some(label::NAMESPACE.to_owned()),
        name: name.to_owned(),
    };
    let all = [
        name("Deployment", "machine-config-controller"),
        name("DaemonSet", "machine-config-daemon"),
        name("DaemonSet", "machine-config-server"),
    ];
    for (level, expected) in [("Normal", "--v=2"), ("Debug", "--v=4"), ("TraceAll", "--v=8")] {
        published(&cluster.admin, "it is created", |_| true).await;
        edit(&cluster.admin, json!({"operatorLogLevel": level})).await;
        for name in &all {
            let what = format!("level {level}");
            cluster.wait_for(name, &what, |found| verbosity(found) == [expected]).await;
        }
    }
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

/// Returns a client before whose first write of the status another user changes the object.
fn interfere(upstream: &Client, writes: &Arc<AtomicUsize>) -> Client {
    let (upstream, writes) = (upstream.clone(), writes.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (upstream, writes) = (upstream.clone(), writes.clone());
        async move {
            let status = "/machineconfigurations/cluster/status";
            let is_status = request.uri().path().ends_with(status);
            if request.method() == Method::PATCH && is_status {
                let count = writes.fetch_add(1, Ordering::Relaxed);
                let api = Api::<MachineConfiguration>::all(upstream.clone());
                let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
                if count == 0 {
                    api.patch(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap();
                }
            }
            client::service(upstream).oneshot(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_status_that_conflicts_is_written_again() {
    let admin = support::cluster().await;
    let writes = Arc::new(AtomicUsize::new(0));
    let operator = Operator::start(&interfere(&admin, &writes), &config("v1", "4.20.0"));
    let found = published(&admin, "it is published", |_| true).await;
    assert_eq!(found.annotations().get("a").map(String::as_str), Some("b"));
    assert_eq!(policies(&found), default_policies());
    wait(&admin, "a status", |it| condition(it, "Degraded").starts_with("False")).await;
    operator.stop().await;
    assert_eq!(writes.load(Ordering::Relaxed), 2);
}

/// Returns a spec with one file policy of these actions.
fn actions(actions: &Value) -> Value {
    json!({"nodeDisruptionPolicy": {"files": [{"path": "/etc/a", "actions": actions}]}})
}

fn unit(name: &str) -> Value {
    json!({"nodeDisruptionPolicy": {"units": [{"name": name, "actions": [{"type": "None"}]}]}})
}

fn manager(resource: &str, selection: &Value) -> Value {
    let manager = json!({"resource": resource, "apiGroup": "machine.openshift.io",
        "selection": selection});
    json!({"managedBootImages": {"machineManagers": [manager]}})
}

/// Settings that the schema refuses, each with a part of the field's path.
fn invalid_settings() -> Vec<(Value, &'static str)> {
    let files = |count: usize| -> Vec<Value> {
        let file = |index| json!({"path": format!("/etc/{index}"), "actions": []});
        (0..count).map(file).collect()
    };
    let drains = vec![json!({"type": "Drain"}); 11];
    let manual = |manual: &Value| json!({"bootImageSkewEnforcement": manual});
    vec![
        // C20
        (actions(&json!([{"type": "Reboot"}, {"type": "Drain"}])), "actions"),
        (actions(&json!([{"type": "None"}, {"type": "Drain"}])), "actions"),
        (actions(&json!([{"type": "Special"}])), "actions[0].type"),
        (actions(&json!([{"type": "Reload"}])), "actions[0]"),
        (
            actions(&json!([{"type": "Drain", "restart": {"serviceName": "a.service"}}])),
            "actions[0]",
        ),
        // C21
        (unit("x@y.service"), "units[0].name"),
        (unit("x"), "units[0].name"),
        // C22
        (json!({"nodeDisruptionPolicy": {"files": files(51)}}), "files"),
        (actions(&json!(drains)), "actions"),
        // C23
        (
            manager(
                "controlplanemachinesets",
                &json!({"mode": "Partial", "partial":
                {"machineResourceSelector": {}}}),
            ),
            "machineManagers[0]",
        ),
        (manager("machinesets", &json!({"mode": "Partial"})), "selection"),
        // C24
        (manual(&json!({"mode": "Manual"})), "bootImageSkewEnforcement"),
        (
            manual(
                &json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": "4.x.y"}}),
            ),
            "ocpVersion",
        ),
        // C25
        (json!({"irreconcilableValidationOverrides": {}}), "irreconcilableValidationOverrides"),
        (
            json!({"irreconcilableValidationOverrides": {"storage": ["Luks"]}}),
            "irreconcilableValidationOverrides.storage[0]",
        ),
    ]
}

// covers: C20, C21, C22, C23, C24, C25, C26
async fn the_schema_refuses_invalid_settings(cluster: &Cluster) {
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    let first = published(&cluster.admin, "it is created", |_| true).await;
    let levels = json!([first.spec.log_level, first.spec.operator_log_level]);
    assert_eq!(levels, json!(["Normal", "Normal"]));
    let api = Api::<MachineConfiguration>::all(cluster.admin.clone());
    let params = PatchParams::default();
    for (spec, field) in invalid_settings() {
        let patch = Patch::Merge(json!({"spec": spec}));
        match api.patch(label::CLUSTER, &params, &patch).await {
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 422, "{spec}: {status:?}");
                assert!(status.message.contains(field), "{spec}: {}", status.message);
            }
            other => panic!("{spec}: {other:?}"),
        }
    }
    let reload = json!([{"type": "Reload", "reload": {"serviceName": "a.service"}}]);
    edit(&cluster.admin, actions(&reload)).await;
    edit(&cluster.admin, unit("x.service")).await;
    edit(&cluster.admin, json!({"irreconcilableValidationOverrides": {"storage": ["Raid"]}})).await;
    operator.stop().await;
}
