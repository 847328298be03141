//! Tests of the MachineConfigs with registries, mirrors and signatures.

use k8s_openapi::{
    api::core::v1::{ConfigMap, Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::{Condition as _, conditions::is_crd_established},
};
use mco_api::{
    MachineConfig, MachineConfigPool, label,
    openshift::{ClusterImagePolicy, Image, ImageDigestMirrorSet, ImagePolicy},
};
use mco_core::generated::file_of;
use mco_testkit::objects;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, awaited},
    server::{Server, on_both},
};

on_both! {
    mirrors_of_the_config_map_reach_the_built_in_pools_and_leave_no_trace,
    invalid_settings_are_reported_and_change_no_node,
    nodes_with_containerd_get_hosts_files,
    an_openshift_cluster_has_a_config_without_settings_too,
    a_scope_conflict_is_reported_until_it_is_over,
    a_config_of_a_user_with_that_name_is_not_deleted,
}

const WORKER: &str = "99-worker-generated-registries";
const REGISTRIES: &str = "/etc/containers/registries.conf";
const BASE: &str = "unqualified-search-registries%3D%5B%22docker.io%22%5D%0A";

/// Creates a cluster whose worker pool is built in.
async fn cluster(server: Server) -> Fleet {
    let fleet = Fleet::on(server, 1).await;
    let label = json!({"metadata": {"labels": {label::BUILT_IN_POOL: ""}}});
    fleet.patch::<MachineConfigPool>("worker", label).await;
    let base = objects::config("01-worker-container-runtime", "worker", REGISTRIES, BASE);
    let before = fleet.rendered().await;
    fleet.create(&base).await;
    fleet.rendered_anew(&before).await;
    fleet
}

fn config_maps(fleet: &Fleet) -> Api<ConfigMap> {
    Api::namespaced(fleet.client.clone(), label::NAMESPACE)
}

async fn settings(fleet: &Fleet, yaml: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cluster-settings"}, "data": {"images.yaml": yaml},
    });
    let params = PatchParams::apply("test").force();
    config_maps(fleet).patch("cluster-settings", &params, &Patch::Apply(map)).await.unwrap();
}

fn text(config: &MachineConfig, path: &str) -> Option<String> {
    file_of(config, path).map(|bytes| String::from_utf8(bytes).unwrap())
}

const MIRRORS: &str = "apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: m}
spec: {imageDigestMirrors: [{source: r.test, mirrors: [m.test]}]}
";

// covers: REG-7
async fn mirrors_of_the_config_map_reach_the_built_in_pools_and_leave_no_trace(server: Server) {
    let fleet = cluster(server).await;
    let old = fleet.rendered().await;
    fleet.infra_pool().await;
    settings(&fleet, MIRRORS).await;
    let made = fleet.wait::<MachineConfig>(WORKER, "it is generated", |_| true).await;
    let conf = text(&made, REGISTRIES).unwrap();
    assert!(conf.contains("[\"docker.io\"]") && conf.contains("location = \"m.test\""), "{conf}");
    assert_eq!(made.owner_references(), []);
    let new = fleet.rendered_anew(&old).await;

    // An edit is reverted, and the base config is followed.
    let edit = json!({"spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": null}}});
    fleet.patch::<MachineConfig>(WORKER, edit).await;
    let restored = |config: &MachineConfig| text(config, REGISTRIES).is_some();
    fleet.wait::<MachineConfig>(WORKER, "it is restored", restored).await;
    let other = BASE.replace("docker.io", "quay.io");
    let other = objects::config("01-worker-container-runtime", "worker", REGISTRIES, &other);
    let other = json!({"spec": other.spec});
    fleet.patch::<MachineConfig>("01-worker-container-runtime", other).await;
    let follows = |config: &MachineConfig| {
        text(config, REGISTRIES).is_some_and(|conf| conf.contains("quay.io"))
    };
    fleet.wait::<MachineConfig>(WORKER, "it follows the base", follows).await;
    let base = objects::config("01-worker-container-runtime", "worker", REGISTRIES, BASE);
    let base = json!({"spec": base.spec});
    fleet.patch::<MachineConfig>("01-worker-container-runtime", base).await;
    let is_new = |pool: &MachineConfigPool| pool.spec.configuration.rendered.name == new;
    fleet.wait("worker", "it has the config of before", is_new).await;

    let custom = fleet.all::<MachineConfig>().get_opt("99-infra-generated-registries").await;
    assert_eq!(custom.unwrap(), None);
    config_maps(&fleet).delete("cluster-settings", &DeleteParams::default()).await.unwrap();
    fleet.gone::<MachineConfig>(WORKER).await;
    let is_old = |pool: &MachineConfigPool| pool.spec.configuration.rendered.name == old;
    fleet.wait("worker", "it has its old config again", is_old).await;
    fleet.stop().await;
}

async fn invalid_settings_are_reported_and_change_no_node(server: Server) {
    let fleet = cluster(server).await;
    settings(&fleet, MIRRORS).await;
    let before = fleet.wait::<MachineConfig>(WORKER, "it is generated", |_| true).await;
    settings(&fleet, &MIRRORS.replace("m.test", "m.test:tag/x")).await;
    assert_eq!(
        fleet.event("ImageConfigFailed").await,
        "could not update registries config with new changes: invalid format for mirror \
         \"m.test:tag/x\""
    );
    let after = fleet.all::<MachineConfig>().get(WORKER).await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    settings(&fleet, &MIRRORS.replace("m.test", "m2.test")).await;
    let has = |config: &MachineConfig| text(config, REGISTRIES).unwrap().contains("m2.test");
    fleet.wait::<MachineConfig>(WORKER, "it is changed", has).await;
    fleet.stop().await;
}

async fn nodes_with_containerd_get_hosts_files(server: Server) {
    let fleet = cluster(server).await;
    let info = json!({"nodeInfo": {
        "containerRuntimeVersion": "containerd://2.1.4", "architecture": "", "bootID": "",
        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
        "operatingSystem": "", "osImage": "", "systemUUID": "",
    }});
    fleet.patch_status::<Node>("n0", info).await;
    let image = "---\napiVersion: config.openshift.io/v1\nkind: Image\nmetadata: {name: cluster}\n\
        spec: {registrySources: {allowedRegistries: [r.test]}}\n";
    settings(&fleet, &format!("{MIRRORS}{image}")).await;
    let path = "/etc/containerd/certs.d/r.test/hosts.toml";
    let has =
        |config: &MachineConfig| text(config, path).is_some() && text(config, REGISTRIES).is_none();
    let made = fleet.wait::<MachineConfig>(WORKER, "it is for containerd", has).await;
    assert_eq!(
        text(&made, path).unwrap(),
        "server = \"https://r.test\"\n\n[host]\n  [host.\"https://m.test\"]\n    \
         capabilities = [\"pull\"]\n"
    );
    assert!(
        fleet.event("ImageConfigWithoutEffect").await.starts_with(
            "settings without effect on nodes with containerd: allowedRegistries r.test"
        )
    );
    fleet.stop().await;
}

/// Creates OpenShift's kinds, and starts the controllers again.
async fn become_openshift(fleet: &mut Fleet) {
    fleet.pause().await;
    define::<Image>(fleet, "Cluster").await;
    define::<ImageDigestMirrorSet>(fleet, "Cluster").await;
    define::<ClusterImagePolicy>(fleet, "Cluster").await;
    define::<ImagePolicy>(fleet, "Namespaced").await;
    fleet.resume();
}

async fn define<K: Resource<DynamicType = ()>>(fleet: &Fleet, scope: &str) {
    let (plural, group) = (K::plural(&()), K::group(&()));
    let kind: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": K::kind(&()), "plural": plural},
            "versions": [{"name": K::version(&()), "served": true, "storage": true,
                "subresources": {"status": {}}, "schema":
                {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    fleet.create(&kind).await;
    let is_served =
        |kind: &CustomResourceDefinition| is_crd_established().matches_object(Some(kind));
    fleet.wait::<CustomResourceDefinition>(&kind.name_any(), "it is served", is_served).await;
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

// covers: REG-8
async fn an_openshift_cluster_has_a_config_without_settings_too(server: Server) {
    let mut fleet = cluster(server).await;
    become_openshift(&mut fleet).await;
    fleet.create::<Image>(&object(json!({"metadata": {"name": "cluster"}}))).await;
    let made = fleet.wait::<MachineConfig>(WORKER, "it is generated", |_| true).await;
    let config = serde_json::to_value(&made.spec).unwrap()["config"].clone();
    assert_eq!(config, json!({"ignition": {"version": "3.5.0"}}));
    let owner = &made.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Image", None));
    let spec =
        json!({"spec": {"registrySources": {"containerRuntimeSearchRegistries": ["s.test"]}}});
    fleet.patch::<Image>("cluster", spec).await;
    let path = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";
    let has = |config: &MachineConfig| text(config, path).is_some();
    fleet.wait::<MachineConfig>(WORKER, "it has the file", has).await;
    let spec = json!({"spec": {"registrySources": {"containerRuntimeSearchRegistries": null}}});
    fleet.patch::<Image>("cluster", spec).await;
    let has_not = |config: &MachineConfig| text(config, path).is_none();
    fleet.wait::<MachineConfig>(WORKER, "the file is gone", has_not).await;
    fleet.stop().await;
}

async fn a_scope_conflict_is_reported_until_it_is_over(server: Server) {
    let mut fleet = cluster(server).await;
    become_openshift(&mut fleet).await;
    fleet.create::<Image>(&object(json!({"metadata": {"name": "cluster"}}))).await;
    let policy =
        json!({"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "aw=="}}});
    let spec = |scope: &str| json!({"scopes": [scope], "policy": policy});
    let all = json!({"metadata": {"name": "all"}, "spec": spec("s.test")});
    fleet.create::<ClusterImagePolicy>(&object(all)).await;
    let own =
        json!({"metadata": {"name": "own", "namespace": "default"}, "spec": spec("s.test/x")});
    let policies = Api::<ImagePolicy>::namespaced(fleet.client.clone(), "default");
    policies.create(&PostParams::default(), &object(own)).await.unwrap();
    let found = awaited(policies.clone(), "own", "a conflict", |policy| {
        !policy.status.conditions.is_empty()
    });
    let condition = found.await.status.conditions.remove(0);
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("Pending", "False"));
    assert_eq!(condition.reason, "ConflictScopes");
    assert!(condition.message.starts_with("has conflicting scope(s) [\"s.test/x\"]"));
    let all = fleet.all::<ClusterImagePolicy>();
    all.delete("all", &DeleteParams::default()).await.unwrap();
    let is_over = |policy: &ImagePolicy| policy.status.conditions.is_empty();
    awaited(policies, "own", "the conflict is over", is_over).await;
    let has = |config: &MachineConfig| text(config, "/etc/crio/policies/default.json").is_some();
    fleet.wait::<MachineConfig>(WORKER, "the policy of the namespace has its file", has).await;
    fleet.stop().await;
}

async fn a_config_of_a_user_with_that_name_is_not_deleted(server: Server) {
    let fleet = cluster(server).await;
    let before = fleet.rendered().await;
    // Enqueues the image config controller, whose delay is shorter than that of rendering.
    fleet.create(&objects::config(WORKER, "worker", "/etc/mine", "hello")).await;
    fleet.rendered_anew(&before).await;
    assert!(fleet.all::<MachineConfig>().get_opt(WORKER).await.unwrap().is_some());
    fleet.stop().await;
}
