//! A join on a directory: every step can be repeated, and leaves what an Ignition boot leaves.

use std::sync::Arc;

use mco_core::served_config;
use mco_host::{
    Root, SimulatedSystem,
    fault::{Fault, Faults},
};
use mco_ignition::data_url;
use serde_json::json;

use super::*;
use crate::program::Program;

const MARKER: &str = "abcdefgh.MARKER0123456789";

/// Returns a directory in memory if there is one: the tests write much and need no durability.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn document(spec: &serde_json::Value) -> Vec<u8> {
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [
            {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,1"}},
            {"path": "/etc/sysctl.d/a.conf", "mode": 420, "contents": {"source": "data:,1"}},
        ]},
        "systemd": {"units": [{"name": "kubelet.service", "enabled": true,
            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]},
    });
    let mut spec = spec.clone();
    spec["config"] = config.clone();
    let name = "rendered-worker-00000000000000000000000000000001";
    let served = json!({"metadata": {"name": name}, "spec": spec});
    let annotations = json!({"machineconfiguration.openshift.io/currentConfig": name});
    let mut document = config;
    let files = document["storage"]["files"].as_array_mut().unwrap();
    for (path, text) in [
        ("/etc/machine-config-daemon/node-annotations.json", annotations.to_string()),
        ("/etc/kubernetes/kubeconfig", "token: bootstrap".to_owned()),
        ("/etc/mcs-machine-config-content.json", served.to_string()),
        ("/etc/ignition-machine-config-encapsulated.json", "{}".to_owned()),
    ] {
        let source = data_url::encode(text.as_bytes());
        files.push(json!({"path": path, "mode": 420, "contents": {"source": source}}));
    }
    document.to_string().into_bytes()
}

fn served(spec: &serde_json::Value) -> ServedConfig {
    served_config::read(&document(spec)).unwrap()
}

fn machine(root: Root) -> Host<SimulatedSystem> {
    SimulatedSystem::write_base_files(&root).unwrap();
    let mut system = SimulatedSystem::open(&root).unwrap();
    system.boot().unwrap();
    Host { root, system }
}

fn record() -> JoinRecord {
    JoinRecord {
        server: "https://10.0.0.1:22623".to_owned(),
        pool: "worker".to_owned(),
        ca: Some("pem".to_owned()),
        ca_sha256: None,
        token: Some(MARKER.to_owned()),
        node: "m4".to_owned(),
        is_renamed: false,
        join_id: "1".to_owned(),
        stage: JoinStage::Applying,
        rebooted_from: String::new(),
        reboots: 0,
    }
}

fn joined(host: &Host<SimulatedSystem>) {
    let mode = |path: &str| host.root.stat(path).unwrap().unwrap().mode & 0o7777;
    assert_eq!(mode("/etc/kubernetes/kubeconfig"), 0o600);
    assert_eq!(host.root.read("/etc/a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(disk::initial_annotations(&host.root).unwrap().is_some());
    assert!(!host.root.exists(disk::ENCAPSULATED).unwrap());
    let current = disk::current_config(&host.root).unwrap().unwrap();
    let current = Machine::read(&current).unwrap();
    assert!(current.file("/etc/a").is_some());
    assert!(current.file("/etc/kubernetes/kubeconfig").is_none(), "not of the pool's config");
    assert!(ledger::open(&host.root).unwrap().is_none());
}

#[test]
fn a_machine_gets_what_an_ignition_boot_leaves() {
    let folder = folder();
    let mut host = machine(Root::open(folder.path()).unwrap());
    let served = served(&json!({}));
    hold(&mut host).unwrap();
    assert!(host.root.exists("/etc/systemd/system/kubelet.service.d/00-mco-join.conf").unwrap());
    for _ in 0..2 {
        assert_eq!(apply(&mut host, &served, &mut |_| {}).unwrap(), Applied::Complete);
        joined(&host);
    }
    release(&host.root).unwrap();
    assert!(!host.root.exists("/etc/systemd/system/kubelet.service.d").unwrap());
    set_node_name(&host, "other").unwrap();
    let text = host.root.read(KUBELET_ENVIRONMENT).unwrap().unwrap();
    assert_eq!(text, b"KUBELET_NODE_NAME=other\n");
    let mut warnings = Vec::new();
    host.system.call_log().fail("restart systemd-sysctl.service");
    let mut warn = |unit: &str, _: &SystemError| warnings.push(unit.to_owned());
    start_units(&mut host, &served, &mut warn).unwrap();
    assert_eq!(warnings, ["systemd-sysctl.service"]);
    assert!(host.system.call_log().calls().contains(&"restart kubelet.service".to_owned()));
    host.system.call_log().fail("restart kubelet.service");
    assert!(start_units(&mut host, &served, &mut |_, _| {}).is_err());
}

#[test]
fn a_crash_at_any_change_of_the_disk_is_survived() {
    let mut point = 1;
    loop {
        let folder = folder();
        drop(machine(Root::open(folder.path()).unwrap()));
        let faults = Arc::new(Faults::at(point, Fault::Crash));
        let root = Root::open(folder.path()).unwrap().with_faults(faults);
        let system = SimulatedSystem::open(&Root::open(folder.path()).unwrap()).unwrap();
        let mut host = Host { root, system };
        let served = served(&json!({}));
        let first = hold(&mut host).and_then(|()| apply(&mut host, &served, &mut |_| {}));
        drop(host);
        let root = Root::open(folder.path()).unwrap();
        let mut system = SimulatedSystem::open(&root).unwrap();
        system.boot().unwrap();
        let mut host = Host { root, system };
        hold(&mut host).unwrap();
        let again = apply(&mut host, &served, &mut |_| {});
        assert_eq!(again.unwrap(), Applied::Complete, "crash at change {point}");
        joined(&host);
        if first.is_ok() {
            assert!(point > 10, "only {point} changes");
            return;
        }
        point += 1;
    }
}

#[test]
fn an_operating_system_needs_a_reboot() {
    let folder = folder();
    let mut host = machine(Root::open(folder.path()).unwrap());
    host.system.stage_os("image-1").unwrap();
    host.system.boot().unwrap();
    let served = served(&json!({"osImageURL": "image-2", "kernelArguments": ["nosmt"]}));
    assert_eq!(apply(&mut host, &served, &mut |_| {}).unwrap(), Applied::RebootDue);
    assert!(!has_booted(&host, &served).unwrap());
    host.system.boot().unwrap();
    assert!(has_booted(&host, &served).unwrap());
}

#[test]
fn a_machine_without_a_kubelet_is_refused() {
    let folder = folder();
    let host = machine(Root::open(folder.path()).unwrap());
    let mut without = served(&json!({}));
    without.has_kubeconfig = false;
    assert!(matches!(plan(&host, &without), Err(JoinError::NoKubeconfig { .. })));
    without.units.clear();
    for folder in ["/etc", "/usr/lib"] {
        host.root.remove(&format!("{folder}/systemd/system/kubelet.service")).unwrap();
    }
    assert!(matches!(plan(&host, &without), Err(JoinError::NoKubelet { .. })));
}

#[test]
fn only_root_reads_the_record_and_the_token_is_forgotten() {
    let folder = folder();
    let mut host = machine(Root::open(folder.path()).unwrap());
    save(&host.root, &record()).unwrap();
    keep_document(&host.root, b"{}").unwrap();
    assert!(!format!("{:?}", load(&host.root).unwrap()).contains("MARKER"));
    for path in [RECORD, "/var/lib/machine-config-daemon/join/config.ign"] {
        let mode = host.root.stat(path).unwrap().unwrap().mode & 0o7777;
        assert_eq!(mode, 0o600, "{path}");
    }
    let program = Program::new(folder.path().join("etc/os-release"), "");
    host.root.write("/etc/os-release", b"ID=a", 0o644).unwrap();
    install(&host.root, &program).unwrap();
    let link = "/etc/systemd/system/multi-user.target.wants/mco-join.service";
    assert!(host.root.stat(link).unwrap().is_some());
    let kept = load(&host.root).unwrap();
    finish(&mut host, kept.as_ref()).unwrap();
    let left = host.root.read(RECORD).unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&left).contains("MARKER"));
    assert_eq!(load(&host.root).unwrap().unwrap().stage, JoinStage::Joined);
    assert!(host.root.stat(link).unwrap().is_none());
    assert_eq!(host.root.list("/var/lib/machine-config-daemon/join").unwrap(), ["join.json"]);
    finish(&mut host, None).unwrap();
    assert!(load(&host.root).unwrap().is_none());
}
