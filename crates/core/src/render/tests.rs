use proptest::prelude::*;

use super::*;
use crate::fixture::{self, ignition, machine_config};

fn images() -> BaseImages {
    BaseImages { os: "base-os".to_owned(), extensions: "base-extensions".to_owned() }
}

fn render(configs: &[MachineConfig]) -> Result<Rendered, RenderError> {
    let configs: Vec<&MachineConfig> = configs.iter().collect();
    pool(&"worker".parse().expect("a valid pool name"), &configs, &images())
}

fn rendered(configs: &[MachineConfig]) -> Rendered {
    render(configs).expect("valid configs")
}

fn json(rendered: &Rendered) -> serde_json::Value {
    let config = rendered.spec.config.as_ref().expect("a rendered config has an Ignition config");
    serde_json::from_str(config.get()).expect("JSON")
}

fn file(path: &str, rest: &str) -> String {
    format!(
        r#"{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{{"path":"{path}"{rest}}}]}}}}"#
    )
}

fn with(name: &str, role: &str, change: impl FnOnce(&mut MachineConfigSpec)) -> MachineConfig {
    let mut config = machine_config(name, role);
    change(&mut config.spec);
    config
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

// covers: REN-4, REN-5
#[test]
fn configs_of_a_custom_pool_outrank_those_of_workers_regardless_of_names() {
    let configs = [
        ignition("00-x", "infra", &file("/etc/a", r#","contents":{"source":"data:,infra"}"#)),
        ignition("99-y", "worker", &file("/etc/a", r#","contents":{"source":"data:,worker"}"#)),
        machine_config("50-b", "worker"),
    ];
    let rendered = rendered(&configs);
    assert_eq!(rendered.sources, ["50-b", "99-y", "00-x"]);
    assert_eq!(json(&rendered)["storage"]["files"][0]["contents"]["source"], "data:,infra");
}

// covers: REN-10, REN-11
#[test]
fn the_last_config_of_the_user_sets_the_images() {
    let by_hand = |name, url: &str| {
        with(name, "worker", |spec| {
            spec.os_image_url = url.to_owned();
            spec.base_os_extensions_container_image = format!("{url}-extensions");
        })
    };
    let mut generated = by_hand("99-z", "ignored");
    let key = mco_api::annotation::GENERATED_BY_CONTROLLER_VERSION.name().to_owned();
    generated.metadata.annotations = Some([(key, "v1".to_owned())].into());

    let none = rendered(&[machine_config("a", "worker"), generated.clone()]);
    assert_eq!((none.spec.os_image_url.as_str(), none.os_image), ("base-os", OsImage::Base));

    let two = rendered(&[by_hand("b", "second"), by_hand("a", "first"), generated]);
    assert_eq!(two.spec.os_image_url, "second");
    assert_eq!(two.spec.base_os_extensions_container_image, "second-extensions");
    assert_eq!(two.os_image, OsImage::Overridden);
}

// covers: REN-12, REN-13, REN-14, REN-15
#[test]
fn settings_are_combined_in_merge_order() {
    let arguments = |name, list: &[&str], kernel: &str, fips| {
        with(name, "worker", |spec| {
            spec.kernel_arguments = texts(list);
            spec.extensions = texts(&["usbguard"]);
            spec.kernel_type = kernel.to_owned();
            spec.fips = fips;
        })
    };
    let rendered = rendered(&[
        arguments("3", &["a"], "default", false),
        arguments("1", &["a", "x=1"], "realtime", true),
        arguments("2", &["b"], "64k-pages", false),
    ]);
    assert_eq!(rendered.spec.kernel_arguments, ["a", "x=1", "b", "a"]);
    assert_eq!(rendered.spec.extensions, ["usbguard", "usbguard", "usbguard"]);
    assert_eq!(rendered.spec.kernel_type, "64k-pages", "a later default does not undo it");
    assert!(rendered.spec.fips);
}

// covers: REN-14, REN-16, REN-20, REN-21, REN-23
#[test]
fn invalid_configs_are_refused_in_the_words_of_the_reference() {
    let empty = r#"{"ignition":{"version":"3.2.0"}}"#;
    let spec_2 = r#"{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"bob"}]}}"#;
    let mut unknown_extension = ignition("a", "worker", empty);
    unknown_extension.spec.extensions = texts(&["usbguard", "nope", "nada"]);
    let mut no_labels = machine_config("a", "worker");
    no_labels.metadata.labels = None;
    let kernel = |kernel: &str| with("a", "worker", |spec| spec.kernel_type = kernel.to_owned());
    let headers = with("b", "worker", |spec| spec.extensions = texts(&["kernel-devel"]));
    let cases = [
        (vec![kernel("fast")], Stage::Validate, "kernelType=fast is invalid"),
        (vec![unknown_extension], Stage::Validate, "invalid extensions found: [nope nada]"),
        (
            vec![ignition("a", "worker", r#"{"ignition":{"version":"3.9.0"}}"#)],
            Stage::Validate,
            "unknown version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5",
        ),
        (
            vec![ignition("a", "worker", &file("/etc/a", r#","mode":1023"#))],
            Stage::Validate,
            "invalid mode 01777 for /etc/a, cannot exceed 0777",
        ),
        (
            vec![ignition("a", "worker", spec_2)],
            Stage::Merge,
            "unexpected user with name: bob. Only core user is supported",
        ),
        (
            vec![kernel("realtime"), headers],
            Stage::Merge,
            "installing kernel-devel extension is not supported with kernelType: realtime",
        ),
        (vec![no_labels], Stage::Merge, "cannot find label in MachineConfig a"),
        (vec![], Stage::Merge, "no MachineConfigs to render for pool worker"),
    ];
    for (configs, stage, words) in cases {
        let error = render(&configs).expect_err(words);
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        assert!(text.contains(words), "{words}\n{text}");
        assert_eq!(error.stage(), stage, "{words}");
    }
}

// covers: REN-14
#[test]
fn extensions_of_a_config_without_ignition_are_not_checked() {
    let config = with("a", "worker", |spec| spec.extensions = texts(&["nope"]));
    assert_eq!(rendered(&[config]).spec.extensions, ["nope"]);
}

// covers: REN-17, REN-18, REN-19
#[test]
fn contents_and_compression_of_a_file_merge_together() {
    let zipped =
        file("/etc/a", r#","mode":420,"contents":{"source":"data:,zip","compression":"gzip"}"#);
    let plain = file("/etc/a", r#","contents":{"source":"data:,plain"}"#);
    let rendered = rendered(&[ignition("1", "worker", &zipped), ignition("2", "worker", &plain)]);
    let expected = serde_json::json!([{
        "path": "/etc/a", "overwrite": true, "mode": 420, "contents": {"source": "data:,plain"}
    }]);
    assert_eq!(json(&rendered)["storage"]["files"], expected);
}

// covers: REN-22
#[test]
fn remote_contents_are_not_fetched() {
    let remote = file("/etc/a", r#","contents":{"source":"https://example.com/a"}"#);
    let rendered = rendered(&[ignition("1", "worker", &remote)]);
    assert_eq!(
        json(&rendered)["storage"]["files"][0]["contents"]["source"],
        "https://example.com/a"
    );
}

// covers: REN-24
#[test]
fn the_name_is_the_hash_of_the_salted_yaml() {
    let mut config = ignition("a", "worker", r#"{"ignition":{"version":"3.5.0"}}"#);
    config.spec.os_image_url = "dummy".to_owned();
    let name = pool(&"infra".parse().unwrap(), &[&config], &BaseImages::default()).unwrap().name;
    assert_eq!(name.as_str(), "rendered-infra-cb0043ecf7b86a06a4f0c62554f9b88b");
}

// covers: REN-27
#[test]
fn rendering_again_gives_the_same_bytes() {
    let config = ignition("a", "worker", &file("/etc/a", r#","contents":{"source":"data:,x"}"#));
    let (first, second) = (rendered(std::slice::from_ref(&config)), rendered(&[config]));
    assert_eq!((first.name, first.spec), (second.name, second.spec));
}

proptest! {
    // covers: REN-27
    #[test]
    fn any_order_of_arrival_gives_the_same_name(
        (sorted, shuffled) in configs().prop_flat_map(|configs| {
            (Just(configs.clone()), Just(configs).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(rendered(&sorted).name, rendered(&shuffled).name);
    }
}

/// Generates up to six configs of two roles with common files and units.
fn configs() -> impl Strategy<Value = Vec<MachineConfig>> {
    let one = (0..3_u8, 0..4_u8, any::<bool>(), "[a-z%20]{0,8}|.{0,8}", any::<bool>());
    proptest::collection::vec(one, 1..6).prop_map(|all| {
        let each = all.into_iter().enumerate();
        each.map(|(index, (path, name, custom, text, enabled))| {
            let text = text.replace(|c: char| c.is_control() || c > '\u{fff}', "");
            let json = serde_json::json!({
                "ignition": {"version": "3.4.0"},
                "storage": {"files": [{
                    "path": format!("/etc/{path}"),
                    "contents": {"source": mco_ignition::data_url::encode(text.as_bytes())},
                }]},
                "systemd": {"units": [{
                    "name": format!("{path}.service"), "enabled": enabled,
                    "dropins": [{"name": format!("{name}.conf"), "contents": format!("# {text}\n")}],
                }]},
            });
            let role = if custom { "infra" } else { "worker" };
            ignition(&format!("{name}-{index}"), role, &json.to_string())
        })
        .collect()
    })
}

// covers: REN-26, REN-35
#[test]
fn the_object_belongs_to_its_pool_and_names_its_controller() {
    let origin =
        Origin { controller_version: "abc".to_owned(), release_version: "4.20.1".to_owned() };
    let mut owner = fixture::pool("worker", "{}");
    owner.metadata.uid = Some("1-2-3".to_owned());

    let base = rendered(&[machine_config("a", "worker")]);
    let object = serde_json::to_value(base.object(&owner, &origin).unwrap()).unwrap();
    let expected = serde_json::json!({
        "name": base.name,
        "annotations": {
            "machineconfiguration.openshift.io/generated-by-controller-version": "abc",
            "machineconfiguration.openshift.io/release-image-version": "4.20.1",
        },
        "ownerReferences": [{
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "name": "worker", "uid": "1-2-3", "controller": true, "blockOwnerDeletion": true,
        }],
    });
    assert_eq!(object["metadata"], expected);

    let custom = with("a", "worker", |spec| spec.os_image_url = "mine".to_owned());
    let custom = rendered(&[custom]);
    let object = serde_json::to_value(custom.object(&owner, &origin).unwrap()).unwrap();
    let overridden = "machineconfiguration.openshift.io/os-image-url-overridden";
    assert_eq!(object["metadata"]["annotations"][overridden], "true");

    owner.spec.os_image_stream = serde_json::from_str(r#"{"name":"rhel-10"}"#).unwrap();
    assert!(base.object(&owner, &origin).is_ok());
    let refused = custom.object(&owner, &origin).expect_err("config and pool set the image");
    assert!(refused.to_string().contains("osImageStream.name simultaneously"), "{refused}");
}

// covers: REN-32
#[test]
fn an_object_larger_than_the_limit_of_etcd_is_refused() {
    let of_size = |bytes: usize| {
        let source = format!(r#","contents":{{"source":"data:,{}"}}"#, "x".repeat(bytes));
        let rendered = rendered(&[ignition("a", "worker", &file("/a", &source))]);
        let object = MachineConfig::new(rendered.name.as_str(), rendered.spec.clone());
        rendered.check_size(&object)
    };
    assert_eq!(of_size(1_000_000).unwrap(), None);
    let close = of_size(1_300_000).unwrap().expect("a warning");
    assert!((1_300_000..1_301_000).contains(&close.size), "{close:?}");
    let refused = of_size(1_572_864).expect_err("too large").to_string();
    assert!(refused.starts_with("size validation failed: rendered MachineConfig rendered-worker-"));
    assert!(refused.contains("max 1572864 bytes"), "{refused}");
}

#[test]
fn provenance_names_every_contributing_config() {
    let unit = |name: &str, unit: &str| {
        let json = format!(
            r#"{{"ignition":{{"version":"3.2.0"}},"systemd":{{"units":[{unit}]}},
                "passwd":{{"users":[{{"name":"core","sshAuthorizedKeys":["{name}"]}}]}}}}"#
        );
        ignition(name, "worker", &json)
    };
    let mut last = unit("3", r#"{"name":"a.service","enabled":false}"#);
    last.spec.kernel_arguments = texts(&["nosmt"]);
    last.spec.kernel_type = "realtime".to_owned();
    let rendered = rendered(&[
        unit("1", r#"{"name":"a.service","enabled":true,"contents":"[Unit]"}"#),
        unit("2", r#"{"name":"a.service","dropins":[{"name":"x.conf","contents":"[Unit]"}]}"#),
        last,
    ]);
    let provenance = &rendered.provenance;
    assert_eq!(provenance.winner(Kind::Unit, "a.service", "contents"), Some("1"));
    assert_eq!(provenance.winner(Kind::Unit, "a.service", "enabled"), Some("3"));
    assert_eq!(provenance.winner(Kind::Dropin, "a.service/x.conf", "contents"), Some("2"));
    let contributors = |kind, key: &str| {
        provenance.of(kind, key).iter().map(|contribution| contribution.config).collect::<Vec<_>>()
    };
    assert_eq!(contributors(Kind::User, "core"), [0, 1, 2]);
    assert_eq!(contributors(Kind::KernelArgument, "nosmt"), [2]);
    assert_eq!(contributors(Kind::Setting, "kernelType"), [2]);
    assert_eq!(contributors(Kind::Path, "/nowhere"), [0; 0]);
}

// covers: REN-17
#[test]
fn configs_whose_paths_exclude_one_another_are_not_rendered() {
    let with_file = |name: &str, path: &str| {
        let text = format!(
            r#"{{"ignition": {{"version": "3.5.0"}}, "storage": {{"files": [{{"path": "{path}"}}]}}}}"#
        );
        ignition(name, "worker", &text)
    };
    let (above, below) = (with_file("10-above", "/etc/a"), with_file("20-below", "/etc/a/b"));
    let other = with_file("30-other", "/etc/ab");
    let name: PoolName = "worker".parse().unwrap();
    let error = pool(&name, &[&other, &below, &above], &BaseImages::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no node of pool worker can apply its MachineConfigs (10-above, 20-below)"
    );
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "/etc/a/b is below /etc/a, which is a file of the same config");
    assert!(pool(&name, &[&other, &above], &BaseImages::default()).is_ok());
}
