//! `mco controller bootstrap` renders the configs that the cluster renders later.

#![expect(clippy::disallowed_methods, reason = "the test reads the output files")]

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, label};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::Shutdown;
use mco_core::render::Build;
use mco_testkit::object_wait;
use serde::Serialize;
use serde_json::json;

use crate::Folder;

fn build() -> Build {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Build { hash: option_env!("MCO_BUILD_HASH").unwrap_or(&version).to_owned(), version }
}

fn put(folder: &Folder, name: &str, object: &impl Serialize) {
    folder.write(name, &serde_json::to_vec(object).unwrap());
}

fn feature_gate() -> serde_json::Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"}})
}

fn api_server() -> serde_json::Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "APIServer",
        "metadata": {"name": "cluster"}, "spec": {"tlsSecurityProfile": {"type": "Modern"}}})
}

fn user_config() -> MachineConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "50-mine", "labels": {label::ROLE: "worker"}},
        "spec": {"kernelArguments": ["quiet"], "config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{"path": "/etc/mine", "mode": 0o600, "contents": {"source": "data:,x"}}]},
        }},
    }))
    .unwrap()
}

fn bootstrap(folder: &Folder) -> std::process::Output {
    let words = ["controller", "bootstrap", "--manifest-dir", "in", "--dest-dir", "out"];
    folder.mco(&words).env_remove("RELEASE_VERSION").output().unwrap()
}

/// Returns the ControllerConfig and the pools of a cluster that has rendered the user's config.
async fn cluster() -> (ControllerConfig, Vec<MachineConfigPool>) {
    let server = ApiServer::in_memory(Settings::default()).await.unwrap();
    let client = Client::new(server, "default");
    mco_operator::install(&client).await.unwrap();
    let shutdown = Shutdown::new();
    let mut operator = mco_operator::Config::new(build(), "0.0.1-snapshot");
    operator.root_ca = mco_operator::RootCa::Fixed("authority".to_owned());
    let operator = tokio::spawn(mco_operator::run(operator, client.clone(), shutdown.clone()));
    let controller = mco_controller::Config::new(build());
    let controller =
        tokio::spawn(mco_controller::run(controller, client.clone(), shutdown.clone()));
    let settings: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "cluster-settings"}, "data": {"server": api_server().to_string()},
    }))
    .unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE);
    maps.create(&PostParams::default(), &settings).await.unwrap();
    let configs = Api::<MachineConfig>::all(client.clone());
    configs.create(&PostParams::default(), &user_config()).await.unwrap();
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let of_worker = &["00-worker", "50-mine", "97-worker-generated-kubelet"][..];
    let of_master = &["00-master", "97-master-generated-kubelet"][..];
    for (name, all) in [("worker", of_worker), ("master", of_master)] {
        let is_rendered = |pool: Option<&MachineConfigPool>| {
            let sources = pool.map(|pool| pool.spec.configuration.source.as_slice());
            sources
                .unwrap_or_default()
                .iter()
                .map(|source| source.name.as_str())
                .eq(all.iter().copied())
        };
        object_wait::wait_until(pools.clone(), name, "all of its configs", is_rendered)
            .await
            .unwrap();
    }
    let found = Api::<ControllerConfig>::all(client.clone()).get(label::CONTROLLER_CONFIG).await;
    let listed = pools.list(&ListParams::default()).await.unwrap().items;
    shutdown.request();
    operator.await.unwrap();
    controller.await.unwrap();
    (found.unwrap(), listed)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

// covers: REN-25, BST-2, BST-6, PROC-2
#[tokio::test]
async fn configs_have_the_same_names_as_in_the_cluster() {
    let (cluster, pools) = cluster().await;
    let folder = Folder::new(&[]);
    put(&folder, "in/cluster.json", &cluster);
    put(&folder, "in/gate.json", &feature_gate());
    put(&folder, "in/config.json", &user_config());
    put(&folder, "in/server.json", &api_server());
    let other = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    put(&folder, "in/other.json", &other);
    for pool in &pools {
        let bare = MachineConfigPool { status: None, ..pool.clone() };
        put(&folder, &format!("in/{}.json", pool.name_any()), &bare);
    }
    let out = bootstrap(&folder);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));

    let made = |path: &str| folder.path(&format!("out/{path}"));
    for pool in &pools {
        let rendered = &pool.spec.configuration.rendered.name;
        let config = folder.read(&format!("out/machine-configs/{rendered}.yaml"));
        assert!(config.contains("kind: MachineConfig\n"), "{config}");
        let text = folder.read(&format!("out/machine-pools/{}.yaml", pool.name_any()));
        assert_eq!(text.matches(&format!("name: {rendered}\n")).count(), 2);
    }
    let text = folder.read("out/api-server/api-server.yaml");
    assert!(text.contains("type: Modern"), "{text}");
    assert_eq!(mode(&made("machine-pools")), 0o764);
    assert_eq!(mode(&made("machine-pools/worker.yaml")), 0o664);
    assert_eq!(mode(&made("controller-config/machine-config-controller.yaml")), 0o664);
    assert_eq!(fs::read_dir(made("machine-configs")).unwrap().count(), pools.len());
}

/// Returns the rendered config of the worker pool that `bootstrap` writes with these arguments.
fn worker(folder: &Folder, arguments: &[&str]) -> String {
    let words = ["controller", "bootstrap", "--manifest-dir", "in", "--dest-dir", "out"];
    let words: Vec<&str> = words.iter().chain(arguments).copied().collect();
    let _ = fs::remove_dir_all(folder.path("out"));
    let out = folder.mco(&words).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let files = fs::read_dir(folder.path("out/machine-configs")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let texts: Vec<String> = paths.map(|path| fs::read_to_string(path).unwrap()).collect();
    texts.into_iter().find(|text| text.contains("name: rendered-worker-")).unwrap()
}

// covers: BST-2
#[test]
fn base_configs_come_from_templates_and_the_manifests_settings() {
    let folder = Folder::new(&[]);
    let version = build().version;
    let cluster = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller", "annotations":
            {"machineconfiguration.openshift.io/generated-by-version": version}}, "spec": {}});
    put(&folder, "in/cluster.json", &cluster);
    put(&folder, "in/gate.json", &feature_gate());
    put(&folder, "in/server.json", &api_server());
    let pool = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {"machineConfigSelector": {"matchLabels": {label::ROLE: "worker"}}}});
    put(&folder, "in/worker.json", &pool);
    let data = "eyJhdXRocyI6e319";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull-secret"},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": data}});
    put(&folder, "secret.json", &secret);

    assert!(!worker(&folder, &[]).contains("firstboot"), "adopt installs nothing on a node");
    let full = worker(&folder, &["--profile", "full", "--pull-secret", "secret.json"]);
    assert!(full.contains("path: \"/etc/kubernetes/kubelet.conf\""), "{full}");
    assert!(full.contains("data:,%7B%22auths%22%3A%7B%7D%7D"), "{full}");

    folder.write("mine/worker/00-worker/_base/files/a", b"---\npath: /etc/a\n---\n{{ role }}\n");
    let mine = worker(&folder, &["--profile", "full", "--templates", "mine"]);
    assert!(mine.contains("path: \"/etc/a\"") && mine.contains("data:,worker%0A"), "{mine}");
    assert!(!mine.contains("path: \"/etc/kubernetes/kubelet.conf\""), "{mine}");
    folder.write("mine/worker/README", b"text");
    let words = ["controller", "bootstrap", "--manifest-dir", "in", "--dest-dir", "out"];
    let out = folder.mco(&words).args(["--templates", "mine"]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("mine is no folder of templates"), "{text}");
    assert!(text.contains("template worker/README is in no known folder"), "{text}");
}

// covers: BST-1, PROC-1
#[test]
fn missing_and_invalid_manifests_are_errors() {
    let folder = Folder::new(&[]);
    let out = folder.mco(&["controller", "bootstrap", "--dest-dir", "out"]).output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("--manifest-dir"));
    put(&folder, "in/gate.json", &feature_gate());
    let error = |folder: &Folder| String::from_utf8_lossy(&bootstrap(folder).stderr).into_owned();
    let text = error(&folder);
    assert!(text.contains("error: no controllerconfig found in dir: \"in\""), "{text}");
    let broken = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "a"}, "spec": {"kernelArguments": "quiet"}});
    put(&folder, "in/a.json", &broken);
    let text = error(&folder);
    assert!(text.contains("in/a.json") && text.contains("kernelArguments"), "{text}");
    let layered = json!({"apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineOSConfig", "metadata": {"name": "layered"}, "spec": {}});
    put(&folder, "in/a.json", &layered);
    let text = error(&folder);
    assert!(text.contains("MachineOSConfig/layered is not supported"), "{text}");
}

// covers: PROC-1
#[test]
fn an_invalid_pull_secret_is_an_error() {
    let folder =
        Folder::new(&[("secret.yaml", b"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")]);
    let words = [
        "controller",
        "bootstrap",
        "--manifest-dir",
        ".",
        "--dest-dir",
        "out",
        "--pull-secret",
        "secret.yaml",
    ];
    let out = folder.mco(&words).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("is not a Secret of type kubernetes.io/dockerconfigjson"), "{text}");
}
