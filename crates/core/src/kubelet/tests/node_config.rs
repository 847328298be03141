//! Tests of the settings of nodes and of features.

use super::*;
use mco_api::MachineConfigSpec;

fn cluster(node: Option<Value>, features: Option<Value>) -> ClusterSettings {
    let object = |spec: Value| json!({"metadata": {"name": "cluster"}, "spec": spec});
    ClusterSettings {
        node: node.map(|spec| serde_json::from_value(object(spec)).unwrap()),
        feature_gate: features.map(|spec| serde_json::from_value(object(spec)).unwrap()),
        ..ClusterSettings::default()
    }
}

fn with<T>(
    settings: &ClusterSettings,
    name: &str,
    base: Option<&MachineConfig>,
    run: impl Fn(&Inputs<'_>) -> T,
) -> T {
    let pool = pool(name);
    let latency = latency_profile(settings.node.as_ref()).unwrap_or_default();
    run(&Inputs { pool: &pool, base, settings, version: "4.20", latency })
}

fn field(spec: &MachineConfigSpec, path: &str, field: &str) -> Value {
    let config = MachineConfig::new("x", spec.clone());
    let text = generated::file_of(&config, path).expect("the file is there");
    let text = String::from_utf8(text).unwrap();
    crate::yaml::documents(&text).unwrap().remove(0)[field].clone()
}

// covers: KUB-14
#[test]
fn the_latency_profile_applies_to_workers_only() {
    let base = base();
    let frequency = |profile: &str, pool: &str| {
        let settings = cluster(Some(json!({"workerLatencyProfile": profile})), None);
        let spec = with(&settings, pool, Some(&base), node_config).unwrap().unwrap();
        field(&spec, CONFIGURATION, "nodeStatusUpdateFrequency")
    };
    assert_eq!(frequency("", "worker"), "10s");
    assert_eq!(frequency("Default", "worker"), "10s");
    assert_eq!(frequency("MediumUpdateAverageReaction", "worker"), "20s");
    assert_eq!(frequency("LowUpdateSlowReaction", "worker"), "1m0s");
    assert_eq!(frequency("LowUpdateSlowReaction", "infra"), "10s");
    let unknown = cluster(Some(json!({"workerLatencyProfile": "Fast"})), None);
    assert_eq!(
        latency_profile(unknown.node.as_ref()).unwrap_err().to_string(),
        "unknown worker latency profile type found Fast, failed to update the original kubelet \
         configuration"
    );
}

#[test]
fn a_change_of_the_latency_profile_takes_one_step_at_a_time() {
    use LatencyProfile::{Default, Low, Medium, Unset};
    for (from, to) in [(Unset, Low), (Default, Low), (Low, Default), (Low, Unset)] {
        assert!(!is_transition_allowed(from, to), "{from:?} to {to:?}");
    }
    for (from, to) in [(Default, Medium), (Medium, Low), (Low, Medium), (Unset, Default)] {
        assert!(is_transition_allowed(from, to), "{from:?} to {to:?}");
    }
    let base = base();
    for (profile, expected) in [("LowUpdateSlowReaction", Low), ("Default", Default)] {
        let settings = cluster(Some(json!({"workerLatencyProfile": profile})), None);
        for base in [Some(&base), None] {
            let spec = with(&settings, "worker", base, node_config).unwrap().unwrap();
            let config = MachineConfig::new("97-worker-generated-kubelet", spec);
            assert_eq!(applied_latency(Some(&config)), Some(expected));
        }
    }
    assert_eq!(applied_latency(None), None);
}

// covers: KUB-15
#[test]
fn nodes_use_version_2_of_control_groups() {
    let base = base();
    let expected = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];
    for mode in ["", "v2"] {
        let settings = cluster(Some(json!({"cgroupMode": mode})), None);
        for pool in ["worker", "master", "arbiter"] {
            let spec = with(&settings, pool, Some(&base), node_config).unwrap().unwrap();
            assert_eq!(spec.kernel_arguments, expected);
        }
        let custom = with(&settings, "infra", Some(&base), node_config).unwrap().unwrap();
        assert!(custom.kernel_arguments.is_empty());
    }
    let old = cluster(Some(json!({"cgroupMode": "v1"})), None);
    assert_eq!(
        with(&old, "worker", Some(&base), node_config).unwrap_err().to_string(),
        "unknown cgroup mode found v1, failed to update the machine config resource"
    );
}

// covers: KUB-12
#[test]
fn features_are_in_every_generated_file() {
    let base = base();
    let custom = json!({"customNoUpgrade": {"enabled": ["A"], "disabled": ["B"]}});
    let mut settings = cluster(Some(json!({})), Some(custom));
    let expected = json!({"A": true, "B": false});
    let of_features = with(&settings, "worker", Some(&base), features).unwrap().unwrap();
    assert_eq!(field(&of_features, CONFIGURATION, "featureGates"), expected);
    let of_node = with(&settings, "worker", Some(&base), node_config).unwrap().unwrap();
    assert_eq!(field(&of_node, CONFIGURATION, "featureGates"), expected);
    let made = |settings: &ClusterSettings| {
        with(settings, "worker", Some(&base), |inputs| generate(&config(json!({})), inputs, ""))
    };
    assert_eq!(parsed(&made(&settings).unwrap())["featureGates"], expected);
    // The status has the features of each version of the cluster.
    let status = json!({"featureGates": [
        {"version": "4.19", "enabled": [{"name": "C"}]},
        {"version": "4.20", "enabled": [{"name": "D"}], "disabled": [{"name": "C"}]},
    ]});
    settings.feature_gate.as_mut().unwrap().status = serde_json::from_value(status).unwrap();
    let expected = json!({"C": false, "D": true});
    assert_eq!(parsed(&made(&settings).unwrap())["featureGates"], expected);
}

#[test]
fn a_cluster_without_settings_has_no_generated_configs_of_its_own() {
    let base = base();
    let without = cluster(None, None);
    assert_eq!(with(&without, "worker", Some(&base), node_config), Ok(None));
    assert_eq!(with(&without, "worker", Some(&base), features), Ok(None));
    // Settings that change nothing on nodes of kubeadm change no node.
    let empty = cluster(Some(json!({})), Some(json!({})));
    assert_eq!(with(&empty, "worker", None, node_config), Ok(None));
    assert_eq!(with(&empty, "worker", None, features), Ok(None));
    let low = json!({"workerLatencyProfile": "LowUpdateSlowReaction", "cgroupMode": "v2"});
    let some = cluster(Some(low), Some(json!({"customNoUpgrade": {"enabled": ["A"]}})));
    let node = with(&some, "worker", None, node_config).unwrap().unwrap();
    let path = "/etc/kubernetes/kubelet.conf.d/97-mco-node.conf";
    assert_eq!(field(&node, path, "nodeStatusUpdateFrequency"), "1m0s");
    assert_eq!(node.kernel_arguments.len(), 2);
    let gates = with(&some, "worker", None, features).unwrap().unwrap();
    let path = "/etc/kubernetes/kubelet.conf.d/98-mco-features.conf";
    assert_eq!(field(&gates, path, "featureGates"), json!({"A": true}));
    let server = json!({"metadata": {"name": "cluster"},
        "spec": {"tlsSecurityProfile": {"type": "Modern"}}});
    let modern = ClusterSettings {
        api_server: Some(serde_json::from_value(server).unwrap()),
        ..ClusterSettings::default()
    };
    let profile = with(&modern, "worker", None, node_config).unwrap().unwrap();
    let path = "/etc/kubernetes/kubelet.conf.d/97-mco-node.conf";
    assert_eq!(field(&profile, path, "tlsMinVersion"), "VersionTLS13");
    assert_eq!(with(&modern, "worker", Some(&base), node_config), Ok(None));
}
