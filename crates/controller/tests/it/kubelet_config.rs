//! Tests of the KubeletConfig controller: generated MachineConfigs, status, finalizers, settings of the
//! cluster.

mod cluster;

use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::{
    ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool, annotation, label,
};
use mco_core::generated;
use mco_testkit::objects;
use serde_json::{Value, json};

use crate::{
    fleet::Fleet,
    server::{Server, on_both},
};

on_both! {
    a_kubelet_config_becomes_a_machine_config,
    a_refused_kubelet_config_changes_nothing,
    a_pool_gets_its_settings_when_it_appears_and_loses_them_with_its_label,
    edits_of_generated_configs_are_reverted,
    the_newest_of_several_kubelet_configs_wins,
    settings_without_a_base_become_a_fragment,
    configs_of_older_releases_are_replaced,
    a_pool_waits_for_its_settings,
    nothing_is_written_twice,
    settings_are_left_to_the_build_of_the_controller_config,
}

const CONFIGURATION: &str = "/etc/kubernetes/kubelet.conf";
const GENERATED: &str = "99-worker-generated-kubelet";
const LABEL: &str = "custom-kubelet";

/// A base file of the workers.
const BASE: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 250
staticPodPath: /etc/kubernetes/manifests
tlsMinVersion: VersionTLS12
";

/// Creates the base of the workers and labels their pool.
async fn with_base(server: Server, workers: usize) -> Fleet {
    let fleet = labelled(server, workers).await;
    fleet.create(&base(BASE)).await;
    fleet
}

/// Labels the pool of the workers.
async fn labelled(server: Server, workers: usize) -> Fleet {
    let fleet = Fleet::on(server, workers).await;
    let labels = json!({"metadata": {"labels": {LABEL: "on"}}});
    fleet.patch::<MachineConfigPool>("worker", labels).await;
    fleet
}

fn base(text: &str) -> MachineConfig {
    let mut config = MachineConfig::new(
        "01-worker-kubelet",
        generated::spec(&[generated::GeneratedFile::new(CONFIGURATION, text)]),
    );
    config.metadata.labels = Some([(label::ROLE.to_owned(), "worker".to_owned())].into());
    config
}

/// Builds a KubeletConfig for the pools with the label.
fn kubelet_config(name: &str, settings: &Value) -> KubeletConfig {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"example.com/mine": "stays"}},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {LABEL: "on"}},
            "kubeletConfig": settings,
        },
    }))
    .unwrap()
}

/// Returns a file of a MachineConfig as JSON.
fn file(config: &MachineConfig, path: &str) -> Value {
    let text = generated::file_of(config, path).unwrap_or_default();
    mco_core::yaml::documents(&String::from_utf8(text).unwrap()).unwrap().pop().unwrap_or_default()
}

/// Waits until the kubelet's file in a MachineConfig has this value.
async fn wait_for_field(fleet: &Fleet, config: &str, field: &str, value: Value) -> MachineConfig {
    let what = format!("{field} is {value}");
    fleet
        .wait::<MachineConfig>(config, &what, |config| file(config, CONFIGURATION)[field] == value)
        .await
}

/// Waits until the last condition of a KubeletConfig has this message.
async fn wait_for_message(fleet: &Fleet, name: &str, message: &str) -> KubeletConfig {
    fleet
        .wait::<KubeletConfig>(name, message, |config| {
            let status = config.status.clone().unwrap_or_default();
            Some(status.observed_generation) == config.metadata.generation
                && status.conditions.last().is_some_and(|last| last.message == message)
        })
        .await
}

async fn delete(fleet: &Fleet, name: &str) {
    fleet.all::<KubeletConfig>().delete(name, &DeleteParams::default()).await.unwrap();
    fleet.gone::<KubeletConfig>(name).await;
}

// covers: KUB-1, KUB-10
async fn a_kubelet_config_becomes_a_machine_config(server: Server) {
    let fleet = with_base(server, 1).await;
    wait_for_sources(&fleet, &["00-worker", "01-worker-kubelet"]).await;
    let before = fleet.rendered().await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    let made = wait_for_field(&fleet, GENERATED, "maxPods", json!(100)).await;
    assert_eq!(file(&made, CONFIGURATION)["staticPodPath"], "/etc/kubernetes/manifests");
    assert_eq!(made.labels()[label::ROLE], "worker");
    assert_eq!(made.annotations()[annotation::GENERATED_BY_CONTROLLER_VERSION.name()], "abc");
    let config = wait_for_message(&fleet, "pods", "Success").await;
    assert_eq!(config.finalizers(), [GENERATED]);
    assert_eq!(config.annotations()[annotation::CONFIG_NAME_SUFFIX.name()], "");
    assert_eq!(config.annotations()["example.com/mine"], "stays");
    let owner = &made.owner_references()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("KubeletConfig", config.uid().as_ref()));
    let kinds: Vec<String> =
        config.status.unwrap().conditions.into_iter().map(|one| one.kind).collect();
    assert_eq!(kinds, ["Accepted", "Success"]);
    wait_for_sources(&fleet, &["00-worker", "01-worker-kubelet", GENERATED]).await;
    let after = fleet.rendered_anew(&before).await;
    fleet
        .patch::<KubeletConfig>("pods", json!({"spec": {"kubeletConfig": {"maxPods": 110}}}))
        .await;
    wait_for_field(&fleet, GENERATED, "maxPods", json!(110)).await;
    let next = fleet.rendered_anew(&after).await;
    assert_ne!(next, before);
    // The base is followed, too.
    let other = generated::spec(&[generated::GeneratedFile::new(
        CONFIGURATION,
        BASE.replace("manifests", "pods"),
    )]);
    fleet.patch::<MachineConfig>("01-worker-kubelet", json!({"spec": other})).await;
    wait_for_field(&fleet, GENERATED, "staticPodPath", json!("/etc/kubernetes/pods")).await;
    let back = json!({"spec": base(BASE).spec});
    fleet.patch::<MachineConfig>("01-worker-kubelet", back).await;
    delete(&fleet, "pods").await;
    fleet.gone::<MachineConfig>(GENERATED).await;
    let is_back = |pool: &MachineConfigPool| pool.spec.configuration.rendered.name == before;
    fleet.wait::<MachineConfigPool>("worker", "it has its first config again", is_back).await;
    fleet.stop().await;
}

/// Waits until the config of the workers was rendered from exactly these MachineConfigs.
async fn wait_for_sources(fleet: &Fleet, names: &[&str]) {
    let has = |pool: &MachineConfigPool| {
        let sources = pool.spec.configuration.source.iter();
        sources.map(|source| source.name.as_str()).eq(names.iter().copied())
    };
    fleet.wait::<MachineConfigPool>("worker", &format!("rendered from {names:?}"), has).await;
}

// covers: KUB-2, KUB-11, KUB-18
async fn a_refused_kubelet_config_changes_nothing(server: Server) {
    let fleet = with_base(server, 1).await;
    wait_for_sources(&fleet, &["00-worker", "01-worker-kubelet"]).await;
    let before = fleet.rendered().await;
    fleet.create(&kubelet_config("bad", &json!({"clusterDomain": "x"}))).await;
    let text =
        "Error: KubeletConfiguration: clusterDomain is not allowed to be set, but contains: x";
    let refused = wait_for_message(&fleet, "bad", text).await;
    let conditions = refused.status.unwrap().conditions;
    let seen: Vec<(&str, &str)> =
        conditions.iter().map(|one| (one.kind.as_str(), one.status.as_str())).collect();
    assert_eq!(seen, [("Accepted", "False"), ("Failure", "True")]);
    // A value with which no kubelet starts does not replace one that is in use.
    let set = |settings: Value| json!({"spec": {"kubeletConfig": settings}});
    fleet.patch::<KubeletConfig>("bad", set(json!({"clusterDomain": null, "maxPods": 100}))).await;
    wait_for_field(&fleet, GENERATED, "maxPods", json!(100)).await;
    wait_for_sources(&fleet, &["00-worker", "01-worker-kubelet", GENERATED]).await;
    let good = fleet.rendered_anew(&before).await;
    fleet.patch::<KubeletConfig>("bad", set(json!({"maxPods": -1}))).await;
    let text = "Error: KubeletConfiguration: maxPods is -1, and must be 1 or more";
    wait_for_message(&fleet, "bad", text).await;
    // The pool is not held up by it.
    fleet.apply_config("50-more", "/etc/more").await;
    fleet.rendered_anew(&good).await;
    let made = fleet.all::<MachineConfig>().get(GENERATED).await.unwrap();
    assert_eq!(file(&made, CONFIGURATION)["maxPods"], 100);
    let nowhere = json!({"matchLabels": {LABEL: "off"}});
    fleet
        .patch::<KubeletConfig>("bad", json!({"spec": {"machineConfigPoolSelector": nowhere}}))
        .await;
    let text = "Error: could not find any MachineConfigPool set for KubeletConfig";
    wait_for_message(&fleet, "bad", text).await;
    fleet.gone::<MachineConfig>(GENERATED).await;
    delete(&fleet, "bad").await;
    fleet.stop().await;
}

// covers: KUB-19
async fn a_pool_gets_its_settings_when_it_appears_and_loses_them_with_its_label(server: Server) {
    let fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    wait_for_field(&fleet, GENERATED, "maxPods", json!(100)).await;
    let mut infra = objects::pool("infra");
    infra.metadata.labels = Some([(LABEL.to_owned(), "on".to_owned())].into());
    fleet.create(&infra).await;
    let of_infra = "99-infra-generated-kubelet";
    let made = wait_for_field(&fleet, of_infra, "maxPods", json!(100)).await;
    let workers = fleet.all::<MachineConfig>().get(GENERATED).await.unwrap();
    assert_eq!(file(&made, CONFIGURATION), file(&workers, CONFIGURATION));
    let off = json!({"metadata": {"labels": {LABEL: "off"}}});
    fleet.patch::<MachineConfigPool>("infra", off).await;
    fleet.gone::<MachineConfig>(of_infra).await;
    let is_released = |config: &KubeletConfig| config.finalizers() == [GENERATED];
    fleet.wait::<KubeletConfig>("pods", "has one finalizer", is_released).await;
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

async fn edits_of_generated_configs_are_reverted(server: Server) {
    let fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    wait_for_field(&fleet, GENERATED, "maxPods", json!(100)).await;
    let edit = json!({
        "metadata": {"annotations": {"example.com/mine": "stays"}},
        "spec": {"kernelArguments": ["quiet"], "config": {"storage": null}},
    });
    fleet.patch::<MachineConfig>(GENERATED, edit).await;
    let is_restored = |config: &MachineConfig| {
        config.spec.kernel_arguments.is_empty() && file(config, CONFIGURATION)["maxPods"] == 100
    };
    let restored = fleet.wait::<MachineConfig>(GENERATED, "is restored", is_restored).await;
    assert_eq!(restored.annotations()["example.com/mine"], "stays");
    let configs = fleet.all::<MachineConfig>();
    let uid = restored.uid();
    configs.delete(GENERATED, &DeleteParams::default()).await.unwrap();
    fleet.wait::<MachineConfig>(GENERATED, "is created again", |config| config.uid() != uid).await;
    wait_for_field(&fleet, GENERATED, "maxPods", json!(100)).await;
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

// covers: KUB-8, KUB-9
async fn the_newest_of_several_kubelet_configs_wins(server: Server) {
    let fleet = with_base(server, 0).await;
    for number in 0..10 {
        let name = format!("k{number}");
        fleet.create(&kubelet_config(&name, &json!({"maxPods": 100 + number}))).await;
        let config = wait_for_message(&fleet, &name, "Success").await;
        let suffix = if number == 0 { String::new() } else { number.to_string() };
        assert_eq!(config.annotations()[annotation::CONFIG_NAME_SUFFIX.name()], suffix);
    }
    let wins = async |pods: i32| {
        let rendered = |pool: &MachineConfigPool| pool.spec.configuration.rendered.name.clone();
        for _ in 0..50 {
            let pool = fleet.all::<MachineConfigPool>().get("worker").await.unwrap();
            let name = rendered(&pool);
            let config = fleet.all::<MachineConfig>().get(&name).await.unwrap();
            if file(&config, CONFIGURATION)["maxPods"] == pods {
                return;
            }
            fleet.rendered_anew(&name).await;
        }
        panic!("no config with {pods} pods");
    };
    wins(109).await;
    fleet.create(&kubelet_config("surplus", &json!({"maxPods": 1}))).await;
    let text = "Error: max number of supported kubelet config (10) has been reached. Please delete \
                old kubelet configs before retrying";
    wait_for_message(&fleet, "surplus", text).await;
    delete(&fleet, "surplus").await;
    delete(&fleet, "k9").await;
    wins(108).await;
    for number in 0..9 {
        delete(&fleet, &format!("k{number}")).await;
    }
    wins(250).await;
    fleet.stop().await;
}

async fn settings_without_a_base_become_a_fragment(server: Server) {
    let fleet = labelled(server, 0).await;
    let before = fleet.rendered().await;
    let mut config = kubelet_config("pods", &json!({"maxPods": 42}));
    config.spec.log_level = Some(3);
    fleet.create(&config).await;
    wait_for_message(&fleet, "pods", "Success").await;
    let made = fleet.all::<MachineConfig>().get(GENERATED).await.unwrap();
    let expected = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "maxPods": 42, "logging": {"verbosity": 3},
    });
    assert_eq!(file(&made, "/etc/kubernetes/kubelet.conf.d/99-mco-0.conf"), expected);
    assert_eq!(generated::file_of(&made, CONFIGURATION), None);
    fleet.rendered_anew(&before).await;
    fleet.patch::<KubeletConfig>("pods", json!({"spec": {"autoSizingReserved": true}})).await;
    fleet
        .wait::<KubeletConfig>("pods", "is refused", |config| {
            let conditions = config.status.clone().unwrap_or_default().conditions;
            let last = conditions.last().map(|last| last.message.clone()).unwrap_or_default();
            last.starts_with("Error: autoSizingReserved is true")
        })
        .await;
    delete(&fleet, "pods").await;
    let is_back = |pool: &MachineConfigPool| pool.spec.configuration.rendered.name == before;
    fleet.wait::<MachineConfigPool>("worker", "it has its first config again", is_back).await;
    fleet.stop().await;
}

// covers: KUB-16, KUB-17
async fn configs_of_older_releases_are_replaced(server: Server) {
    let mut fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    wait_for_message(&fleet, "pods", "Success").await;
    fleet.pause().await;
    let uid = fleet.all::<MachineConfigPool>().get("worker").await.unwrap().uid().unwrap();
    let old = |name: &str, owner: Option<Value>| -> MachineConfig {
        let mut config = base(BASE);
        config.metadata.name = Some(name.to_owned());
        let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name().to_owned();
        config.metadata.annotations = Some([(key, "old".to_owned())].into());
        config.metadata.owner_references = owner.map(|one| serde_json::from_value(one).unwrap());
        config
    };
    let gone = json!([{"apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "KubeletConfig", "name": "gone", "uid": "0"}]);
    let (legacy, orphan) = (format!("99-worker-{uid}-kubelet"), format!("{GENERATED}-4"));
    fleet.create(&old(&legacy, None)).await;
    fleet.create(&old(&orphan, Some(gone))).await;
    fleet.create(&old("99-worker-kubelet-of-a-user", None)).await;
    let other = json!({"metadata": {"annotations": {
        annotation::GENERATED_BY_CONTROLLER_VERSION.name(): "old"}}});
    fleet.patch::<MachineConfig>(GENERATED, other).await;
    fleet.resume();
    fleet.gone::<MachineConfig>(&legacy).await;
    fleet.gone::<MachineConfig>(&orphan).await;
    let is_ours = |config: &MachineConfig| {
        config.annotations()[annotation::GENERATED_BY_CONTROLLER_VERSION.name()] == "abc"
    };
    fleet.wait::<MachineConfig>(GENERATED, "is of this build", is_ours).await;
    fleet.all::<MachineConfig>().get("99-worker-kubelet-of-a-user").await.unwrap();
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

// covers: REN-9
async fn a_pool_waits_for_its_settings(server: Server) {
    let mut fleet = with_base(server, 0).await;
    wait_for_sources(&fleet, &["00-worker", "01-worker-kubelet"]).await;
    let before = fleet.rendered().await;
    fleet.pause().await;
    fleet.apply_config("50-more", "/etc/more").await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    fleet.resume();
    let after = fleet.rendered_anew(&before).await;
    let rendered = fleet.all::<MachineConfig>().get(&after).await.unwrap();
    assert_eq!(file(&rendered, CONFIGURATION)["maxPods"], 100, "the first config has both");
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

async fn settings_are_left_to_the_build_of_the_controller_config(server: Server) {
    let fleet = with_base(server, 0).await;
    let key = annotation::GENERATED_BY_VERSION.name();
    let by = |version: &str| json!({"metadata": {"annotations": {key: version}}});
    let config = fleet.all::<ControllerConfig>().get(label::CONTROLLER_CONFIG).await.unwrap();
    let mine = config.annotations().get(key).unwrap().clone();
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, by("other")).await;
    fleet.create(&kubelet_config("first", &json!({"maxPods": 100}))).await;
    // Another controller, with the same delay, has reacted to a later change.
    let base = fleet.rendered().await;
    fleet.create(&crate::fleet::worker("n0", &base)).await;
    fleet.wait_for_pool("the node is counted", |status| status.machine_count == 1).await;
    let object = fleet.all::<KubeletConfig>().get("first").await.unwrap();
    assert_eq!((object.status, object.metadata.finalizers), (None, None));
    assert!(fleet.all::<MachineConfig>().get_opt(GENERATED).await.unwrap().is_none());
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, by(&mine)).await;
    wait_for_message(&fleet, "first", "Success").await;
    delete(&fleet, "first").await;
    fleet.stop().await;
}

async fn nothing_is_written_twice(server: Server) {
    let mut fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("first", &json!({"maxPods": 100}))).await;
    wait_for_message(&fleet, "first", "Success").await;
    fleet.pause().await;
    let (client, writes) = fleet.server.metered().await;
    let original = std::mem::replace(&mut fleet.client, client);
    fleet.resume();
    fleet.client = original;
    fleet.create(&kubelet_config("second", &json!({"maxPods": 101}))).await;
    wait_for_message(&fleet, "second", "Success").await;
    let all = writes.all();
    let of_first = |line: &&String| line.ends_with("/first") || line.ends_with(GENERATED);
    assert_eq!(all.iter().filter(of_first).collect::<Vec<_>>(), Vec::<&String>::new(), "{all:?}");
    for name in ["first", "second"] {
        delete(&fleet, name).await;
    }
    fleet.stop().await;
}
