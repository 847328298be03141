//! Tests of the admission policies, on both API servers.

use std::{path::Path, time::Duration};

use kube::{
    Api, Resource as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool, MachineConfiguration, label};
use mco_operator::manifests::ObjectName;
use mco_testkit::oracle::{self, RecordedCase};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::support::TIMEOUT;

/// Time between two requests of a wait. Requests without a pause would keep the operator, which runs in
/// the same thread, and the API server from their work.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the API server denies a request. A new policy takes effect some time after it is stored.
pub(crate) async fn denied<T: std::fmt::Debug>(
    what: &str,
    call: impl AsyncFn() -> kube::Result<T>,
) -> String {
    let mut last = String::new();
    let waiting = async {
        loop {
            match call().await {
                Err(kube::Error::Api(status))
                    if status.message.contains("ValidatingAdmissionPolicy") =>
                {
                    return status.message.clone();
                }
                answer @ (Err(kube::Error::Api(_)) | Ok(_)) => last = format!("{answer:?}"),
                Err(error) => panic!("{what}: {error}"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    let reached = tokio::time::timeout(TIMEOUT, waiting).await;
    reached.unwrap_or_else(|_| panic!("{what} is not denied; the last answer was {last}"))
}

// covers: O20, C30
pub(super) async fn network_policies_are_protected(cluster: &Cluster) {
    let name = ObjectName {
        api_version: "networking.k8s.io/v1".to_owned(),
        kind: "NetworkPolicy".to_owned(),
        namespace: Some(label::NAMESPACE.to_owned()),
        name: "default-deny".to_owned(),
    };
    let policies = cluster.api(&name);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let text = denied("a deletion", async || policies.delete("default-deny", &dry).await).await;
    assert!(text.contains("MCO-managed NetworkPolicy"), "{text}");
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"ingress": [{}]}}));
    let edit = async || policies.patch("default-deny", &params, &patch).await;
    let text = denied("an edit", edit).await;
    assert!(text.contains("MCO-managed NetworkPolicy"), "{text}");
    // A policy of an administrator is not protected.
    let other = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "other"}, "spec": {"podSelector": {}}});
    let other = serde_json::from_value(other).unwrap();
    policies.create(&PostParams::default(), &other).await.unwrap();
    policies.delete("other", &DeleteParams::default()).await.unwrap();
}

fn pool(name: &str, selector: &Value) -> MachineConfigPool {
    let pool = json!({"metadata": {"name": name}, "spec": {"machineConfigSelector": selector}});
    serde_json::from_value(pool).unwrap()
}

fn labels(role: &str) -> Value {
    json!({"matchLabels": {label::ROLE: role}})
}

fn expression(operator: &str, roles: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": label::ROLE, "operator": operator, "values": roles}]})
}

// covers: O21, C27, C28
pub(super) async fn pools_and_configurations_are_checked(cluster: &Cluster) {
    let pools = Api::<MachineConfigPool>::all(cluster.admin.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let bad = [
        ("infra", labels("infra")),
        ("infra", labels("master")),
        ("infra", expression("In", &["infra", "master"])),
        ("infra", expression("NotIn", &["master"])),
        ("infra", json!({})),
        ("arbiter", labels("worker")),
    ];
    for (name, selector) in &bad {
        let object = pool(name, selector);
        let text = denied("a pool", async || pools.create(&dry, &object).await).await;
        assert!(text.contains("must inherit from the"), "{selector}: {text}");
    }
    let good = [
        ("infra", labels("worker")),
        ("infra", expression("In", &["worker", "infra"])),
        ("arbiter", labels("arbiter")),
    ];
    for (name, selector) in &good {
        pools
            .create(&dry, &pool(name, selector))
            .await
            .unwrap_or_else(|it| panic!("{selector}: {it}"));
    }
    // Another member of a pool may change, whatever its selector is.
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let paused = Patch::Merge(json!({"spec": {"paused": true}}));
    pools.patch("worker", &params, &paused).await.unwrap();
    // Nothing is checked while the OSImageStream does not exist.
    let stream = Patch::Merge(json!({"spec": {"osImageStream": {"name": "rhel-9"}}}));
    pools.patch("worker", &params, &stream).await.unwrap();

    let configurations = Api::<MachineConfiguration>::all(cluster.admin.clone());
    let configuration = |name: &str| -> MachineConfiguration {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {}})).unwrap()
    };
    let other = configuration("other");
    let text = denied("a name", async || configurations.create(&dry, &other).await).await;
    assert!(text.contains("must be named cluster"), "{text}");
    let edited = Patch::Merge(json!({"spec": {"operatorLogLevel": "Debug"}}));
    configurations.patch(label::CLUSTER, &params, &edited).await.unwrap();
}

/// Returns a MachineConfig with the members that a user gives, and no others.
fn machine_config(name: &str, spec: &Value) -> DynamicObject {
    let metadata = json!({"name": name, "labels": {label::ROLE: "worker"}});
    let (api_version, kind) = (MachineConfig::api_version(&()), MachineConfig::kind(&()));
    let object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn machine_configs(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(cluster.admin.clone(), &ApiResource::erase::<MachineConfig>(&()))
}

/// Returns the spec of a MachineConfig with members of an Ignition config.
fn ignition(version: &str, more: &Value) -> Value {
    let mut config = json!({"ignition": {"version": version}});
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"config": config})
}

fn files(files: &[Value]) -> Value {
    ignition("3.2.0", &json!({"storage": {"files": files}}))
}

fn file(path: &str) -> Value {
    json!({"path": path, "mode": 420})
}

/// MachineConfigs that no pool could be rendered with, and the part of the answer that names the fault.
fn refused() -> Vec<(Value, &'static str)> {
    let unit = |name: &str| json!({"systemd": {"units": [{"name": name, "enabled": true}]}});
    let with = |mut spec: Value, member: &str, value: Value| {
        spec[member] = value;
        spec
    };
    vec![
        (json!({"kernelType": "fast"}), "spec.kernelType=fast is invalid"),
        (
            with(ignition("3.2.0", &json!({})), "extensions", json!(["usbguard", "usb"])),
            "invalid extensions found in spec.extensions: usb;",
        ),
        (json!({"config": {}}), "spec.config.ignition.version is missing"),
        (json!({"config": {"ignition": {}}}), "spec.config.ignition.version is missing"),
        (ignition("3.6.0", &json!({})), "spec.config.ignition.version 3.6.0 is not supported"),
        (ignition("2.3.0", &json!({})), "version 2.3.0 is not supported"),
        (ignition("4.0.0", &json!({})), "version 4.0.0 is not supported"),
        (ignition("3", &json!({})), "version 3 is not supported"),
        (files(&[file("/etc/a"), file("etc/b")]), "path etc/b must be absolute"),
        (files(&[file("/etc/../b")]), "path /etc/../b must be absolute"),
        (files(&[file("/etc/..")]), "path /etc/.. must be absolute"),
        (files(&[file("/etc//b")]), "path /etc//b must be absolute"),
        (files(&[file("/etc/b/")]), "path /etc/b/ must be absolute"),
        (
            files(&[json!({"path": "/etc/a", "mode": 644})]),
            "invalid mode 644 of /etc/a, cannot exceed 511, which is 0777",
        ),
        (files(&[file("/etc/a"), file("/etc/b"), file("/etc/a")]), "path /etc/a is there twice"),
        (ignition("3.1.0", &unit("a.conf")), "name a.conf must end with the suffix of a unit"),
    ]
}

/// MachineConfigs that are admitted, though some of them look odd.
fn accepted() -> Vec<Value> {
    let many: Vec<Value> = (0..2000).map(|index| file(&format!("/etc/{index}"))).collect();
    let unit = json!({"systemd": {"units": [{"name": "a@b.service"}, {"name": "c.timer"}]}});
    vec![
        json!({}),
        json!({"kernelType": "", "extensions": ["anything"], "kernelArguments": ["nosmt"]}),
        json!({"kernelType": "64k-pages"}),
        ignition(
            "2.2.0",
            &json!({"storage": {"files": [
            {"filesystem": "root", "path": "/etc/a/../b", "mode": 420}]}}),
        ),
        ignition("3.0.0", &json!({})),
        ignition("3.5.0", &unit),
        ignition("03.2.0", &json!({"storage": null, "systemd": null})),
        // Ignition ignores the case of names.
        json!({"config": {"Ignition": {"Version": "3.2.0"}}}),
        json!({"config": {"ignition": {"VERSION": "3.2.0"}, "Storage": {"FILES": []}}}),
        files(&[file("/etc/..a/...b/.c"), file("/"), json!({"path": "/etc/null", "mode": null})]),
        files(&[json!({"path": "/etc/without-mode"})]),
        files(&many),
    ]
}

/// Stores an invalid MachineConfig, before the policy exists.
pub(super) async fn store_invalid_config(cluster: &Cluster) {
    let configs = machine_configs(cluster);
    let object = machine_config("50-old", &files(&[file("relative")]));
    let stored = async {
        // The kind may not be served yet.
        while configs.create(&PostParams::default(), &object).await.is_err() {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(TIMEOUT, stored).await.expect("the config is stored");
}

// covers: O21
pub(super) async fn machine_configs_are_checked(cluster: &Cluster) {
    let configs = machine_configs(cluster);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for (spec, expected) in refused() {
        let object = machine_config("50-test", &spec);
        let text = denied(expected, async || configs.create(&dry, &object).await).await;
        assert!(text.contains(expected), "{spec}: {text}");
    }
    for spec in accepted() {
        let created = configs.create(&dry, &machine_config("50-test", &spec)).await;
        assert!(created.is_ok(), "{spec}: {created:?}");
    }
    // Of a config that was stored before the policy, labels can still be changed, but nothing worse.
    let params = PatchParams::default();
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    configs.patch("50-old", &params, &label).await.unwrap();
    let worse = Patch::Merge(json!({"spec": {"kernelType": "realtime"}}));
    let edit = async || configs.patch("50-old", &params, &worse).await;
    let text = denied("an edit of the spec", edit).await;
    assert!(text.contains("path relative must be absolute"), "{text}");
    let repaired = Patch::Merge(json!({"spec": files(&[file("/etc/absolute")])}));
    configs.patch("50-old", &params, &repaired).await.unwrap();
}

/// Folder with more recordings, if it exists.
const BESIDE: &str = "../../../shared/oracle";

/// No MachineConfig that the reference accepts is refused.
pub(super) async fn machine_configs_of_the_reference_are_admitted(cluster: &Cluster) {
    let configs = Api::<MachineConfig>::all(cluster.admin.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut count = 0;
    let mut admit = async |id: &str, mut object: Value| {
        object["metadata"] = json!({"name": "50-recorded"});
        // Not every recorded config has the types that the schema requires.
        let Ok(object) = serde_json::from_value::<MachineConfig>(object) else { return };
        if let Err(kube::Error::Api(status)) = configs.create(&dry, &object).await {
            assert!(!status.message.contains("machine-config-validation"), "{id}: {status:?}");
        }
        count += 1;
    };
    let folders = [oracle::corpus(), Path::new(env!("CARGO_MANIFEST_DIR")).join(BESIDE)];
    let cases = |suite: &str| -> Vec<RecordedCase> {
        folders.iter().flat_map(|folder| oracle::cases(folder, suite).unwrap()).collect()
    };
    for case in cases("parse") {
        let input: Value = serde_json::from_str(&case.input).unwrap();
        let raw = input["raw"].as_str().and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        let is_accepted = case.expect["valid"] == true;
        if let Some(config) = raw.filter(|_| is_accepted) {
            admit(&case.id, json!({"spec": {"config": config}})).await;
        }
    }
    for case in cases("render") {
        if case.expect.get("error").is_some() {
            continue;
        }
        let input: Value = serde_json::from_str(&case.input).unwrap();
        for config in input["configs"].as_array().into_iter().flatten() {
            admit(&case.id, config.clone()).await;
        }
    }
    assert!(count > 50, "{count}");
}
