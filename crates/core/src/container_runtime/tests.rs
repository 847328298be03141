//! Tests of the files of a ContainerRuntimeConfig.

use serde_json::json;

use super::*;

fn settings(value: serde_json::Value) -> ContainerRuntimeSettings {
    serde_json::from_value(value).expect("settings")
}

fn texts(files: &[GeneratedFile]) -> Vec<(&str, String)> {
    let text = |file: &GeneratedFile| String::from_utf8(file.contents.clone()).expect("UTF-8");
    files.iter().map(|file| (file.path.as_str(), text(file))).collect()
}

const BASE: &str = "[storage]\ndriver = \"overlay\"\nrunroot = \"/run\"\ngraphroot = \"/var\"\n\
    other = 1\n[storage.options.overlay]\nmountopt = \"nodev\"\n[storage.options.pull_options]\n\
    b = \"2\"\na = \"1\"\n";

const CONTAINERD: &str = "# Kept.\nversion = 2\n\n\
    [plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"runc\"\n\n\
    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
    runtime_type = \"io.containerd.runc.v2\"\n\n\
    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n\
    SystemdCgroup = true\n";

fn base() -> BaseFiles {
    BaseFiles { storage_conf: Some(BASE.to_owned()), containerd_conf: None }
}

// covers: CRC-1, CRC-6
#[test]
fn each_setting_has_its_own_drop_in() {
    let all = settings(json!({
        "pidsLimit": 4096, "logLevel": "debug", "logSizeMax": "50M", "defaultRuntime": "crun",
        "additionalArtifactStores": [{"path": "/a"}, {"path": "/b"}],
    }));
    let made = files(&all, &base(), Engines::Crio, Delivery::DropIn, AdditionalStores::Enabled)
        .expect("files");
    let runtime = |key: &str| format!("[crio]\n  [crio.runtime]\n    {key}\n");
    let expected = [
        ("logLevel", runtime("log_level = \"debug\"")),
        ("pidsLimit", runtime("pids_limit = 4096")),
        ("logSizeMax", runtime("log_size_max = 50000000")),
        ("defaultRuntime", runtime("default_runtime = \"crun\"")),
        ("additionalArtifactStores", runtime("additional_artifact_stores = [\"/a\", \"/b\"]")),
    ]
    .map(|(name, text)| (format!("/etc/crio/crio.conf.d/01-ctrcfg-{name}"), text));
    let expected: Vec<_> =
        expected.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    assert_eq!(texts(&made.files), expected);
    assert_eq!(made.without_effect, []);

    let none = settings(json!({"logLevel": "", "defaultRuntime": "", "logSizeMax": "0"}));
    let made = files(&none, &base(), Engines::Crio, Delivery::DropIn, AdditionalStores::Enabled)
        .expect("files");
    assert_eq!(made, RuntimeFiles::default());
}

// covers: CRC-2
#[test]
fn sizes_and_stores_are_merged_into_the_storage_file() {
    let all = settings(json!({
        "overlaySize": "1.5Gi", "additionalLayerStores": [{"path": "/l"}],
        "additionalImageStores": [{"path": "/i"}],
    }));
    let made = files(&all, &base(), Engines::Crio, Delivery::DropIn, AdditionalStores::Enabled)
        .expect("files");
    let expected = "[storage]\n  driver = \"overlay\"\n  runroot = \"/run\"\n  \
        graphroot = \"/var\"\n  [storage.options]\n    additionalimagestores = [\"/i\"]\n    \
        additionallayerstores = [\"/l:ref\"]\n    size = \"1536Mi\"\n    force_mask = 0\n    \
        auto-userns-min-size = 0\n    auto-userns-max-size = 0\n    \
        [storage.options.overlay]\n      mountopt = \"nodev\"\n    \
        [storage.options.pull_options]\n      a = \"1\"\n      b = \"2\"\n";
    assert_eq!(texts(&made.files), [(STORAGE_CONF, expected.to_owned())]);

    let made = files(&all, &base(), Engines::Crio, Delivery::DropIn, AdditionalStores::Disabled)
        .expect("files");
    assert!(!texts(&made.files)[0].1.contains("additional"), "{:?}", texts(&made.files));
}

#[test]
fn a_storage_file_that_mco_does_not_know_stays_as_it_is() {
    let all = settings(json!({"overlaySize": "8G", "logLevel": "info"}));
    let made = files(
        &all,
        &BaseFiles::default(),
        Engines::Crio,
        Delivery::DropIn,
        AdditionalStores::Enabled,
    )
    .expect("files");
    assert_eq!(texts(&made.files)[0].0, "/etc/crio/crio.conf.d/01-ctrcfg-logLevel");
    assert_eq!((made.files.len(), made.without_effect[0].setting.as_str()), (1, "overlaySize"));
}

// covers: CRC-3
#[test]
fn invalid_settings_are_named_with_their_value() {
    for (value, expected) in [
        (json!({"pidsLimit": 10}), "invalid PidsLimit 10"),
        (json!({"logSizeMax": "4k"}), "invalid LogSizeMax \"4k\", cannot be less than 8kB"),
        (json!({"overlaySize": "-3Gi"}), "invalid overlaySize \"-3Gi\", cannot be less than 0"),
        (
            json!({"logLevel": "loud"}),
            "invalid LogLevel \"loud\", must be one of error, fatal, panic, warn, info, debug, or \
             trace",
        ),
        (
            json!({"defaultRuntime": "kata"}),
            "invalid DefaultRuntime \"kata\", must be one of crun, runc",
        ),
        (
            json!({"additionalLayerStores": [{"path": ""}], "additionalImageStores": [{"path": "/a//b"}]}),
            "invalid AdditionalLayerStores: path must not be empty\n\
             invalid AdditionalImageStores path \"/a//b\": must not contain consecutive forward \
             slashes",
        ),
    ] {
        let fault = check(&settings(value)).expect_err(expected).to_string();
        assert_eq!(fault, expected);
    }
    assert_eq!(check(&settings(json!({"pidsLimit": 0, "logSizeMax": "-1"}))), Ok(()));
}

#[test]
fn containerd_gets_what_it_has_and_the_rest_is_reported() {
    let all = settings(json!({
        "pidsLimit": 4096, "logLevel": "debug", "logSizeMax": "50M", "defaultRuntime": "crun",
        "overlaySize": "8G",
    }));
    let stores = AdditionalStores::Enabled;
    let made = files(&all, &base(), Engines::Containerd, Delivery::DropIn, stores).expect("files");
    let fragment = "apiVersion: kubelet.config.k8s.io/v1beta1\n\
        containerLogMaxSize: \"50000000\"\nkind: KubeletConfiguration\npodPidsLimit: 4096\n";
    let found = texts(&made.files);
    let path = "/etc/kubernetes/kubelet.conf.d/40-container-runtime.conf";
    assert_eq!(found[0], (path, fragment.to_owned()));
    assert_eq!((found.len(), found[1].0), (2, drop_in::UNIT));
    let named: Vec<&str> = made.without_effect.iter().map(|one| one.setting.as_str()).collect();
    assert_eq!(named, ["logLevel", "defaultRuntime", "overlaySize"]);

    let both = files(&all, &base(), Engines::Both, Delivery::DropIn, stores).expect("files");
    assert_eq!(both.files.len(), 7);

    let kubelet = Delivery::WholeFile;
    let own = files(&all, &base(), Engines::Containerd, kubelet, stores).expect("files");
    let path = "/etc/openshift/kubelet.conf.d/40-container-runtime.conf";
    assert_eq!(texts(&own.files), [(path, fragment.to_owned())]);

    let pids = settings(json!({"pidsLimit": 100}));
    let made = files(&pids, &base(), Engines::Containerd, kubelet, stores).expect("files");
    let fragment = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
        podPidsLimit: 100\n";
    assert_eq!(texts(&made.files), [(path, fragment.to_owned())]);
    assert_eq!(made.without_effect, []);
}

#[test]
fn containerd_of_the_base_config_is_edited_and_keeps_the_rest() {
    let base = BaseFiles { containerd_conf: Some(CONTAINERD.to_owned()), ..BaseFiles::default() };
    let with = |value| {
        let (kubelet, stores) = (Delivery::WholeFile, AdditionalStores::Enabled);
        files(&settings(value), &base, Engines::Containerd, kubelet, stores).expect("files")
    };
    let made = with(json!({"logLevel": "debug", "defaultRuntime": "crun"}));
    let cri = "plugins.\"io.containerd.grpc.v1.cri\".containerd";
    let expected = CONTAINERD.replace("_name = \"runc\"", "_name = \"crun\"")
        + &format!(
            "\n[{cri}.runtimes.crun]\nruntime_type = \"io.containerd.runc.v2\"\n\n\
             [{cri}.runtimes.crun.options]\nBinaryName = \"crun\"\nSystemdCgroup = true\n\n\
             [debug]\nlevel = \"debug\"\n"
        );
    assert_eq!(texts(&made.files), [(CONTAINERD_CONF, expected)]);
    assert_eq!(made.without_effect, []);

    // runc is the default, and nothing else needs the file.
    assert_eq!(with(json!({"defaultRuntime": "runc"})), RuntimeFiles::default());
}

#[test]
fn containerd_config_of_the_base_that_cannot_be_edited_is_an_error() {
    let crun = settings(json!({"defaultRuntime": "crun"}));
    for (text, expected) in [
        ("version = 1\n", "version must be 2 or 3, not 1"),
        ("version = 3\nplugins = 4\n", "plugins must be a table"),
        ("version = \n", "string values must be quoted, expected literal string"),
    ] {
        let base = BaseFiles { containerd_conf: Some(text.to_owned()), ..BaseFiles::default() };
        let (kubelet, stores) = (Delivery::WholeFile, AdditionalStores::Enabled);
        let error = files(&crun, &base, Engines::Containerd, kubelet, stores).expect_err(text);
        let source = std::error::Error::source(&error).expect("a source").to_string();
        assert_eq!(source, expected);
    }
}

#[test]
fn the_engines_of_a_pool_are_those_that_its_nodes_report() {
    for (versions, expected) in [
        (vec![], Engines::Crio),
        (vec!["", "docker://28"], Engines::Crio),
        (vec!["cri-o://1.33.0"], Engines::Crio),
        (vec!["containerd://2.1.4", ""], Engines::Containerd),
        (vec!["containerd://1.7.0", "cri-o://1.33.0"], Engines::Both),
    ] {
        assert_eq!(Engines::of(versions), expected);
    }
}
