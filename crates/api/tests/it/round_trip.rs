//! Round trips of one object of each kind, as a user or the cluster would write it.
//!
//! The members written must be those that were read: none lost, none renamed, none added beyond the
//! members that the kind always writes.

use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Deserializes YAML as kind `K`, and returns the serialized object.
fn through<K: Resource<DynamicType = ()> + DeserializeOwned + Serialize>(text: &str) -> Value {
    let given: Value = serde_saphyr::from_str(text).expect("the example is YAML");
    let object: K = serde_json::from_value(given).expect("the example fits its kind");
    let written = serde_json::to_value(&object).expect("objects convert to JSON");
    assert_eq!(written["kind"], K::kind(&()).as_ref());
    assert_eq!(written["apiVersion"], K::api_version(&()).as_ref());
    written
}

/// Asserts that an example is the same after deserializing and serializing.
fn unchanged<K: Resource<DynamicType = ()> + DeserializeOwned + Serialize>(text: &str) {
    let given: Value = serde_saphyr::from_str(text).expect("the example is YAML");
    similar(&through::<K>(text), &given);
}

fn similar(left: &Value, right: &Value) {
    let text = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
    assert!(left == right, "written:\n{}\ngiven:\n{}", text(left), text(right));
}

// covers: CRD C03
#[test]
fn machine_config() {
    unchanged::<mco_api::MachineConfig>(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-worker-motd
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  osImageURL: ''
  baseOSExtensionsContainerImage: ''
  config: {ignition: {version: 3.5.0}}
  kernelArguments: [nosmt]
  extensions: [usbguard]
  fips: false
  kernelType: realtime
",
    );
}

#[test]
fn machine_config_pool() {
    let written = through::<mco_api::MachineConfigPool>(
        r#"
metadata: {name: infra}
spec:
  machineConfigSelector:
    matchExpressions:
    - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ""}}
  maxUnavailable: 10%
  configuration: {name: rendered-infra-1, source: [{name: 00-worker, kind: MachineConfig}]}
  pinnedImageSets: [{name: release}]
status:
  observedGeneration: 3
  machineCount: 2
  conditions: [{type: Updated, status: "True", lastTransitionTime: null}]
  certExpirys: [{bundle: KubeAPIServerServingCAData, subject: CN=x, expiry: "2033-10-11T00:00:00Z"}]
"#,
    );
    let spec = &written["spec"];
    assert_eq!(spec["paused"], json!(false), "paused is always written");
    assert_eq!(spec["maxUnavailable"], json!("10%"));
    assert_eq!(
        spec["configuration"],
        json!({"name": "rendered-infra-1", "source": [{"name": "00-worker", "kind": "MachineConfig"}]})
    );
    let status = &written["status"];
    for count in ["updatedMachineCount", "readyMachineCount", "degradedMachineCount"] {
        assert_eq!(status[count], json!(0), "{count} is written even when it is zero");
    }
    assert_eq!(
        status["conditions"],
        json!([{"type": "Updated", "status": "True", "lastTransitionTime": null}])
    );
    assert_eq!(status["certExpirys"][0]["expiry"], json!("2033-10-11T00:00:00Z"));
}

#[test]
fn kubelet_config() {
    unchanged::<mco_api::KubeletConfig>(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: pods}
spec:
  autoSizingReserved: true
  logLevel: 3
  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ''}}
  kubeletConfig: {maxPods: 500, evictionHard: {memory.available: 500Mi}}
  tlsSecurityProfile: {type: Custom, custom: {ciphers: [ECDHE-RSA-AES128-GCM-SHA256], minTLSVersion: VersionTLS12}}
",
    );
}

#[test]
fn container_runtime_config() {
    unchanged::<mco_api::ContainerRuntimeConfig>(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: ContainerRuntimeConfig
metadata: {name: limits}
spec:
  machineConfigPoolSelector: {matchLabels: {a: b}}
  containerRuntimeConfig:
    pidsLimit: 2048
    logLevel: debug
    logSizeMax: 1000000
    overlaySize: 10G
    defaultRuntime: runc
    additionalImageStores: [{path: /var/lib/shared}]
",
    );
}

#[test]
fn controller_config() {
    unchanged::<mco_api::ControllerConfig>(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: ControllerConfig
metadata: {name: machine-config-controller}
spec:
  additionalTrustBundle: null
  baseOSContainerImage: example.com/os
  cloudProviderCAData: null
  cloudProviderConfig: ''
  clusterDNSIP: 172.30.0.10
  dns:
    apiVersion: config.openshift.io/v1
    kind: DNS
    metadata: {name: cluster}
    spec: {baseDomain: lab.example.com}
    status: {}
  images: {podman: example.com/podman}
  infra:
    apiVersion: config.openshift.io/v1
    kind: Infrastructure
    metadata: {name: cluster}
    spec: {cloudConfig: {}, platformSpec: {type: BareMetal, baremetal: {machineNetworks: [10.0.0.0/16]}}}
    status:
      apiServerInternalURI: https://api-int.lab.example.com:6443
      controlPlaneTopology: HighlyAvailable
      platformStatus:
        type: BareMetal
        baremetal: {apiServerInternalIPs: [10.0.0.5], ingressIPs: [10.0.0.6], loadBalancer: {type: UserManaged}}
  ipFamilies: IPv4
  kubeAPIServerServingCAData: aGVsbG8=
  network: {mtuMigration: null}
  proxy: {httpProxy: http://proxy:3128}
  pullSecret: {name: pull-secret, namespace: openshift-config}
  releaseImage: example.com/release
  rootCAData: aGVsbG8=
",
    );
}

#[test]
fn machine_config_node() {
    unchanged::<mco_api::MachineConfigNode>(
        r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigNode
metadata: {name: node-1}
spec:
  node: {name: node-1}
  pool: {name: worker}
  configVersion: {desired: rendered-worker-2}
status:
  observedGeneration: 2
  configVersion: {current: rendered-worker-1, desired: rendered-worker-2}
  conditions:
  - {type: Updated, status: "False", reason: NotYetOccurred, message: "", lastTransitionTime: "2026-01-02T03:04:05Z"}
  pinnedImageSets: [{name: release, desiredGeneration: 1}]
"#,
    );
}

#[test]
fn images_and_streams() {
    let image = format!("quay.io/a/b@sha256:{}", "0".repeat(64));
    unchanged::<mco_api::PinnedImageSet>(&format!(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: PinnedImageSet
metadata: {{name: release}}
spec: {{pinnedImages: [{{name: '{image}'}}]}}
"
    ));
    unchanged::<mco_api::OSImageStream>(&format!(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata: {{name: cluster}}
spec: {{defaultStream: rhel-9}}
status:
  defaultStream: rhel-9
  availableStreams: [{{name: rhel-9, osImage: '{image}', osExtensionsImage: '{image}'}}]
"
    ));
    unchanged::<mco_api::InternalReleaseImage>(&format!(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: InternalReleaseImage
metadata: {{name: cluster}}
spec: {{releases: [{{name: ocp-release-bundle-4.20.1-x86_64}}]}}
status: {{releases: [{{name: ocp-release-bundle-4.20.1-x86_64, image: '{image}'}}]}}
"
    ));
}

#[test]
fn os_builds() {
    unchanged::<mco_api::MachineOSConfig>(
        r"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSConfig
metadata: {name: worker}
spec:
  machineConfigPool: {name: worker}
  imageBuilder: {imageBuilderType: Job}
  renderedImagePushSecret: {name: push}
  renderedImagePushSpec: quay.io/me/os:latest
  containerFile: [{containerfileArch: NoArch, content: FROM configs AS final}]
status:
  machineOSBuild: {group: machineconfiguration.openshift.io, resource: machineosbuilds, name: worker-1}
",
    );
    unchanged::<mco_api::MachineOSBuild>(
        r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineOSBuild
metadata: {name: worker-1}
spec:
  machineConfig: {name: rendered-worker-1}
  machineOSConfig: {name: worker}
  renderedImagePushSpec: quay.io/me/os:latest
status:
  buildStart: "2026-01-02T03:04:05Z"
  builder: {imageBuilderType: Job, job: {group: batch, resource: jobs, name: build, namespace: mco}}
"#,
    );
}

#[test]
fn machine_configuration() {
    unchanged::<mco_api::MachineConfiguration>(
        r"
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  managementState: Managed
  logLevel: Normal
  managedBootImages:
    machineManagers: [{resource: machinesets, apiGroup: machine.openshift.io, selection: {mode: All}}]
  nodeDisruptionPolicy:
    files: [{path: /etc/chrony.conf, actions: [{type: Restart, restart: {serviceName: chronyd.service}}]}]
    sshkey: {actions: [{type: None}]}
  irreconcilableValidationOverrides: {storage: [Disks]}
status:
  nodeDisruptionPolicyStatus:
    clusterPolicies: {files: [{path: /etc/containers/registries.conf, actions: [{type: Special}]}]}
",
    );
}

#[test]
fn cluster_operator() {
    unchanged::<mco_api::ClusterOperator>(
        r#"
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: machine-config}
spec: {}
status:
  conditions:
  - {type: Available, status: "True", reason: AsExpected, lastTransitionTime: "2026-01-02T03:04:05Z"}
  versions: [{name: operator, version: 4.20.1}]
  relatedObjects: [{group: "", resource: nodes, name: ""}]
  extension: {worker: all 3 nodes are at latest configuration rendered-worker-1}
"#,
    );
}

#[test]
fn an_unknown_word_does_not_make_the_object_unreadable() {
    let written = through::<mco_api::MachineConfiguration>(
        r"
metadata: {name: cluster}
spec:
  logLevel: Deafening
  nodeDisruptionPolicy: {files: [{path: /a, actions: [{type: Hibernate}]}]}
",
    );
    assert_eq!(written["spec"]["logLevel"], json!("Deafening"));
    let action = &written["spec"]["nodeDisruptionPolicy"]["files"][0]["actions"][0];
    assert_eq!(action, &json!({"type": "Hibernate"}));
}
