//! Tests of settings for kubelets whose configuration another program owns.

use super::*;

fn fragment(config: &KubeletConfig, suffix: &str) -> Result<Vec<GeneratedFile>, Refusal> {
    let (pool, settings) = (pool("worker"), ClusterSettings::default());
    let latency = LatencyProfile::Unset;
    let inputs = Inputs { pool: &pool, base: None, settings: &settings, version: "", latency };
    generate(config, &inputs, suffix)
}

#[test]
fn a_fragment_has_only_what_the_user_set() {
    let spec = json!({
        "logLevel": 4,
        "tlsSecurityProfile": {"type": "Modern"},
        "kubeletConfig": {
            "maxPods": 42, "serializeImagePulls": false, "syncFrequency": "90s",
            "systemReserved": {"memory": "2Gi"},
        },
    });
    let files = fragment(&config(spec), "").unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["/etc/kubernetes/kubelet.conf.d/99-mco-0.conf", drop_in::UNIT]);
    assert_eq!(
        text_of(&files, paths[0]),
        "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
logging:
  verbosity: 4
maxPods: 42
serializeImagePulls: false
syncFrequency: 1m30s
systemReserved:
  memory: 2Gi
tlsCipherSuites:
- TLS_AES_128_GCM_SHA256
- TLS_AES_256_GCM_SHA384
- TLS_CHACHA20_POLY1305_SHA256
tlsMinVersion: VersionTLS13
"
    );
    assert_eq!(
        text_of(&files, drop_in::UNIT),
        "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml \
         --config-dir=/etc/kubernetes/kubelet.conf.d\"\n"
    );
    let second = fragment(&settings(json!({"maxPods": 1})), "3").unwrap();
    assert_eq!(second[0].path, "/etc/kubernetes/kubelet.conf.d/99-mco-3.conf");
    assert_eq!(fragment(&config(json!({})), "").unwrap(), []);
}

#[test]
fn what_a_fragment_cannot_do_is_refused() {
    let refusal = |spec: Value| fragment(&config(spec), "").unwrap_err().to_string();
    assert_eq!(
        refusal(json!({"autoSizingReserved": true})),
        "autoSizingReserved is true, and the nodes of pool \"worker\" have no service that derives \
         reservations from their size: set kubeletConfig.systemReserved instead"
    );
    let rows = [
        (json!({"maxPods": 0}), "maxPods is 0, and must be 1 or more"),
        (json!({"clusterDomain": "x"}), "clusterDomain is not allowed to be set, but contains: x"),
        (json!({"staticPodPath": ""}), "staticPodPath is not allowed to be set, but contains: "),
        (
            json!({"enforceNodeAllocatable": ["pods", "system-reserved"]}),
            "enforceNodeAllocatable contains system-reserved, and systemReservedCgroup must be set \
             with it",
        ),
    ];
    for (fields, expected) in rows {
        let expected = format!("KubeletConfiguration: {expected}");
        assert_eq!(refusal(json!({"kubeletConfig": fields})), expected);
    }
    assert_eq!(fragment(&config(json!({"autoSizingReserved": false})), "").unwrap(), []);
}

#[test]
fn the_base_of_a_pool_decides_how_settings_are_delivered() {
    assert_eq!(super::super::delivery(Some(&base())), Delivery::WholeFile);
    assert_eq!(super::super::delivery(None), Delivery::DropIn);
    let other = MachineConfig::new("01-worker-kubelet", generated::spec(&[]));
    assert_eq!(super::super::delivery(Some(&other)), Delivery::DropIn);
    for (pool, name) in [("worker", "worker"), ("infra", "worker"), ("master", "master")] {
        assert_eq!(base_name(pool), format!("01-{name}-kubelet"));
    }
}
