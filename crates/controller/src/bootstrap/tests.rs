use kube::ResourceExt;
use mco_api::label;
use serde_json::json;

use super::*;

fn build() -> Build {
    Build { version: "v1".to_owned(), hash: "abc".to_owned() }
}

fn cluster() -> ControllerConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "machine-config-controller", "annotations": {
            annotation::GENERATED_BY_VERSION.name(): "v1",
            annotation::RELEASE_IMAGE_VERSION.name(): "4.20.0",
        }},
        "spec": {"baseOSContainerImage": "os"},
    }))
    .unwrap()
}

fn config(name: &str, role: &str) -> MachineConfig {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: role}},
        "spec": {"kernelArguments": [name]},
    }))
    .unwrap()
}

fn pool(name: &str, paused: bool) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {"paused": paused, "machineConfigSelector": {"matchLabels": {label::ROLE: name}}},
    }))
    .unwrap()
}

fn given(pools: Vec<MachineConfigPool>) -> BootstrapManifests {
    BootstrapManifests {
        dir: "in".to_owned(),
        controller_config: Some(Box::new(cluster())),
        has_feature_gate: true,
        pools,
        configs: vec![config("50-mine", "worker")],
        ..BootstrapManifests::default()
    }
}

async fn run_with(given: BootstrapManifests) -> Result<BootstrapOutput, BootstrapError> {
    let base = |_: &ControllerConfig| {
        Ok(vec![config("00-worker", "worker"), config("00-master", "master")])
    };
    let built_in = [pool("master", false), pool("worker", false)];
    let furnishing = BuiltIns { build: &build(), base: &base, pools: &built_in };
    Box::pin(run(given, &furnishing)).await
}

async fn refusal(given: BootstrapManifests) -> String {
    run_with(given).await.unwrap_err().to_string()
}

// covers: BST-5, REN-25
#[tokio::test]
async fn a_pool_has_its_config_in_spec_and_status() {
    let made = run_with(given(vec![pool("worker", false), pool("master", false)])).await.unwrap();
    let names: Vec<String> = made.pools.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["master", "worker"]);
    for (pool, config) in made.pools.iter().zip(&made.configs) {
        let spec = &pool.spec.configuration;
        assert_eq!(spec.rendered.name, config.name_any());
        assert_eq!(Some(spec), pool.status.as_ref().map(|status| &status.configuration));
    }
    let sources: Vec<&str> =
        made.pools[1].spec.configuration.source.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(sources, ["00-worker", "50-mine"]);
    assert_eq!(made.configs[1].spec.kernel_arguments, ["00-worker", "50-mine"]);
    assert_eq!(made.configs[1].spec.os_image_url, "os");
}

#[tokio::test]
async fn base_configs_of_the_manifests_are_used() {
    let mut given = given(vec![pool("worker", false)]);
    let mut own = config("00-worker", "worker");
    own.spec.kernel_arguments = vec!["own".to_owned()];
    given.configs.push(own);
    let made = run_with(given).await.unwrap();
    assert_eq!(made.configs[0].spec.kernel_arguments, ["own", "50-mine"]);
}

// covers: BST-1
#[tokio::test]
async fn missing_inputs_are_reported() {
    let pools = || vec![pool("worker", false)];
    let none = BootstrapManifests { controller_config: None, ..given(pools()) };
    assert_eq!(refusal(none).await, "error: no controllerconfig found in dir: \"in\"");
    let none = BootstrapManifests { has_feature_gate: false, ..given(pools()) };
    assert_eq!(refusal(none).await, "error: no featuregate found in dir: \"in\"");
    let infra = given(vec![pool("infra", false)]);
    assert_eq!(refusal(infra).await, "couldn't find any MachineConfigs for pool: infra");
    let mut all = pool("worker", false);
    all.spec.machine_config_selector = Some(LabelSelector::default());
    assert!(refusal(given(vec![all])).await.starts_with("pool worker selects all MachineConfigs"));
    // covers: PROC-8
    let mut other = given(pools());
    other.controller_config.as_mut().unwrap().metadata.annotations = None;
    assert!(refusal(other).await.starts_with("ignoring controller config generated without"));
}

// covers: BST-3, BST-6
#[tokio::test]
async fn settings_are_rendered_and_two_objects_for_one_pool_are_rejected() {
    let kubelet = |name: &str, pool: &str| -> KubeletConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {"pool": pool}}},
        }))
        .unwrap()
    };
    let runtime = |name: &str| -> ContainerRuntimeConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {"pool": "worker"}}},
        }))
        .unwrap()
    };
    let pools = || vec![pool("worker", false), pool("master", false)];
    let two = BootstrapManifests {
        kubelet_configs: vec![kubelet("a", "worker"), kubelet("b", "worker")],
        ..given(pools())
    };
    assert_eq!(
        refusal(two).await,
        "error found multiple KubeletConfigs targeting MachineConfigPool worker. Please apply only \
         one KubeletConfig manifest for each pool during installation"
    );
    let two =
        BootstrapManifests { runtime_configs: vec![runtime("a"), runtime("b")], ..given(pools()) };
    assert_eq!(
        refusal(two).await,
        "error found multiple ContainerConfig targeting MachineConfigPool worker. Please apply only \
         one ContainerConfig manifest for each pool during installation"
    );
    let each = BootstrapManifests {
        kubelet_configs: vec![kubelet("a", "worker"), kubelet("b", "master")],
        ..given(pools())
    };
    let made = run_with(each).await.unwrap();
    for pool in &made.pools {
        let sources = pool.spec.configuration.source.iter().map(|one| one.name.clone());
        let expected = format!("99-{}-generated-kubelet", pool.name_any());
        assert!(sources.clone().any(|name| name == expected), "{:?}", sources.collect::<Vec<_>>());
    }
    let mut bad = kubelet("bad", "worker");
    bad.spec.log_level = Some(11);
    let bad = BootstrapManifests { kubelet_configs: vec![bad], ..given(pools()) };
    assert_eq!(
        refusal(bad).await,
        "KubeletConfig bad: KubeletConfig's LogLevel is not valid [0,10]: 11"
    );
    let mut node = given(pools());
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": "Node",
        "metadata": {"name": "cluster"}, "spec": {"cgroupMode": "v2"}});
    assert!(node.settings.add_manifest("node.yaml", &object).unwrap());
    let made = run_with(node).await.unwrap();
    for config in &made.configs {
        let arguments = &config.spec.kernel_arguments;
        assert!(
            arguments.iter().any(|it| it == "systemd.unified_cgroup_hierarchy=1"),
            "{arguments:?}"
        );
    }
}

// covers: BST-4
#[tokio::test]
async fn a_users_pool_wins_over_the_built_in_one() {
    let (own, built_in) = (pool("worker", true), pool("worker", false));
    for pools in [vec![own.clone(), built_in.clone()], vec![built_in.clone(), own.clone()]] {
        let made = run_with(given(pools)).await.unwrap();
        assert_eq!(made.pools.len(), 1);
        assert!(made.pools[0].spec.paused);
    }
    let twice = run_with(given(vec![built_in.clone(), built_in])).await.unwrap();
    assert_eq!(twice.pools.len(), 1);
}
