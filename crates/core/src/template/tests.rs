//! Tests of the base configs that templates give.

use mco_api::{annotation, label};
use serde_json::{Value, json};

use super::*;
use crate::{kubelet::tls_settings, machine::Machine};

/// Builds a ControllerConfig with this spec.
pub(super) fn cluster(spec: Value) -> ControllerConfig {
    let mut object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": label::CONTROLLER_CONFIG, "uid": "u-1", "generation": 3},
    });
    object["spec"] = spec;
    serde_json::from_value(object).unwrap()
}

/// Builds the spec of a cluster on a platform with a topology.
pub(super) fn on(platform: &Value, topology: &str) -> Value {
    json!({"infra": {"spec": {}, "status": {
        "apiServerInternalURI": "https://api-int.c.test:6443",
        "controlPlaneTopology": topology, "platformStatus": platform,
    }}})
}

fn made(
    tree: &TemplateTree,
    profile: &Profile,
    spec: Value,
) -> Result<Vec<MachineConfig>, TemplateError> {
    made_with(tree, profile, spec, None, &tls_settings(None))
}

pub(super) fn made_with(
    tree: &TemplateTree,
    profile: &Profile,
    spec: Value,
    pull_secret: Option<&str>,
    tls: &TlsSettings,
) -> Result<Vec<MachineConfig>, TemplateError> {
    let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
    let controller_config = cluster(spec);
    let facts = Facts { controller_config: &controller_config, pull_secret, tls, build: &build };
    base_configs(tree, profile, &facts)
}

fn names(configs: &[MachineConfig]) -> String {
    let names = configs.iter().map(|config| config.metadata.name.clone().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

fn tree(files: &[(&str, &str)]) -> TemplateTree {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    TemplateTree::from_files(files).unwrap()
}

fn read(configs: &[MachineConfig], name: &str) -> Machine {
    let config = configs.iter().find(|config| config.metadata.name.as_deref() == Some(name));
    Machine::read(config.unwrap_or_else(|| panic!("{name} is missing"))).unwrap()
}

/// Returns the contents of a file; empty if the config does not have it.
fn file(configs: &[MachineConfig], name: &str, path: &str) -> String {
    let files = read(configs, name).config.storage.files;
    let found = files.iter().find(|file| file.path == path);
    let source = found.and_then(|file| file.contents.source.clone());
    source
        .map(|url| String::from_utf8(data_url::decode(&url).unwrap()).unwrap())
        .unwrap_or_default()
}

const KUBELET: &str = "/etc/kubernetes/kubelet.conf";

// covers: TPL-1, TPL-2
#[test]
fn each_role_has_three_configs_and_arbiter_only_on_its_topology() {
    let none = json!({"type": "None"});
    let full = |topology| made(&TemplateTree::built_in(), &Profile::Full, on(&none, topology));
    let configs = full("HighlyAvailable").unwrap();
    assert_eq!(
        names(&configs),
        "00-master 00-worker 01-master-container-runtime 01-master-kubelet \
         01-worker-container-runtime 01-worker-kubelet"
    );
    for config in &configs {
        let labels = config.metadata.labels.clone().unwrap();
        let name = config.metadata.name.clone().unwrap();
        assert!(name[3..].starts_with(&labels[label::ROLE]), "{name}");
        assert!(config.spec.os_image_url.is_empty());
        assert!(config.spec.base_os_extensions_container_image.is_empty());
    }
    let with_arbiter = names(&full("HighlyAvailableArbiter").unwrap());
    for name in ["00-arbiter", "01-arbiter-container-runtime", "01-arbiter-kubelet"] {
        assert!(with_arbiter.contains(name), "{with_arbiter}");
    }
}

// covers: TPL-11
#[test]
fn a_base_config_names_its_build_and_its_owner() {
    let configs = made(&TemplateTree::built_in(), &Profile::Adopt, json!({})).unwrap();
    let config = &configs[0];
    let annotations = config.metadata.annotations.clone().unwrap();
    let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    assert_eq!(annotations.get(key).map(String::as_str), Some("abc"));
    let owners = config.metadata.owner_references.clone().unwrap();
    let [owner] = owners.as_slice() else { panic!("{owners:?}") };
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ControllerConfig", "u-1"));
    assert_eq!(owner.controller, Some(true));
}

#[test]
fn profile_adopt_changes_nothing_on_a_machine() {
    let configs = made(&TemplateTree::built_in(), &Profile::Adopt, json!({})).unwrap();
    assert_eq!(names(&configs), "00-master 00-worker");
    for config in &configs {
        let text = config.spec.config.as_ref().unwrap().get();
        assert_eq!(text, r#"{"ignition":{"version":"3.5.0"}}"#);
    }
    let error = made(&TemplateTree::built_in(), &"none".into(), json!({})).unwrap_err();
    assert!(error.to_string().contains("unknown profile \"none\""), "{error}");
}

// covers: TPL-3
#[test]
fn the_last_layer_wins_and_an_empty_file_removes() {
    let text = |path: &str, text: &str| format!("---\npath: {path}\n---\n{text}\n");
    let unit = "---\nenabled: true\n---\n[Service]\n";
    let files = [
        ("common/_base/files/a", text("/etc/a", "base")),
        ("common/_base/files/b", text("/etc/b", "base")),
        ("common/_base/files/c", text("/etc/c", "base")),
        ("common/_base/files/z", text("/etc/z", "common")),
        ("common/_base/units/x.service", unit.to_owned()),
        ("common/_base/units/y.service.d/10-a.conf", "[Service]\n".to_owned()),
        ("common/on-prem/files/a", text("/etc/a", "on-prem")),
        ("common/baremetal/files/a", text("/etc/a", "bare metal")),
        ("common/baremetal/files/b", String::new()),
        ("common/baremetal/files/c", text("/etc/c", "{% if false %}x{% endif %}")),
        ("common/baremetal/units/x.service", String::new()),
        ("common/sno/files/a", text("/etc/a", "single")),
        ("worker/00-worker/_base/files/z", text("/etc/z", "worker")),
        ("worker/00-worker/_base/extensions/usbguard", "yes".to_owned()),
        ("worker/00-worker/baremetal/extensions/ipsec", "yes".to_owned()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, &**text)).collect();
    let tree = tree(&files);
    let seen = |platform: &str, topology: &str| {
        let spec = on(&json!({"type": platform}), topology);
        let configs = made(&tree, &Profile::Full, spec).unwrap();
        let files = ["/etc/a", "/etc/b", "/etc/c", "/etc/z"];
        let files = files.map(|path| file(&configs, "00-worker", path).trim().to_owned());
        let machine = read(&configs, "00-worker");
        let units = machine.config.systemd.units.iter();
        let units: Vec<&str> = units.map(|unit| unit.name.as_str()).collect();
        format!("{} | {} | {}", files.join(","), units.join(","), machine.spec.extensions.join(","))
    };
    let base = "base,base,base,worker | x.service,y.service | usbguard";
    assert_eq!(seen("None", "HighlyAvailable"), base);
    let metal = "bare metal,,base,worker | y.service | ipsec,usbguard";
    assert_eq!(seen("BareMetal", "HighlyAvailable"), metal);
    assert_eq!(seen("OpenStack", "HighlyAvailable"), base.replacen("base", "on-prem", 1));
    let single = "single,,base,worker | y.service | ipsec,usbguard";
    assert_eq!(seen("BareMetal", "SingleReplica"), single);
}

// covers: TPL-4
#[test]
fn platforms_select_their_folders() {
    let of = |platform: Value, topology: &str| {
        let spec = cluster(on(&platform, topology)).spec;
        layers(&spec).map(|layers| layers.join(" ")).map_err(|error| error.to_string())
    };
    let kind = |kind: &str| json!({"type": kind});
    let ha = "HighlyAvailable";
    let hosted = json!({"type": "GCP", "gcp": {"cloudLoadBalancerConfig": {
        "dnsType": "ClusterHosted", "clusterHosted": {"apiIntLoadBalancerIPs": ["192.0.2.1"]},
    }}});
    let cases = [
        (kind("AWS"), ha, "_base aws"),
        (kind("Azure"), ha, "_base azure"),
        (kind("GCP"), ha, "_base gcp"),
        (hosted, ha, "_base cloud-platform-alt-dns gcp"),
        (kind("BareMetal"), ha, "_base on-prem baremetal"),
        (kind("oVirt"), ha, "_base on-prem ovirt"),
        (kind("OpenStack"), ha, "_base on-prem openstack"),
        (kind("VSphere"), ha, "_base on-prem vsphere"),
        (kind("Nutanix"), ha, "_base on-prem nutanix"),
        (kind("Libvirt"), ha, "_base libvirt"),
        (kind("KubeVirt"), ha, "_base kubevirt"),
        (kind("PowerVS"), ha, "_base powervs"),
        (kind("External"), ha, "_base external"),
        (kind("None"), "SingleReplica", "_base none sno"),
        (kind("BareMetal"), "DualReplica", "_base on-prem baremetal two-node-with-fencing"),
        (kind("Moonbase"), ha, "_base none"),
    ];
    for (platform, topology, expected) in cases {
        assert_eq!(of(platform.clone(), topology).as_deref(), Ok(expected), "{platform}");
    }
    let unset = "cannot generate MachineConfigs when no platformStatus.type is set";
    assert_eq!(of(json!({}), ha).unwrap_err(), unset);
    assert_eq!(of(Value::Null, ha).unwrap_err(), unset);
    assert!(of(kind("_base"), ha).unwrap_err().starts_with("platform _base is unsupported"));
    // A plain Kubernetes has no Infrastructure object.
    let plain = cluster(json!({})).spec;
    assert_eq!(layers(&plain).unwrap(), ["_base", "none"]);
    assert_eq!(unknown_platform(&plain), None);
    let moon = cluster(on(&kind("Moonbase"), ha)).spec;
    assert_eq!(unknown_platform(&moon).as_deref(), Some("Moonbase"));
}

// covers: TPL-5
#[test]
fn values_of_the_cluster_are_available_to_templates() {
    let cases: [(Value, &str, &str); 12] = [
        (json!({"type": "AWS"}), "{{ platform.type }}", "AWS"),
        (json!({"type": "AWS"}), "{{ platform.cloudProvider }}", "external"),
        (json!({"type": "None"}), "[{{ platform.cloudProvider }}]", "[]"),
        (json!({"type": "Azure"}), "{{ platform.credentialProvider }}", "acr"),
        (json!({"type": "BareMetal"}), "{{ platform.shortName }}", "kni"),
        (
            json!({"type": "BareMetal", "baremetal": {"apiServerInternalIPs": ["a", "b"]}}),
            "{{ platform.apiServerInternalIPs | join(' ') }}",
            "a b",
        ),
        (
            json!({"type": "VSphere", "vsphere": {"ingressIP": "c"}}),
            "{{ platform.ingressIPs | join(' ') }}",
            "c",
        ),
        (json!({"type": "BareMetal"}), "{{ platform.managedLoadBalancer }}", "True"),
        (
            json!({"type": "BareMetal", "baremetal": {"loadBalancer": {"type": "UserManaged"}}}),
            "{{ platform.managedLoadBalancer }}",
            "False",
        ),
        (
            json!({"type": "AWS", "aws": {"cloudLoadBalancerConfig": {
                "dnsType": "ClusterHosted", "clusterHosted": {"ingressLoadBalancerIPs": ["d"]},
            }}}),
            "{{ platform.loadBalancerIPs.ingress | join(' ') }}",
            "d",
        ),
        (json!({"type": "None"}), "{{ apiServerInternalURL | url_host }}", "api-int.c.test"),
        (
            json!({"type": "None"}),
            "{{ skip('ignition_url') }} {{ role }}",
            "{{.ignition_url}} worker",
        ),
    ];
    for (platform, template, expected) in cases {
        let text = format!("---\npath: /etc/a\n---\n{template}");
        let tree = tree(&[("worker/00-worker/_base/files/a", &text)]);
        let configs = made(&tree, &Profile::Full, on(&platform, "HighlyAvailable")).unwrap();
        assert_eq!(file(&configs, "00-worker", "/etc/a"), expected, "{template}");
    }
}

#[test]
fn a_wrong_template_is_named_with_its_line() {
    let cases = [
        ("---\npath: /etc/a\n---\nx\n{{ proxi }}\n", "files/a, line 2"),
        ("---\npath: /etc/a\n---\n{% if %}\n", "files/a, line 1"),
        ("---\npath: /etc/a\n---\n{{ skip('A') }}\n", "files/a, line 1"),
        ("x\n", "must begin with a line ---"),
        ("---\npath: etc\n---\nx\n", "path is \"etc\"; it must be absolute"),
        ("---\npath: /etc/a\nmode: 999\n---\nx\n", "mode is \"999\""),
        ("---\npath: /etc/a\nowner: core\n---\nx\n", "unknown key \"owner\"; known are path, mode"),
        ("---\npath: /a\npath: /b\n---\nx\n", "key \"path\" occurs twice"),
    ];
    for (text, expected) in cases {
        let tree = tree(&[("worker/00-worker/_base/files/a", text)]);
        let error = made(&tree, &Profile::Full, json!({})).unwrap_err().to_string();
        assert!(error.contains("worker/00-worker/_base/files/a"), "{error}");
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    for path in ["worker", "worker/x", "common/_base/other/x", "common/_base/files/a/b"] {
        let files = [(path.to_owned(), "x".to_owned())];
        assert!(TemplateTree::from_files(files).is_err(), "{path}");
    }
}

// covers: TPL-6
#[test]
fn the_pull_secret_is_readable_by_root_only() {
    let (tree, tls) = (TemplateTree::built_in(), tls_settings(None));
    let secret = r#"{"auths":{"a.test":{"auth":"YTpi"}}}"#;
    let configs = made_with(&tree, &Profile::Full, json!({}), Some(secret), &tls).unwrap();
    for role in ["00-master", "00-worker"] {
        let files = read(&configs, role).config.storage.files;
        let found = files.iter().find(|file| file.path == "/var/lib/kubelet/config.json").unwrap();
        assert_eq!(found.mode, Some(0o600));
        assert_eq!(file(&configs, role, &found.path).trim_end(), secret);
    }
    let without = made(&tree, &Profile::Full, json!({})).unwrap();
    assert_eq!(file(&without, "00-worker", "/var/lib/kubelet/config.json"), "");
}

// covers: TPL-7
#[test]
fn the_tls_profile_reaches_the_kubelet() {
    let modern = serde_json::from_value(json!({"type": "Modern"})).unwrap();
    let modern = tls_settings(Some(&modern));
    let tree = TemplateTree::built_in();
    let configs = made_with(&tree, &Profile::Full, json!({}), None, &modern).unwrap();
    for role in ["master", "worker"] {
        let text = file(&configs, &format!("01-{role}-kubelet"), KUBELET);
        assert!(text.contains("tlsMinVersion: VersionTLS13\n"), "{text}");
        assert!(text.contains("tlsCipherSuites:\n- TLS_AES_128_GCM_SHA256\n"), "{text}");
        assert!(!text.contains("ECDHE"), "{text}");
    }
}

#[test]
fn the_kubelets_defaults_depend_on_the_role() {
    let spec = on(&json!({"type": "None"}), "DualReplica");
    let configs = made(&TemplateTree::built_in(), &Profile::Full, spec).unwrap();
    let kubelet = |role: &str| file(&configs, &format!("01-{role}-kubelet"), KUBELET);
    let (master, worker) = (kubelet("master"), kubelet("worker"));
    for text in [&master, &worker] {
        for line in ["maxPods: 250", "cgroupDriver: systemd", "podPidsLimit: 4096"] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("clusterDNS"), "the cluster has no DNS address\n{text}");
    }
    assert!(worker.contains("failSwapOn: false\n") && master.contains("failSwapOn: true\n"));
    assert!(worker.contains("system-reserved-compressible") && !master.contains("system-reserved"));
    assert!(master.contains("shutdownGracePeriod: 1m30s\n") && !worker.contains("shutdownGrace"));
    let sizing =
        |role: &str| file(&configs, &format!("01-{role}-kubelet"), "/etc/node-sizing-enabled.env");
    assert!(sizing("worker").starts_with("NODE_SIZING_ENABLED=true\n"));
    assert!(sizing("master").starts_with("NODE_SIZING_ENABLED=false\n"));
}

// covers: TPL-8
#[test]
fn conditions_have_the_references_texts() {
    use ControllerConfigConditionType as Phase;
    let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
    let text = |kind| condition_message(&kind, 3, &build, "no platform");
    assert_eq!(
        text(Phase::TemplateControllerRunning),
        "syncing towards (3) generation using controller version v1"
    );
    assert_eq!(
        text(Phase::TemplateControllerCompleted),
        "sync completed towards (3) generation using controller version v1"
    );
    assert_eq!(
        text(Phase::TemplateControllerFailing),
        "failed to syncing towards (3) generation using controller version v1: no platform"
    );
}
