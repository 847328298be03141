//! Tests of the settings of kubelets.

use k8s_openapi::jiff::Timestamp;
use mco_api::{KubeletConfig, MachineConfig, MachineConfigPool, meta::LooseCondition};
use serde_json::{Value, json};

use super::*;
use crate::{
    cluster_settings::ClusterSettings,
    generated::{self, GeneratedFile},
};

mod delivery;
mod node_config;

/// A base file of the workers.
const BASE: &str = "\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
maxPods: 250
protectKernelDefaults: true
systemCgroups: /system.slice
systemReservedCgroup: /system.slice
enforceNodeAllocatable: [pods, system-reserved-compressible]
nodeStatusUpdateFrequency: 10s
evictionHard: {memory.available: 100Mi}
tlsMinVersion: VersionTLS12
fieldOfANewerKubelet: {a: [1]}
";

fn config(spec: impl Into<Value>) -> KubeletConfig {
    let spec: Value = spec.into();
    serde_json::from_value(json!({"metadata": {"name": "k", "generation": 1}, "spec": spec}))
        .unwrap()
}

fn settings(fields: impl Into<Value>) -> KubeletConfig {
    let fields: Value = fields.into();
    config(json!({"kubeletConfig": fields}))
}

fn pool(name: &str) -> MachineConfigPool {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {}})).unwrap()
}

fn base() -> MachineConfig {
    MachineConfig::new(
        "01-worker-kubelet",
        generated::spec(&[GeneratedFile::new(CONFIGURATION, BASE)]),
    )
}

/// Generates the files for the pool `worker` over [`BASE`].
fn whole(config: &KubeletConfig) -> Result<Vec<GeneratedFile>, Refusal> {
    let (pool, base, settings) = (pool("worker"), base(), ClusterSettings::default());
    let latency = LatencyProfile::Unset;
    let inputs =
        Inputs { pool: &pool, base: Some(&base), settings: &settings, version: "", latency };
    generate(config, &inputs, "")
}

fn text_of(files: &[GeneratedFile], path: &str) -> String {
    let file = files.iter().find(|file| file.path == path);
    let file = file.unwrap_or_else(|| panic!("no {path} in {files:?}"));
    String::from_utf8(file.contents.clone()).unwrap()
}

/// Returns the configuration file as JSON.
fn parsed(files: &[GeneratedFile]) -> Value {
    crate::yaml::documents(&text_of(files, CONFIGURATION)).unwrap().remove(0)
}

fn refusal(config: &KubeletConfig) -> String {
    whole(config).expect_err("refused").to_string()
}

// covers: KUB-1
#[test]
fn settings_are_merged_over_the_base() {
    let fields = json!({"maxPods": 100, "evictionHard": {"nodefs.available": "5%"}});
    let merged = parsed(&whole(&settings(fields)).unwrap());
    assert_eq!(merged["maxPods"], 100);
    let thresholds = json!({"memory.available": "100Mi", "nodefs.available": "5%"});
    assert_eq!(merged["evictionHard"], thresholds);
    assert_eq!(merged["systemCgroups"], "/system.slice");
    assert_eq!(merged["kind"], "KubeletConfiguration");
    // The base may be for a newer kubelet than this build knows.
    assert_eq!(merged["fieldOfANewerKubelet"], json!({"a": [1]}));
}

// covers: KUB-2
#[test]
fn fields_of_the_cluster_cannot_be_set() {
    let rows = [
        (json!({"cgroupDriver": "systemd"}), "cgroupDriver", "systemd"),
        (json!({"clusterDNS": ["1.2.3.4", "1.2.3.5"]}), "clusterDNS", "[1.2.3.4 1.2.3.5]"),
        (json!({"clusterDomain": "x"}), "clusterDomain", "x"),
        (json!({"featureGates": {"B": false, "A": true}}), "featureGates", "map[A:true B:false]"),
        (json!({"failSwapOn": false}), "failSwapOn", "false"),
        (json!({"memorySwap": {"swapBehavior": "NoSwap"}}), "swapBehavior", "NoSwap"),
    ];
    for (fields, field, value) in rows {
        let expected = format!(
            "KubeletConfiguration: {field} is not allowed to be set, but contains: {value}"
        );
        assert_eq!(refusal(&settings(fields)), expected);
    }
    for fields in [json!({"clusterDNS": []}), json!({"featureGates": {}})] {
        whole(&settings(fields)).unwrap();
    }
}

// covers: KUB-3
#[test]
fn the_log_level_becomes_a_drop_in_of_the_unit() {
    let files = whole(&config(json!({"logLevel": 5}))).unwrap();
    assert_eq!(text_of(&files, LOGGING), "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=5\"\n");
    for level in [-1, 11] {
        let expected = format!("KubeletConfig's LogLevel is not valid [0,10]: {level}");
        assert_eq!(refusal(&config(json!({"logLevel": level}))), expected);
    }
}

// covers: KUB-4
#[test]
fn reservations_are_given_or_derived_from_the_size_of_the_node() {
    for on in [true, false] {
        let files = whole(&config(json!({"autoSizingReserved": on}))).unwrap();
        let expected = format!(
            "NODE_SIZING_ENABLED={on}\nSYSTEM_RESERVED_MEMORY=1Gi\nSYSTEM_RESERVED_CPU=500m\n\
             SYSTEM_RESERVED_ES=1Gi\n"
        );
        assert_eq!(text_of(&files, NODE_SIZING), expected);
    }
    let both =
        json!({"autoSizingReserved": true, "kubeletConfig": {"systemReserved": {"cpu": "1"}}});
    assert_eq!(
        refusal(&config(both)),
        "KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together"
    );
    assert!(!whole(&config(json!({}))).unwrap().iter().any(|file| file.path == NODE_SIZING));
}

// covers: KUB-5
#[test]
fn reservations_go_to_the_service_of_node_sizing() {
    let fields = json!({"systemReserved": {"memory": "2Gi", "pid": "100"}});
    let files = whole(&settings(fields)).unwrap();
    assert_eq!(
        text_of(&files, NODE_SIZING),
        "NODE_SIZING_ENABLED=false\nSYSTEM_RESERVED_MEMORY=2Gi\nSYSTEM_RESERVED_CPU=500m\n\
         SYSTEM_RESERVED_ES=1Gi\n"
    );
    assert_eq!(parsed(&files)["systemReserved"], json!({"pid": "100"}));
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [NODE_SIZING, CONFIGURATION]);
}

// covers: KUB-6
#[test]
fn the_cgroup_of_system_daemons_fits_the_enforcements() {
    let slice = json!("/system.slice");
    let rows = [
        // settings, systemReservedCgroup, enforceNodeAllocatable
        (json!({}), slice.clone(), json!(["pods", "system-reserved-compressible"])),
        (json!({"enforceNodeAllocatable": ["pods"]}), Value::Null, json!(["pods"])),
        (
            json!({"enforceNodeAllocatable": ["pods", "system-reserved"]}),
            slice.clone(),
            json!(["pods", "system-reserved"]),
        ),
        (
            json!({"enforceNodeAllocatable": ["pods"], "systemReservedCgroup": "/system.slice"}),
            slice,
            json!(["pods"]),
        ),
        (
            json!({"reservedSystemCPUs": "0-1", "enforceNodeAllocatable": ["system-reserved", "kube-reserved"]}),
            Value::Null,
            json!(["pods", "kube-reserved"]),
        ),
        (json!({"reservedSystemCPUs": "0"}), Value::Null, json!(["pods"])),
    ];
    for (fields, cgroup, enforced) in rows {
        let merged = parsed(&whole(&settings(fields.clone())).unwrap());
        assert_eq!(merged["systemReservedCgroup"], cgroup, "{fields}");
        assert_eq!(merged["enforceNodeAllocatable"], enforced, "{fields}");
    }
    assert_eq!(
        refusal(&settings(json!({"systemReservedCgroup": "/a", "systemCgroups": "/b"}))),
        "KubeletConfiguration: systemReservedCgroup (/a) must match systemCgroups (/b)"
    );
    assert_eq!(
        refusal(&settings(json!({"systemCgroups": "/b"}))),
        "invalid merged configuration: systemReservedCgroup (/system.slice) must match \
         systemCgroups (/b)"
    );
}

// covers: KUB-7
#[test]
fn the_path_of_static_pods_stays() {
    let check = |path: &str, pool: &MachineConfigPool| {
        let checked = check_static_pod_path(&settings(json!({"staticPodPath": path})), pool);
        checked.map_err(|refusal| refusal.to_string())
    };
    let of_masters = |operator: &str| -> MachineConfigPool {
        let key = "node-role.kubernetes.io/master";
        let selector = json!({"matchExpressions": [{"key": key, "operator": operator}]});
        let spec = json!({"nodeSelector": selector});
        serde_json::from_value(json!({"metadata": {"name": "cp"}, "spec": spec})).unwrap()
    };
    for pool in [pool("master"), pool("arbiter"), of_masters("Exists")] {
        let expected = format!(
            "KubeletConfiguration: staticPodPath is not allowed to be set for control plane pool {:?}",
            pool.metadata.name.as_deref().unwrap()
        );
        assert_eq!(check("", &pool), Err(expected));
    }
    for pool in [pool("worker"), pool("infra"), of_masters("DoesNotExist")] {
        assert_eq!(check("", &pool), Ok(()));
        assert!(check("/x", &pool).unwrap_err().contains("staticPodPath must be empty for pool"));
    }
    check_static_pod_path(&settings(json!({})), &pool("master")).unwrap();
}

// covers: KUB-13
#[test]
fn the_profile_of_the_config_wins_over_that_of_the_api_server() {
    let server = json!({"metadata": {"name": "cluster"}, "spec": {"tlsSecurityProfile": {"type": "Modern"}}});
    let settings = ClusterSettings {
        api_server: Some(serde_json::from_value(server).unwrap()),
        ..ClusterSettings::default()
    };
    let (pool, base) = (pool("worker"), base());
    let latency = LatencyProfile::Unset;
    let inputs =
        Inputs { pool: &pool, base: Some(&base), settings: &settings, version: "", latency };
    let version = |spec: Value| {
        let merged = parsed(&generate(&config(spec), &inputs, "").unwrap());
        let ciphers = merged["tlsCipherSuites"].as_array().map_or(0, Vec::len);
        (merged["tlsMinVersion"].as_str().unwrap().to_owned(), ciphers)
    };
    assert_eq!(version(json!({})), ("VersionTLS13".to_owned(), 3));
    let old = json!({"tlsSecurityProfile": {"type": "Old"}});
    assert_eq!(version(old), ("VersionTLS10".to_owned(), 21));
    let custom = json!({"ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "bogus"], "minTLSVersion": "VersionTLS11"});
    let custom = json!({"tlsSecurityProfile": {"type": "Custom", "custom": custom}});
    assert_eq!(version(custom), ("VersionTLS11".to_owned(), 1));
}

#[test]
fn settings_with_which_a_kubelet_does_not_start_are_refused() {
    let rows = [
        (json!({"maxPods": -5}), "maxPods is -5, and must be 1 or more"),
        (
            json!({"imageGCHighThresholdPercent": 101}),
            "imageGCHighThresholdPercent is 101, and must be from 0 to 100",
        ),
        (
            json!({"nodeStatusUpdateFrequency": "-1s"}),
            r#"nodeStatusUpdateFrequency is "-1s", and must be 0s or more"#,
        ),
        (
            json!({"evictionHard": {"memory.free": "1Gi"}}),
            "evictionHard has the key \"memory.free\", and must have only keys out of \
             memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, \
             imagefs.inodesFree, containerfs.available, containerfs.inodesFree, \
             allocatableMemory.available, pid.available",
        ),
        (
            json!({"evictionHard": {"memory.available": "120%"}}),
            "evictionHard[memory.available] is \"120%\", and must be a quantity such as 100Mi, or \
             a percentage from 0% to 100%",
        ),
        (
            json!({"cpuManagerPolicy": "dynamic"}),
            r#"cpuManagerPolicy is "dynamic", and must be one of none, static"#,
        ),
        (json!({"maxPodz": 5}), "the field maxPodz does not exist, did you mean maxPods?"),
        (json!({"MaxPods": 5}), "the field MaxPods does not exist, did you mean maxPods?"),
        (
            json!({"logging": {"verbose": 5}}),
            "the field logging.verbose does not exist, did you mean logging.verbosity?",
        ),
        (json!({"somethingElse": 5}), "the field somethingElse does not exist"),
        (
            json!({"maxPods": -1, "podsPerCore": -1}),
            "maxPods is -1, and must be 1 or more; podsPerCore is -1, and must be 0 or more",
        ),
        (
            json!({"imageGCLowThresholdPercent": 90, "imageGCHighThresholdPercent": 80}),
            "imageGCLowThresholdPercent is 90, and must be less than \
             imageGCHighThresholdPercent, which is 80",
        ),
    ];
    for (fields, expected) in rows {
        let expected = format!("KubeletConfiguration: {expected}");
        assert_eq!(refusal(&settings(fields)), expected);
    }
    // In a whole file, zero means the value of the base.
    assert_eq!(parsed(&whole(&settings(json!({"maxPods": 0}))).unwrap())["maxPods"], 250);
}

#[test]
fn settings_that_contradict_each_other_or_the_base_are_refused() {
    let rows = [
        (
            json!({"imageGCHighThresholdPercent": 50}),
            "imageGCLowThresholdPercent is 80, and must be less than \
             imageGCHighThresholdPercent, which is 50",
        ),
        (
            json!({"maxParallelImagePulls": 3}),
            "maxParallelImagePulls is 3, and serializeImagePulls must be false with it",
        ),
        (
            json!({"imageMaximumGCAge": "1m"}),
            "imageMaximumGCAge is \"1m0s\", and must be more than imageMinimumGCAge, which is \
             \"2m0s\"",
        ),
        (
            json!({"shutdownGracePeriodCriticalPods": "10s"}),
            "shutdownGracePeriodCriticalPods is \"10s\", and must be at most \
             shutdownGracePeriod, which is \"0s\"",
        ),
        (
            json!({"enforceNodeAllocatable": ["pods", "none"]}),
            "enforceNodeAllocatable contains none, and must contain nothing else",
        ),
        (
            json!({"enforceNodeAllocatable": ["pods", "pods"]}),
            "enforceNodeAllocatable contains pods twice",
        ),
        (
            json!({"evictionSoft": {"memory.available": "1Gi"}}),
            "evictionSoft has memory.available, and evictionSoftGracePeriod must have a duration \
             for it",
        ),
        (
            json!({"registerWithTaints": [{"effect": "NoSchedule"}]}),
            "registerWithTaints[0].key is \"\", and must be a text that is not empty",
        ),
        (
            json!({"reservedMemory": [{"limits": {"cpu": "1"}}]}),
            "reservedMemory[0].limits has the key \"cpu\", and must have only memory and \
             hugepages-<size>",
        ),
        (
            json!({"userNamespaces": {"idsPerPod": 65537}}),
            "userNamespaces.idsPerPod is 65537, and must be a multiple of 65536",
        ),
        (
            json!({"podLogsDir": "/a/../b"}),
            "podLogsDir is \"/a/../b\", and must be an absolute path without `.` and `..`",
        ),
    ];
    for (fields, expected) in rows {
        let expected = format!("KubeletConfiguration: {expected}");
        assert_eq!(refusal(&settings(fields)), expected);
    }
    let accepted = [
        json!({"maxParallelImagePulls": 3, "serializeImagePulls": false}),
        json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}),
        json!({"evictionSoft": {"memory.available": "1Gi"},
            "evictionSoftGracePeriod": {"memory.available": "1m30s"}}),
        json!({"imageMaximumGCAge": "24h"}),
        json!({"tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"], "reservedSystemCPUs": "0-1,4"}),
    ];
    for fields in accepted {
        whole(&settings(fields.clone())).unwrap_or_else(|refusal| panic!("{fields}: {refusal}"));
    }
}

#[test]
fn values_of_another_type_are_refused() {
    let rows = [
        (json!({"maxPods": "5"}), r#"maxPods is "5", and must be a whole number of up to 32 bits"#),
        (
            json!({"serializeImagePulls": "yes"}),
            r#"serializeImagePulls is "yes", and must be true or false"#,
        ),
        (json!({"evictionHard": []}), "evictionHard is a list, and must be an object"),
        (json!({"syncFrequency": "x"}), r#"syncFrequency: time: invalid duration "x""#),
    ];
    for (fields, expected) in rows {
        let expected = format!("KubeletConfig could not be unmarshalled, err: {expected}");
        assert_eq!(refusal(&settings(fields)), expected);
    }
}

#[test]
fn only_this_boolean_can_be_set_to_false_over_the_base() {
    let fields = json!({"protectKernelDefaults": false});
    assert_eq!(parsed(&whole(&settings(fields)).unwrap())["protectKernelDefaults"], Value::Null);
}

// covers: KUB-11
#[test]
fn the_status_keeps_three_results_and_the_older_form_of_the_last() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let mut now: Vec<LooseCondition> = Vec::new();
    for number in 1..=5 {
        now = conditions(&now, Some(&format!("fault {number}")), at(number));
    }
    let seen = |now: &[LooseCondition]| -> Vec<String> {
        now.iter().map(|one| format!("{}={} {}", one.kind, one.status, one.message)).collect()
    };
    let expected = [
        "Accepted=False Error: fault 3",
        "Accepted=False Error: fault 4",
        "Accepted=False Error: fault 5",
        "Failure=True Error: fault 5",
    ];
    assert_eq!(seen(&now), expected);
    let again = conditions(&now, Some("fault 5"), at(6));
    assert_eq!(seen(&again), expected);
    let times: Vec<i64> =
        again.iter().map(|one| one.last_transition_time.as_ref().unwrap().0.as_second()).collect();
    assert_eq!(times, [3, 4, 6, 6]);
    let accepted = conditions(&again, None, at(7));
    let expected = ["Accepted=True Success", "Success=True Success"];
    assert_eq!(seen(&accepted)[2..], expected);
    let mut object = config(json!({}));
    object.status = Some(mco_api::kubelet_config::KubeletConfigStatus {
        observed_generation: 1,
        conditions: accepted,
    });
    assert!(is_reported(&object, None) && !is_reported(&object, Some("fault 5")));
    object.metadata.generation = Some(2);
    assert!(!is_reported(&object, None));
}

// covers: REN-9
#[test]
fn a_pool_waits_for_settings_that_are_not_generated_yet() {
    let object = |generation: i64, failure: Option<&str>, finalizers: &[&str]| {
        let mut object = config(json!({}));
        object.metadata.generation = Some(generation);
        object.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        object.status = Some(mco_api::kubelet_config::KubeletConfigStatus {
            observed_generation: 1,
            conditions: conditions(&[], failure, Timestamp::UNIX_EPOCH),
        });
        object
    };
    let made = "99-worker-generated-kubelet-1";
    let progress = |object: &KubeletConfig| progress(object, "worker", |name| name == made);
    assert_eq!(progress(&config(json!({}))), Progress::Pending);
    assert_eq!(progress(&object(1, None, &[made])), Progress::Settled);
    assert_eq!(progress(&object(2, None, &[made])), Progress::Pending);
    assert_eq!(progress(&object(1, None, &[])), Progress::Pending);
    assert_eq!(progress(&object(1, None, &["99-infra-generated-kubelet"])), Progress::Pending);
    assert_eq!(progress(&object(1, None, &["99-worker-generated-kubelet"])), Progress::Pending);
    assert_eq!(progress(&object(1, Some("no"), &[])), Progress::NotApplied);
    let mut deleted = object(2, None, &[made]);
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert_eq!(progress(&deleted), Progress::NotApplied);
}
