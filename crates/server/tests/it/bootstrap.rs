//! Tests of a server that reads its configs from the disk.

use std::path::Path;

use mco_cluster::Clock;
use mco_ignition::data_url;
use mco_server::{
    BootstrapSource, Source,
    source::{BootstrapSettings, tls_policy},
};
use rustls::version::{TLS12, TLS13};
use serde_json::Value;

use crate::{
    client::{Reply, Tls, plain, request, tls},
    fixture::{Running, start},
};

const POOL: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: master
spec:
  configuration:
    name: rendered-master-new
status:
  updatedMachineCount: 3
  configuration:
    name: rendered-master-old
";

const CONFIG: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: rendered-master-old
spec:
  kernelArguments:
  - nosmt
  config:
    ignition:
      version: 3.5.0
    storage:
      files:
      - path: /etc/motd
        mode: 0644
        contents:
          source: data:,hello
";

const CONTROLLER: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: ControllerConfig
metadata:
  name: machine-config-controller
spec:
  kubeAPIServerServingCAData: Y2E=
";

const KUBECONFIG: &str = "clusters:\n- name: local # byte for byte\n";

/// Writes the files of `mco controller bootstrap`, and a kubeconfig.
fn files(folder: &Path) {
    for name in ["machine-pools", "machine-configs", "controller-config", "certs", "api-server"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    write(folder, "machine-pools/master.yaml", POOL);
    write(folder, "machine-configs/rendered-master-old.yaml", CONFIG);
    write(folder, "controller-config/machine-config-controller.yaml", CONTROLLER);
    write(folder, "kubeconfig", KUBECONFIG);
    write(folder, "certs/bar.crt", "--bar--");
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

fn settings(folder: &Path) -> BootstrapSettings {
    BootstrapSettings {
        folder: folder.to_owned(),
        kubeconfig: folder.join("kubeconfig"),
        registry_cas: vec!["foo:5000=certs/bar.crt".parse().unwrap()],
    }
}

async fn serve(folder: &Path) -> Running {
    let source = BootstrapSource::open(settings(folder), Clock::System).await.unwrap();
    start(source, |_| {}).await
}

async fn ask(server: &Running, path: &str) -> Reply {
    let accept = ["application/vnd.coreos.ignition+json;version=3.2.0"];
    plain(server.plain, request("GET", path, &accept)).await
}

fn decoded(document: &Value) -> Vec<(String, String)> {
    let files = document["storage"]["files"].as_array().unwrap();
    let decode = |file: &Value| {
        let source = file["contents"]["source"].as_str().unwrap();
        let text = String::from_utf8(data_url::decode(source).unwrap()).unwrap();
        (file["path"].as_str().unwrap().to_owned(), text)
    };
    files.iter().map(decode).collect()
}

// covers: S42, S43, S44
#[tokio::test]
async fn the_control_plane_is_served_from_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let server = serve(folder.path()).await;

    let reply = ask(&server, "/config/master").await;
    assert_eq!(reply.status.as_u16(), 200, "{reply:?}");
    let found = decoded(&reply.json());
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let expected = [
        "/etc/motd",
        "/etc/kubernetes/kubelet-ca.crt",
        "/etc/machine-config-daemon/node-annotations.json",
        "/etc/kubernetes/kubeconfig",
        "/etc/mcs-machine-config-content.json",
        "/etc/docker/certs.d/foo:5000/ca.crt",
        "/etc/ignition-machine-config-encapsulated.json",
    ];
    assert_eq!(paths, expected);
    let text = |at: usize| found[at].1.as_str();
    assert_eq!((text(0), text(1), text(3), text(5)), ("hello", "ca", KUBECONFIG, "--bar--"));
    assert!(text(2).contains("rendered-master-old"), "{}", text(2));
    // Compat: the newest version, though the machine asked for 3.2.
    assert!(text(6).contains(r#""config":{"ignition":{"version":"3.5.0"}}"#), "{}", text(6));

    for pool in ["worker", "infra"] {
        let reply = ask(&server, &format!("/config/{pool}")).await;
        let reason = format!("Refusing to serve bootstrap configuration to pool \"{pool}\".");
        assert_eq!(reply.status.as_u16(), 503);
        assert_eq!(reply.header("mco-reason"), Some(reason.as_str()));
    }
    let arbiter = ask(&server, "/config/arbiter").await;
    assert_eq!(arbiter.header("mco-reason"), Some("Pool \"arbiter\" does not exist."));
    write(folder.path(), "machine-pools/arbiter.yaml", &POOL.replace("master\n", "arbiter\n"));
    assert_eq!(ask(&server, "/config/arbiter").await.status.as_u16(), 200);
    server.stop().await;
}

// covers: S43
#[tokio::test]
async fn changed_and_missing_files_are_noticed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let server = serve(folder.path()).await;
    let first = ask(&server, "/config/master").await;
    assert_eq!(first.status.as_u16(), 200);

    write(
        folder.path(),
        "machine-configs/rendered-master-old.yaml",
        &CONFIG.replace("hello", "howdy"),
    );
    let changed = ask(&server, "/config/master").await;
    assert_eq!(decoded(&changed.json())[0].1, "howdy");

    let rows = [
        ("controller-config/machine-config-controller.yaml", 503),
        ("machine-configs/rendered-master-old.yaml", 503),
        ("machine-pools/master.yaml", 503),
        ("certs/bar.crt", 503),
        ("kubeconfig", 503),
    ];
    for (name, status) in rows {
        let (path, aside) = (folder.path().join(name), folder.path().join("aside"));
        std::fs::rename(&path, &aside).unwrap();
        let reply = ask(&server, "/config/master").await;
        assert_eq!((reply.status.as_u16(), reply.body.len()), (status, 0), "{name} is missing");
        std::fs::rename(&aside, &path).unwrap();
        let reply = ask(&server, "/config/master").await;
        assert_eq!(reply.status.as_u16(), 200, "{name} is back: {reply:?}");
    }
    let rows = [
        ("machine-pools/master.yaml", "a: [", "is not valid YAML"),
        ("machine-configs/rendered-master-old.yaml", "spec: 3\n", "wrong type"),
        ("kubeconfig", "clusters: []\n", "has no clusters"),
    ];
    for (name, text, reason) in rows {
        let before = std::fs::read_to_string(folder.path().join(name)).unwrap();
        write(folder.path(), name, text);
        let reply = ask(&server, "/config/master").await;
        let found = reply.header("mco-reason").unwrap();
        assert_eq!(reply.status.as_u16(), 500, "{name}: {found}");
        assert!(found.contains(reason), "{name}: {found}");
        write(folder.path(), name, &before);
    }
    assert_eq!(ask(&server, "/config/master").await.body, changed.body);
    server.stop().await;
}

// covers: S42
#[tokio::test]
async fn a_kubeconfig_is_required_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    std::fs::remove_file(folder.path().join("kubeconfig")).unwrap();
    let error = BootstrapSource::open(settings(folder.path()), Clock::System).await.unwrap_err();
    let expected = format!("failed to read {}/kubeconfig", folder.path().display());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn unchanged_files_are_not_parsed_again() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let source = BootstrapSource::open(settings(folder.path()), Clock::System).await.unwrap();
    let (first, again) =
        (source.inputs("master").await.unwrap(), source.inputs("master").await.unwrap());
    assert!(std::sync::Arc::ptr_eq(&first.config, &again.config));
    assert!(first.is_same(&again), "the document is built once");
}

// covers: S45
#[tokio::test]
async fn the_tls_profile_of_the_api_server_applies() {
    let rows = [
        (None, true),
        (Some("spec:\n  tlsSecurityProfile:\n    type: Modern\n    modern: {}\n"), false),
        (Some("spec:\n  tlsSecurityProfile:\n    type: Old\n    old: {}\n"), true),
        (Some("spec: {}\n"), true),
        (Some("a: ["), true),
    ];
    for (api_server, old_is_fine) in rows {
        let folder = tempfile::tempdir().unwrap();
        files(folder.path());
        if let Some(text) = api_server {
            write(folder.path(), "api-server/api-server.yaml", text);
        }
        let policy = tls_policy(folder.path()).await;
        let source = BootstrapSource::open(settings(folder.path()), Clock::System).await.unwrap();
        let server = start(source, |settings| settings.policy = policy).await;
        for (version, accepted) in [(&TLS12, old_is_fine), (&TLS13, true)] {
            let wish = Tls { versions: vec![version], ..tls(server.authority.roots()) };
            let stream = wish.connect(server.secure).await;
            assert_eq!(stream.is_ok(), accepted, "{api_server:?}: {version:?}");
        }
        server.stop().await;
    }
}
