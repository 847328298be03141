use serde_json::{Value, json};

use super::*;

fn config(ignition: &Value) -> MachineConfig {
    let object = json!({
        "metadata": {
            "name": "rendered-worker-1", "uid": "u-1", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"b": "<&>", "a": "1"},
            "ownerReferences": [{
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "name": "worker", "uid": "u-0", "controller": true, "blockOwnerDeletion": true
            }]
        },
        "spec": {"osImageURL": "quay.io/os@sha256:1", "kernelArguments": ["nosmt"], "config": ignition}
    });
    serde_json::from_value(object).unwrap()
}

fn controller((kubelet, cloud): (&str, &str)) -> ControllerConfig {
    let mut controller = ControllerConfig::default();
    controller.spec.kube_api_server_serving_ca_data = kubelet.as_bytes().to_vec().into();
    controller.spec.cloud_provider_ca_data = Some(cloud.as_bytes().to_vec().into());
    controller
}

fn joining(config: MachineConfig, controller: ControllerConfig) -> Inputs {
    let first_boot = FirstBoot::new(Arc::new(controller), None);
    Inputs { config: Arc::new(config), first_boot: Some(first_boot) }
}

fn alone(ignition: &Value) -> Inputs {
    Inputs { config: Arc::new(config(ignition)), first_boot: None }
}

fn built(inputs: &Inputs, version: &str) -> Result<Value, String> {
    match build(inputs, version.parse().unwrap()) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

/// The decoded contents of a file of a 3.x document.
fn file(document: &Value, path: &str) -> Option<String> {
    let files = document["storage"]["files"].as_array()?;
    let found = files.iter().find(|file| file["path"] == path)?;
    let source = found["contents"]["source"].as_str()?;
    Some(String::from_utf8(data_url::decode(source).unwrap()).unwrap())
}

fn paths(document: &Value) -> Vec<&str> {
    let files = document["storage"]["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

fn empty_ignition() -> Value {
    json!({"ignition": {"version": "3.5.0"}})
}

// covers: S12
#[test]
fn an_empty_config_is_32_bytes_in_every_version() {
    for version in ["2.2.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"] {
        let bytes = build(&alone(&empty_ignition()), version.parse().unwrap()).unwrap();
        assert_eq!(bytes.len(), 32, "{version}");
    }
}

// covers: S28
#[test]
fn a_config_of_spec_2_is_upgraded_without_the_root_filesystem() {
    let file = json!({
        "filesystem": "root", "path": "/etc/a", "mode": 420, "contents": {"source": "data:,x"}
    });
    let old = json!({"ignition": {"version": "2.2.0"}, "storage": {"files": [file]}});
    let document = built(&alone(&old), "3.2.0").unwrap();
    assert_eq!(document["ignition"]["version"], "3.2.0");
    assert_eq!(document["storage"]["files"][0]["path"], "/etc/a");
    assert_eq!(document["storage"]["files"][0]["filesystem"], Value::Null);
}

// covers: S24, S25, S27
#[test]
fn unsupported_features_of_a_version_are_rejected() {
    let partition =
        json!({"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "sizeMiB": 9}]}]});
    let special = json!({"files": [{"path": "/etc/a", "mode": 0o4755}]});
    let removes = json!({
        "ignition": {"version": "3.5.0"}, "kernelArguments": {"shouldNotExist": ["quiet"]}
    });
    let storage = |storage: &Value| json!({"ignition": {"version": "3.5.0"}, "storage": storage});
    let rows = [
        ("partition size", storage(&partition), "2.2.0", false),
        ("partition size", storage(&partition), "3.2.0", true),
        ("special bits", storage(&special), "3.3.0", false),
        ("special bits", storage(&special), "3.4.0", true),
        ("kernel arguments to take away", removes.clone(), "3.2.0", false),
        ("kernel arguments to take away", removes, "3.3.0", true),
        ("no way to 3.0", empty_ignition(), "3.0.0", false),
    ];
    for (case, ignition, version, served) in rows {
        let inputs = joining(config(&ignition), ControllerConfig::default());
        let built = built(&inputs, version);
        assert_eq!(built.is_ok(), served, "{case} in {version}: {built:?}");
    }
}

// covers: S30
#[test]
fn the_node_annotations_name_the_config() {
    let inputs = joining(config(&empty_ignition()), ControllerConfig::default());
    let document = built(&inputs, "3.5.0").unwrap();
    let key = "machineconfiguration.openshift.io";
    let expected = format!(
        r#"{{"{key}/currentConfig":"rendered-worker-1","{key}/desiredConfig":"rendered-worker-1","{key}/firstPivotConfig":"rendered-worker-1","{key}/state":"Done"}}"#
    );
    assert_eq!(file(&document, NODE_ANNOTATIONS), Some(expected));
    let entry = &document["storage"]["files"][0];
    assert_eq!((&entry["mode"], &entry["overwrite"]), (&json!(420), &json!(true)));
}

// covers: S41
#[test]
fn an_image_built_beforehand_is_among_the_node_annotations() {
    let mut config = config(&empty_ignition());
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::PRE_BUILT_IMAGE.set(annotations, &"quay.io/layered@sha256:2".to_owned());
    let document = built(&joining(config, ControllerConfig::default()), "3.5.0").unwrap();
    let annotations: Value =
        serde_json::from_str(&file(&document, NODE_ANNOTATIONS).unwrap()).unwrap();
    for key in [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE] {
        assert_eq!(annotations[key.name()], "quay.io/layered@sha256:2", "{key}");
    }
}

// covers: S35, S36
#[test]
fn the_config_is_added_in_full_and_last_without_its_ignition_part() {
    let mut inputs = joining(config(&empty_ignition()), ControllerConfig::default());
    let first_boot = inputs.first_boot.as_mut().unwrap();
    first_boot.kubeconfig = Some(Kubeconfig(b"clusters: []\n"[..].into()));
    let document = built(&inputs, "3.1.0").unwrap();
    let expected = [NODE_ANNOTATIONS, KUBECONFIG, SERVED_CONFIG, ENCAPSULATED];
    assert_eq!(paths(&document), expected);
    assert_eq!(file(&document, KUBECONFIG).unwrap(), "clusters: []\n");

    let owner = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool","name":"worker","uid":"u-0","controller":true,"blockOwnerDeletion":true}"#;
    let encapsulated = format!(
        r#"{{"metadata":{{"name":"rendered-worker-1","uid":"u-1","resourceVersion":"7","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","annotations":{{"a":"1","b":"\u003c\u0026\u003e"}},"ownerReferences":[{owner}]}},"spec":{{"osImageURL":"quay.io/os@sha256:1","baseOSExtensionsContainerImage":"","config":{{"ignition":{{"version":"3.1.0"}}}},"kernelArguments":["nosmt"],"extensions":[],"fips":false,"kernelType":""}}}}"#
    );
    assert_eq!(file(&document, ENCAPSULATED).unwrap(), encapsulated);

    let served = file(&document, SERVED_CONFIG).unwrap();
    assert!(
        served.starts_with("{\n    \"metadata\": {\n        \"name\": \"rendered-worker-1\",\n")
    );
    let served: Value = serde_json::from_str(&served).unwrap();
    assert_eq!(served["spec"]["config"], empty_ignition());
}

// covers: S26, S48
#[test]
fn kernel_arguments_move_to_the_first_boot_below_3_3_and_only_in_the_response() {
    let ignition = json!({
        "ignition": {"version": "3.5.0"}, "kernelArguments": {"shouldExist": ["debug", "a b"]}
    });
    let inputs = joining(config(&ignition), ControllerConfig::default());
    let rows = [
        ("3.2.0", json!(["nosmt", "debug", "a b"]), Value::Null),
        ("3.3.0", json!(["nosmt"]), json!(["debug", "a b"])),
        ("3.2.0", json!(["nosmt", "debug", "a b"]), Value::Null),
    ];
    for (version, first_boot, by_ignition) in rows {
        let document = built(&inputs, version).unwrap();
        let encapsulated: Value =
            serde_json::from_str(&file(&document, ENCAPSULATED).unwrap()).unwrap();
        assert_eq!(encapsulated["spec"]["kernelArguments"], first_boot, "{version}");
        assert_eq!(document["kernelArguments"]["shouldExist"], by_ignition, "{version}");
    }
}

// covers: S33, S34
#[test]
fn certificates_are_current() {
    let has = |path: &str| {
        json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": path, "mode": 256, "contents": {"source": "data:,old"}}
        ]}})
    };
    let rows = [
        ("replaced", has(KUBELET_CA), ("new", ""), KUBELET_CA, Some("new")),
        ("kept, as there is no other", has(KUBELET_CA), ("", ""), KUBELET_CA, Some("old")),
        ("added", empty_ignition(), ("new", ""), KUBELET_CA, Some("new")),
        ("not added", empty_ignition(), ("", ""), KUBELET_CA, None),
        ("replaced", has(CLOUD_CA), ("", "new"), CLOUD_CA, Some("new")),
        ("added", empty_ignition(), ("", "new"), CLOUD_CA, Some("new")),
        ("not added", empty_ignition(), ("new", ""), CLOUD_CA, None),
    ];
    for (case, ignition, today, path, expected) in rows {
        let document = built(&joining(config(&ignition), controller(today)), "3.5.0").unwrap();
        assert_eq!(file(&document, path).as_deref(), expected, "{case}: {path}");
    }
    let document =
        built(&joining(config(&has(KUBELET_CA)), controller(("new", ""))), "3.5.0").unwrap();
    assert_eq!(document["storage"]["files"][0]["mode"], 256, "only the contents change");
}

#[test]
fn a_config_that_already_has_an_added_file_is_rejected() {
    let ignition = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": ENCAPSULATED, "contents": {"source": "data:,x"}}
    ]}});
    let refused = built(&joining(config(&ignition), ControllerConfig::default()), "3.5.0");
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn a_config_without_an_ignition_part_is_rejected() {
    for ignition in [Value::Null, json!({}), json!({"ignition": {"version": "9.0.0"}})] {
        assert!(built(&alone(&ignition), "3.5.0").is_err(), "{ignition}");
    }
}

#[test]
fn the_kubeconfig_is_hidden_in_logs() {
    let kubeconfig = Kubeconfig(b"token: secret"[..].into());
    assert_eq!(format!("{kubeconfig:?}"), "Kubeconfig(13 bytes)");
}
