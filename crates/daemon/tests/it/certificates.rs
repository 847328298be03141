//! Certificates and pull secrets follow the ControllerConfig without a reboot.

use std::fs;

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{ControllerConfig, MachineConfigPool, label};
use mco_apiserver::{ApiServer, Listener, Settings};
use mco_cluster::{NoteCount, Reporter, client};
use mco_daemon::{DaemonContext, watch::Watch};
use mco_host::{Host, Root, SimulatedSystem};
use mco_testkit::{
    PATIENCE,
    pki::{Authority, Credentials},
};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::fleet::{Drains, Fleet};

fn base64(text: &str) -> Value {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap()
}

fn authority(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// Creates or changes the ControllerConfig; returns the version that the node must report.
pub(crate) async fn configure(fleet: &Fleet, rotates: bool, spec: Value) -> String {
    let api: Api<ControllerConfig> = Api::all(fleet.client.clone());
    let key = "machineconfiguration.openshift.io/service-ca-rotate";
    let annotations = json!({key: rotates.to_string()});
    let name = label::CONTROLLER_CONFIG;
    let made = if api.get_opt(name).await.unwrap().is_some() {
        let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    } else {
        let mut object = serde_json::to_value(ControllerConfig::new(
            name,
            mco_api::controller_config::ControllerConfigSpec::default(),
        ))
        .unwrap();
        object["metadata"]["annotations"] = annotations;
        object["spec"]["rootCAData"] = base64("root");
        object["spec"]["kubeAPIServerServingCAData"] = base64("kubelet");
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    };
    made.metadata.resource_version.unwrap()
}

// covers: C101, C102, C105
#[tokio::test(flavor = "multi_thread")]
async fn certificates_come_and_go_without_drain_or_reboot_also_in_a_paused_pool() {
    let files = [("/etc/kubernetes/kubelet-ca.crt", "of-the-config")];
    let mut fleet = Fleet::new(&files, Drains::Ignored).await;
    let pools: Api<MachineConfigPool> = Api::all(fleet.client.clone());
    let pause = Patch::Merge(json!({"spec": {"paused": true}}));
    pools.patch("worker", &PatchParams::default(), &pause).await.unwrap();
    let spec = json!({
        "kubeAPIServerServingCAData": base64("first"),
        "cloudProviderCAData": base64("cloud\n"),
        "internalRegistryPullSecret": base64(r#"{"auths":{}}"#),
        "imageRegistryBundleData": [{"file": "r.example..5000", "data": base64("registry")}],
    });
    let version = configure(&fleet, false, spec).await;
    fleet.start();
    fleet.wait(&format!("state=Done, lastSyncedControllerConfigResourceVersion={version}")).await;
    let boot = fleet.boot_id();
    let cloud = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
    let secret = "/etc/mco/internal-registry-pull-secret.json";
    let registry = "/etc/docker/certs.d/r.example:5000/ca.crt";
    let want = [
        ("/etc/kubernetes/kubelet-ca.crt", "first\n"),
        (cloud, "cloud\n"),
        (secret, r#"{"auths":{}}"#),
        (registry, "registry\n"),
    ];
    for (path, text) in want {
        assert_eq!(fleet.text(path).as_deref(), Some(text), "{path}");
    }
    let spec = json!({
        "kubeAPIServerServingCAData": base64("second"), "imageRegistryBundleData": null,
    });
    let version = configure(&fleet, false, spec).await;
    let done = format!("state=Done, lastSyncedControllerConfigResourceVersion={version}");
    let annotations = fleet.wait(&done).await;
    assert_eq!(fleet.text("/etc/kubernetes/kubelet-ca.crt").as_deref(), Some("second\n"));
    assert_eq!(fleet.text(registry), None);
    assert!(!annotations.contains_key("machineconfiguration.openshift.io/desiredDrain"));
    assert_eq!(fleet.boot_id(), boot);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_machine_that_is_managed_again_gets_new_certificates() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let version = configure(&fleet, false, json!({})).await;
    fleet.start();
    fleet.wait(&format!("state=Done, lastSyncedControllerConfigResourceVersion={version}")).await;
    fleet.annotate("recover", "forget").await;
    fleet.wait("recover=forgotten").await;
    assert!(!fleet.path("/etc/machine-config-daemon/currentconfig").exists());
    let spec = json!({"kubeAPIServerServingCAData": base64("second")});
    let version = configure(&fleet, false, spec).await;
    let annotations = json!({"machineconfiguration.openshift.io/recover": null});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    fleet.nodes.patch("worker-0", &PatchParams::default(), &patch).await.unwrap();
    fleet.wait(&format!("state=Done, lastSyncedControllerConfigResourceVersion={version}")).await;
    assert_eq!(fleet.text("/etc/kubernetes/kubelet-ca.crt").as_deref(), Some("second\n"));
    fleet.stop().await;
}

// covers: C103
#[tokio::test(flavor = "multi_thread")]
async fn new_authorities_of_the_api_server_restart_the_kubelet_unless_they_can_wait() {
    let mut fleet = Fleet::new(&[], Drains::Ignored).await;
    let old = authority("old");
    let kubeconfig = json!({"clusters": [{"cluster": {
        "certificate-authority-data": base64(&old), "server": "https://a"}}]});
    for path in ["/etc/kubernetes/kubeconfig", "/var/lib/kubelet/kubeconfig"] {
        fs::create_dir_all(fleet.path(path).parent().unwrap()).unwrap();
        fs::write(fleet.path(path), kubeconfig.to_string()).unwrap();
    }
    let maps: Api<ConfigMap> = Api::namespaced(fleet.client.clone(), label::NAMESPACE);
    let bundle = |text: &str| -> ConfigMap {
        let data = json!({"ca-bundle.crt": text});
        serde_json::from_value(json!({"metadata": {"name": "kubeconfig-data"}, "data": data}))
            .unwrap()
    };
    let patient = authority("kube-apiserver-lb-signer");
    let both = format!("{old}{patient}");
    maps.create(&PostParams::default(), &bundle(&both)).await.unwrap();
    let journal = fleet.start_watched().await;
    let version = configure(&fleet, true, json!({})).await;
    let synced = |version: &str, observed: bool| {
        format!(
            "lastSyncedControllerConfigResourceVersion={version}, \
             lastObservedServerCAAnnotation={observed}"
        )
    };
    fleet.wait(&synced(&version, true)).await;
    let first = fleet.text("/etc/kubernetes/kubeconfig").unwrap();
    assert_ne!(first, kubeconfig.to_string(), "the new CA is trusted");
    let restarts =
        || journal.calls().iter().filter(|call| *call == "restart kubelet.service").count();
    assert_eq!(restarts(), 0, "this signer can wait");

    let version = configure(&fleet, false, json!({})).await;
    fleet.wait(&synced(&version, false)).await;
    let patch = Patch::Merge(bundle(&format!("{both}{}", authority("new"))));
    maps.patch("kubeconfig-data", &PatchParams::default(), &patch).await.unwrap();
    let version = configure(&fleet, true, json!({})).await;
    fleet.wait(&synced(&version, true)).await;
    assert_eq!(restarts(), 1);
    let kubelet = fleet.text("/var/lib/kubelet/kubeconfig").unwrap();
    assert_eq!(fleet.text("/etc/kubernetes/kubeconfig"), Some(kubelet));
    fleet.stop().await;
}

// covers: C103
#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_restart_runs_once_the_api_server_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let (place, any) = (folder.path().join("api"), "127.0.0.1:0".parse().unwrap());
    let listener = Listener::bind(api, &place, any).await.unwrap();
    let url = format!("https://{}", listener.address());
    tokio::spawn(listener.serve(std::future::pending()));
    let stranger = Authority::new("stranger").unwrap();
    let user = stranger.user("system:node:worker-0", None).unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, stranger.kubeconfig(&url, Credentials::Certificate(&user))).unwrap();
    let client = client::connect(Some(&kubeconfig)).await.unwrap();

    let path = folder.path().join("machine");
    let root = Root::create(&path).unwrap();
    SimulatedSystem::write_base_files(&root).unwrap();
    let own = "/var/lib/kubelet/kubeconfig";
    for (file, text) in [
        ("/etc/kubernetes/kubeconfig", "with the new authorities"),
        (own, "with the old authorities"),
        ("/etc/machine-config-daemon/mco-kubelet-restart-deferred", ""),
    ] {
        root.write(file, text.as_bytes(), 0o600).unwrap();
    }
    let host =
        Host { root: root.try_clone().unwrap(), system: SimulatedSystem::open(&root).unwrap() };
    let journal = host.system.call_log();
    let reporter = Reporter::new(client.clone(), "machineconfigdaemon", NoteCount::default());
    let around = DaemonContext::new(client, reporter);
    let daemon =
        mco_daemon::run("worker-0".parse().unwrap(), host, around, mco_cluster::Shutdown::new());
    // Plays the kubelet: without credentials it requests new ones.
    let kubelet = async {
        loop {
            let mut watch = Watch::new(&root, [own].into_iter()).unwrap();
            if !root.exists(own).unwrap() {
                return root.write(own, b"bootstrapped again", 0o600).unwrap();
            }
            watch.changed().await.unwrap();
        }
    };
    let both = async { tokio::join!(daemon, kubelet) };
    let (ended, ()) = tokio::time::timeout(PATIENCE, both).await.expect("the daemon stops");
    assert_eq!(ended, mco_daemon::DaemonExit::Stopped);
    assert_eq!(journal.calls(), ["restart kubelet.service"]);
    assert_eq!(root.read(own).unwrap().as_deref(), Some(b"bootstrapped again".as_slice()));
    let records = root.list("/etc/machine-config-daemon").unwrap();
    assert!(!records.iter().any(|name| name.contains("deferred")), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_written_degrade_the_node_until_they_can() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.start();
    fleet.wait("state=Done").await;
    // A file in place of the directory.
    fs::write(fleet.path("/etc/docker"), "").unwrap();
    let registry = json!([{"file": "r.example", "data": base64("secret words")}]);
    configure(&fleet, false, json!({"imageRegistryBundleData": registry})).await;
    let degraded = fleet.wait("state=Degraded, reason~certificates are not up to date: ").await;
    let reason = &degraded["machineconfiguration.openshift.io/reason"];
    assert!(reason.contains("/etc/docker") && !reason.contains("secret words"), "{reason}");
    fs::remove_file(fleet.path("/etc/docker")).unwrap();
    fleet.wait("state=Done, reason=").await;
    assert!(fleet.text("/etc/docker/certs.d/r.example/ca.crt").is_some());
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ssh_login_is_annotated_on_the_node() {
    let mut fleet = Fleet::new(&[], Drains::Ignored).await;
    let sessions = fleet.path("/run/systemd/sessions");
    fs::create_dir_all(&sessions).unwrap();
    fleet.adopt();
    fleet.wait("state=Done").await;
    fs::write(sessions.join("1"), "UID=0\nSERVICE=login\n").unwrap();
    fs::write(sessions.join("2"), "UID=0\nSERVICE=sshd\nREMOTE=1\n").unwrap();
    fleet.wait("ssh=accessed").await;
    fleet.stop().await;
}
