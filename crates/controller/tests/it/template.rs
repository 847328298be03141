//! Tests of the template controller: base configs, conditions of the ControllerConfig, SSH keys.

use futures::{FutureExt as _, future::LocalBoxFuture};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, annotation, label};
use mco_testkit::objects;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, VERSION},
    server::{Server, on_both},
};

on_both! {
    base_configs_are_created_and_complete_the_controller_config,
    edited_and_deleted_base_configs_are_restored_at_once,
    base_configs_of_another_operator_are_kept,
    an_upgrade_changes_no_base_config,
    the_profile_full_makes_nodes_and_returning_removes_it,
    a_wrong_pull_secret_fails_and_a_changed_one_is_generated,
    old_images_are_cleared,
    ssh_keys_become_configs_and_those_of_others_stay,
}

const CLUSTER: &str = label::CONTROLLER_CONFIG;

/// Returns a condition of the ControllerConfig as text.
fn condition(config: &ControllerConfig, kind: &str) -> String {
    let conditions = config.status.iter().flat_map(|status| &status.conditions);
    let kind = format!("TemplateController{kind}");
    let mut found = conditions.filter(|condition| condition.kind == kind);
    found.next().map_or_else(String::new, |c| format!("{} {}: {}", c.status, c.reason, c.message))
}

/// Waits until `holds` is true for the ControllerConfig.
fn reached<'f>(
    fleet: &'f Fleet,
    what: &'f str,
    holds: impl Fn(&ControllerConfig) -> bool + 'f,
) -> LocalBoxFuture<'f, ControllerConfig> {
    fleet.wait(CLUSTER, what, holds).boxed_local()
}

async fn completed(fleet: &Fleet, what: &str) -> ControllerConfig {
    reached(fleet, what, |config| {
        let status = config.status.clone().unwrap_or_default();
        Some(status.observed_generation) == config.metadata.generation
            && condition(config, "Completed").starts_with("True ")
    })
    .await
}

async fn profile(fleet: &Fleet, profile: &str) {
    let annotations = json!({annotation::PROFILE.name(): profile});
    fleet
        .patch::<ControllerConfig>(CLUSTER, json!({"metadata": {"annotations": annotations}}))
        .await;
}

/// Returns a file of a MachineConfig; empty if it has none at that path.
fn file(config: &MachineConfig, path: &str) -> String {
    let contents = mco_core::generated::file_of(config, path).unwrap_or_default();
    String::from_utf8(contents).unwrap()
}

// covers: TPL-1, TPL-8, TPL-9, TPL-11
async fn base_configs_are_created_and_complete_the_controller_config(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    let master = fleet.wait::<MachineConfig>("00-master", "is created", |_| true).await;
    let cluster = completed(&fleet, "is complete").await;
    assert_eq!(json!(master.spec.config), json!({"ignition": {"version": "3.5.0"}}));
    assert_eq!(master.labels().get(label::ROLE).map(String::as_str), Some("master"));
    assert_eq!(master.owner_references()[0].uid, cluster.uid().unwrap());
    let text = condition(&cluster, "Completed");
    let generation = cluster.metadata.generation.unwrap();
    let expected = format!(
        "sync completed towards ({generation}) generation using controller version {VERSION}"
    );
    assert!(text.contains(&expected), "{text}");
    assert!(condition(&cluster, "Running").starts_with("False "));
    assert!(condition(&cluster, "Failing").starts_with("False "));
    let arguments = json!({"spec": {"clusterDNSIP": "172.30.0.10"}});
    fleet.patch::<ControllerConfig>(CLUSTER, arguments).await;
    reached(&fleet, "the new generation is complete", |config| {
        condition(config, "Completed").contains(&format!("({}) generation", generation + 1))
    })
    .await;
    fleet.stop().await;
}

// covers: TPL-10
async fn edited_and_deleted_base_configs_are_restored_at_once(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    let made = fleet.wait::<MachineConfig>("00-master", "is created", |_| true).await;
    let unit = json!({"name": "a.service", "enabled": true, "contents": "[Service]"});
    let edit = json!({
        "metadata": {"labels": {"team": "infra"}},
        "spec": {
            "config": {"systemd": {"units": [unit]}},
            "kernelArguments": ["debug"],
            "extensions": ["usbguard"],
        },
    });
    fleet.patch::<MachineConfig>("00-master", edit).await;
    let is_restored = |found: &MachineConfig| json!(found.spec) == json!(made.spec);
    let restored = fleet.wait::<MachineConfig>("00-master", "is restored", is_restored).await;
    assert_eq!(restored.labels().get("team").map(String::as_str), Some("infra"));
    let configs = fleet.all::<MachineConfig>();
    configs.delete("00-master", &DeleteParams::default()).await.unwrap();
    let uid = restored.uid();
    let is_new = |found: &MachineConfig| found.uid() != uid;
    fleet.wait::<MachineConfig>("00-master", "is created again", is_new).await;
    fleet.stop().await;
}

async fn base_configs_of_another_operator_are_kept(server: Server) {
    let client = server.client().await;
    let mut foreign = objects::config("00-master", "master", "/etc/theirs", "hello");
    let by = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    foreign.metadata.annotations = Some([(by.to_owned(), "their hash".to_owned())].into());
    let configs = Api::<MachineConfig>::all(client.clone());
    foreign.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
            "name": CLUSTER, "uid": "u-1", "controller": true,
        }))
        .unwrap(),
    ]);
    let before = configs.create(&PostParams::default(), &foreign).await.unwrap();
    let fleet = Fleet::on(server, 0).await;
    fleet.create(&objects::pool("master")).await;
    // The config of another build of another operator is rendered as it is.
    let pool = fleet
        .wait::<MachineConfigPool>("master", "has a config", |pool| {
            !pool.spec.configuration.rendered.name.is_empty()
        })
        .await;
    let sources = &pool.spec.configuration.source;
    assert_eq!(sources.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["00-master"]);
    let cluster = completed(&fleet, "is complete").await;
    let text = condition(&cluster, "Completed");
    assert!(text.starts_with("True BaseConfigsKept: "), "{text}");
    let expected = "kept base configs that another operator made: 00-master, 00-worker";
    assert!(text.ends_with(expected), "{text}");
    let after = configs.get("00-master").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version(), "nothing was written");

    // The administrator hands it over.
    let mark = json!({"metadata": {"annotations": {annotation::BASE_CONFIG.name(): "generated"}}});
    fleet.patch::<MachineConfig>("00-master", mark).await;
    fleet
        .wait::<MachineConfig>("00-master", "is generated", |config| {
            file(config, "/etc/theirs").is_empty()
        })
        .await;
    fleet.stop().await;
}

async fn an_upgrade_changes_no_base_config(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    let before = fleet.wait::<MachineConfig>("00-master", "is created", |_| true).await;
    let rendered = fleet.rendered().await;
    fleet.pause().await;
    fleet.config.build.version = "v2".to_owned();
    fleet.config.build.hash = "hash of v2".to_owned();
    fleet.resume();
    let version = json!({annotation::GENERATED_BY_VERSION.name(): "v2"});
    fleet.patch::<ControllerConfig>(CLUSTER, json!({"metadata": {"annotations": version}})).await;
    let by = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    let after = fleet
        .wait::<MachineConfig>("00-master", "names the new build", |config| {
            config.annotations().get(by).is_some_and(|it| it == "hash of v2")
        })
        .await;
    assert_eq!(json!(after.spec), json!(before.spec));
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!(fleet.rendered().await, rendered);
    fleet.stop().await;
}

// covers: TPL-7, TPL-12
async fn the_profile_full_makes_nodes_and_returning_removes_it(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    profile(&fleet, "full").await;
    let kubelet = "/etc/kubernetes/kubelet.conf";
    let made = fleet.wait::<MachineConfig>("01-worker-kubelet", "is created", |_| true).await;
    assert!(file(&made, kubelet).contains("tlsMinVersion: VersionTLS12\n"));
    fleet.wait::<MachineConfig>("01-worker-container-runtime", "is created", |_| true).await;
    // The settings of the API server are followed.
    let settings = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "APIServer",
        "metadata": {"name": "cluster"}, "spec": {"tlsSecurityProfile": {"type": "Modern"}},
    });
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "cluster-settings"}, "data": {"all": settings.to_string()},
    }))
    .unwrap();
    let maps = Api::<ConfigMap>::namespaced(fleet.client.clone(), label::NAMESPACE);
    maps.create(&PostParams::default(), &map).await.unwrap();
    fleet
        .wait::<MachineConfig>("01-worker-kubelet", "has the new TLS version", |config| {
            file(config, kubelet).contains("tlsMinVersion: VersionTLS13\n")
        })
        .await;
    profile(&fleet, "wrong").await;
    let failing =
        reached(&fleet, "is failing", |config| condition(config, "Failing").starts_with("True "))
            .await;
    let text = condition(&failing, "Failing");
    assert!(text.contains("failed to syncing towards (1) generation"), "{text}");
    assert!(text.contains("unknown profile \"wrong\""), "{text}");
    assert!(condition(&failing, "Completed").starts_with("False "));
    profile(&fleet, "adopt").await;
    completed(&fleet, "is complete again").await;
    let configs = fleet.all::<MachineConfig>();
    assert!(configs.get_opt("01-worker-kubelet").await.unwrap().is_none());
    assert!(configs.get_opt("01-master-container-runtime").await.unwrap().is_none());
    let master = configs.get("00-master").await.unwrap();
    assert_eq!(json!(master.spec.config), json!({"ignition": {"version": "3.5.0"}}));
    fleet.stop().await;
}

fn secret(kind: &str, text: &str) -> Secret {
    Secret {
        metadata: serde_json::from_value(json!({"name": "pull-secret"})).unwrap(),
        type_: Some(kind.to_owned()),
        data: Some([(".dockerconfigjson".to_owned(), ByteString(text.into()))].into()),
        ..Secret::default()
    }
}

// covers: TPL-6, TPL-12
async fn a_wrong_pull_secret_fails_and_a_changed_one_is_generated(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    let secrets = Api::<Secret>::namespaced(fleet.client.clone(), label::NAMESPACE);
    let first = "{ \"auths\": {} }";
    secrets.create(&PostParams::default(), &secret("Opaque", first)).await.unwrap();
    profile(&fleet, "full").await;
    let reference = json!({"name": "pull-secret", "namespace": label::NAMESPACE});
    fleet.patch::<ControllerConfig>(CLUSTER, json!({"spec": {"pullSecret": reference}})).await;
    let expected = "expected secret type kubernetes.io/dockerconfigjson found Opaque";
    reached(&fleet, "refuses the type", |config| condition(config, "Failing").ends_with(expected))
        .await;
    // The type of a Secret cannot be changed.
    secrets.delete("pull-secret", &DeleteParams::default()).await.unwrap();
    let kind = "kubernetes.io/dockerconfigjson";
    secrets.create(&PostParams::default(), &secret(kind, first)).await.unwrap();
    let has = async |text: &str| {
        let what = format!("has the pull secret {text}");
        fleet
            .wait::<MachineConfig>("00-master", &what, |config| {
                file(config, "/var/lib/kubelet/config.json").trim_end() == text
            })
            .await;
    };
    has(r#"{"auths":{}}"#).await;
    let second = r#"{"auths":{"a.test":{"auth":"YTpi"}}}"#;
    let data = json!({"data": {".dockerconfigjson": ByteString(second.into())}});
    let patch = kube::api::Patch::Merge(data);
    secrets.patch("pull-secret", &kube::api::PatchParams::default(), &patch).await.unwrap();
    has(second).await;
    completed(&fleet, "is complete").await;
    fleet.stop().await;
}

// covers: TPL-13
async fn old_images_are_cleared(server: Server) {
    let client = server.client().await;
    let by = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    for (name, generated) in [("99-old", true), ("99-mine", false)] {
        let mut config = objects::config(name, "other", "/etc/a", "hello");
        "quay.test/os@sha256:1".clone_into(&mut config.spec.os_image_url);
        if generated {
            config.metadata.annotations = Some([(by.to_owned(), "old".to_owned())].into());
        }
        let configs = Api::<MachineConfig>::all(client.clone());
        configs.create(&PostParams::default(), &config).await.unwrap();
    }
    let fleet = Fleet::on(server, 0).await;
    fleet
        .wait::<MachineConfig>("99-old", "has no image", |config| {
            config.spec.os_image_url.is_empty() && !file(config, "/etc/a").is_empty()
        })
        .await;
    let mine = fleet.all::<MachineConfig>().get("99-mine").await.unwrap();
    assert_eq!(mine.spec.os_image_url, "quay.test/os@sha256:1");
    fleet.stop().await;
}

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8m0b8gYy7r0m0m6Zr1m1m1m1m1m1m1m1m1m1m1m1m1 a@test";

fn keys(config: &MachineConfig) -> Value {
    let config = json!(config.spec.config);
    config.pointer("/passwd/users/0/sshAuthorizedKeys").cloned().unwrap_or_default()
}

async fn ssh_keys_become_configs_and_those_of_others_stay(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    let theirs = objects::config("99-master-ssh", "master", "/etc/theirs", "hello");
    fleet.create(&theirs).await;
    fleet.create(&objects::pool("master")).await;
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "ssh-authorized-keys"}, "data": {"all": KEY},
    }))
    .unwrap();
    let maps = Api::<ConfigMap>::namespaced(fleet.client.clone(), label::NAMESPACE);
    maps.create(&PostParams::default(), &map).await.unwrap();
    let made = fleet.wait::<MachineConfig>("99-worker-ssh", "is created", |_| true).await;
    assert_eq!(keys(&made), json!([KEY]));
    // An edit is reverted, and a wrong line changes nothing.
    let edit = json!({"spec": {"config": {"passwd": {"users": []}}}});
    fleet.patch::<MachineConfig>("99-worker-ssh", edit).await;
    let has_key = |config: &MachineConfig| keys(config) == json!([KEY]);
    fleet.wait::<MachineConfig>("99-worker-ssh", "is restored", has_key).await;
    let patch = async |data: Value| {
        let patch = kube::api::Patch::Merge(json!({"data": data}));
        let params = kube::api::PatchParams::default();
        maps.patch("ssh-authorized-keys", &params, &patch).await.unwrap();
    };
    patch(json!({"all": "ssh-ed25519 nonsense"})).await;
    let text = fleet.event("InvalidSSHKeys").await;
    assert!(text.starts_with("line 1 of key \"all\" is no public SSH key"), "{text}");
    let found = fleet.all::<MachineConfig>().get("99-worker-ssh").await.unwrap();
    assert_eq!(keys(&found), json!([KEY]));
    // Without the ConfigMap the configs go; that of another owner stays.
    maps.delete("ssh-authorized-keys", &DeleteParams::default()).await.unwrap();
    fleet.gone::<MachineConfig>("99-worker-ssh").await;
    let theirs = fleet.all::<MachineConfig>().get("99-master-ssh").await.unwrap();
    assert_eq!(file(&theirs, "/etc/theirs"), "hello");
    fleet.stop().await;
}
