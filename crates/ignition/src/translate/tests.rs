//! Tests of conversion to older versions, and of round trips.

use proptest::prelude::*;

use super::*;
use crate::config::{
    Directory, Disk, File, Group, Link, Luks, Owner, Partition, Raid, Resource, Unit, User,
};

const EVERY: [Spec; 5] = [Spec::V3_1, Spec::V3_2, Spec::V3_3, Spec::V3_4, Spec::V3_5];

fn error_text(config: &str, to: TargetVersion) -> String {
    let raw = format!(r#"{{"ignition":{{"version":"3.5.0"}},{config}}}"#);
    match convert_raw(raw.as_bytes(), to) {
        Ok(body) => String::from_utf8(body).unwrap(),
        Err(error) => error.to_string(),
    }
}

// covers: S24, S25
#[test]
fn unsupported_features_are_rejected() {
    const V3_3: &str = "not supported in spec v3.3";
    let cases = [
        (r#""storage":{"luks":[{"name":"a","device":"/a","cex":{"enabled":true}}]}"#, "3.4", "invalid input config: 'Cex' type is not supported in spec v3.4".to_owned()),
        (r#""storage":{"luks":[{"name":"a","device":"/a","discard":true}]}"#, "3.3", format!("Invalid input config: luks discard is {V3_3}")),
        (r#""storage":{"luks":[{"name":"a","device":"/a","openOptions":["x"]}]}"#, "3.3", format!("Invalid input config: luks openOptions is {V3_3}")),
        (r#""storage":{"luks":[{"name":"a","device":"/a","clevis":{"tang":[{"url":"http://t","thumbprint":"x","advertisement":"{}"}]}}]}"#, "3.3", format!("Invalid input config: tang offline provisioning is {V3_3}")),
        (r#""storage":{"files":[{"path":"/a","mode":1023}]}"#, "3.3", format!("Invalid input config: special mode bits are {V3_3}")),
        (r#""storage":{"files":[{"path":"/a","contents":{"source":"arn:aws:s3:::b/k"}}]}"#, "3.3", format!("Invalid input config: arn: scheme for s3 is {V3_3}")),
        (r#""kernelArguments":{"shouldExist":["a"]}"#, "3.2", "KernelArguments is not supported on 3.2".to_owned()),
        (r#""storage":{"luks":[{"name":"a","device":"/a"}]}"#, "3.1", "LUKS is not supported on 3.1".to_owned()),
        (r#""passwd":{"users":[{"name":"a","shouldExist":false}]}"#, "3.1", "ShouldExist in Passwd.Users is not supported on 3.1".to_owned()),
        (r#""passwd":{"groups":[{"name":"a","shouldExist":false}]}"#, "2.2", "ShouldExist in Passwd.Groups is not supported on 2.2".to_owned()),
        (r#""storage":{"disks":[{"device":"/a","partitions":[{"number":1,"resize":true}]}]}"#, "2.2", "Resize in Storage.Disks.Partitions is not supported on 2.2".to_owned()),
        (r#""storage":{"disks":[{"device":"/a","partitions":[{"number":1,"sizeMiB":1}]}]}"#, "2.2", "SizeMiB and StartMiB in Storage.Disks.Partitions is not supported on 2.2".to_owned()),
        (r#""systemd":{}"#, "3.0", "conversion for source version 3.5.0 to target version 3.0.0 is not supported the requested conversion is not supported".to_owned()),
    ];
    for (config, to, expected) in cases {
        assert_eq!(error_text(config, to.parse().unwrap()), expected, "{config}");
    }
}

// covers: S12
#[test]
fn an_empty_config_is_32_bytes_in_every_version() {
    for to in ["2.2.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"] {
        let body = convert(Config::empty(), to.parse().unwrap()).unwrap();
        let expected = format!(r#"{{"ignition":{{"version":"{to}"}}}}"#);
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert_eq!(expected.len(), 32);
    }
}

#[test]
fn the_error_has_the_path_of_the_feature() {
    let mut config = Config::empty();
    let luks = Luks { name: "a".to_owned(), device: Some("/a".to_owned()), ..Luks::default() };
    config.storage.luks = vec![luks.clone(), Luks { name: "b".to_owned(), ..luks }];
    config.storage.luks[1].cex.enabled = Some(true);
    let Err(ConvertError::Unsupported { path, .. }) =
        convert(config, TargetVersion::V3(Spec::V3_4))
    else {
        panic!("the crypto card of a volume must not be dropped");
    };
    assert_eq!(path.to_string(), "$.storage.luks.1.cex.enabled");
}

#[test]
fn an_advertisement_is_kept_in_versions_that_support_it() {
    let tang = r#"{"url":"http://t","thumbprint":"x","advertisement":"{}"}"#;
    let luks = format!(
        r#""storage":{{"luks":[{{"name":"a","device":"/a","clevis":{{"tang":[{tang}]}}}}]}}"#
    );
    let body = error_text(&luks, TargetVersion::V3(Spec::V3_4));
    assert!(body.contains(r#"{"advertisement":"{}","thumbprint":"x","url":"http://t"}"#), "{body}");
}

#[test]
fn a_file_in_2_2_is_on_the_filesystem_whose_path_is_its_prefix() {
    let body = error_text(
        r#""storage":{"filesystems":[{"device":"/d","format":"xfs","path":"/var"},{"device":"/e","format":"xfs"}],
            "files":[{"path":"/var/lib/a","contents":{"source":"data:,"},"append":[{"source":"data:,b"}],"overwrite":true},
                {"path":"/etc/a"},{"path":"/etc/b","contents":{"source":""}}]}"#,
        TargetVersion::V2_2,
    );
    let expected = concat!(
        r#"{"ignition":{"version":"2.2.0"},"storage":{"files":["#,
        r#"{"filesystem":"/var","overwrite":true,"path":"/lib/a","contents":{"source":"data:,"}},"#,
        r#"{"filesystem":"/var","overwrite":false,"path":"/lib/a","append":true,"contents":{"source":"data:,b"}},"#,
        r#"{"filesystem":"root","overwrite":false,"path":"/etc/b"}],"filesystems":["#,
        r#"{"mount":{"device":"/d","format":"xfs"},"name":"/var"},"#,
        r#"{"mount":{"device":"/e","format":"xfs"},"name":"1"}]}}"#,
    );
    assert_eq!(body, expected);
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-z<& ]{0,4}")
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        Just(Owner::default()),
        (0..9_i64).prop_map(|id| Owner { id: Some(id), name: None }),
        "[a-z]{1,3}".prop_map(|name| Owner { id: None, name: Some(name) }),
    ]
}

fn resource() -> impl Strategy<Value = Resource> {
    let source = prop_oneof![Just("data:,a%20b"), Just("data:;base64,aGk="), Just("https://h/x")];
    let compression =
        prop_oneof![Just(None), Just(Some(String::new())), Just(Some("gzip".to_owned()))];
    (source, compression).prop_map(|(source, compression)| Resource {
        compression,
        source: Some(source.to_owned()),
        ..Resource::default()
    })
}

prop_compose! {
    fn file()(
        group in owner(), user in owner(), mode in proptest::option::of(0..0o777_i64),
        overwrite in proptest::option::of(any::<bool>()), contents in resource(),
        append in proptest::collection::vec(resource(), 0..2),
    ) -> File {
        File { group, overwrite, path: String::new(), user, append, contents, mode }
    }
}

prop_compose! {
    fn user()(
        gecos in text(), shell in text(), uid in proptest::option::of(0..9_i64),
        system in proptest::option::of(any::<bool>()),
        keys in proptest::collection::hash_set("[a-z]{2}", 0..3),
    ) -> User {
        let ssh_authorized_keys = keys.into_iter().collect();
        User { gecos, ssh_authorized_keys, shell, system, uid, ..User::default() }
    }
}

prop_compose! {
    fn unit()(
        enabled in proptest::option::of(any::<bool>()), mask in proptest::option::of(any::<bool>()),
        contents in proptest::option::of(Just("[Unit]\nA=b\n".to_owned())),
    ) -> Unit {
        Unit { contents, enabled, mask, ..Unit::default() }
    }
}

prop_compose! {
    /// Generates configs that all versions support.
    fn common()(
        mut files in proptest::collection::vec(file(), 0..3),
        mut users in proptest::collection::vec(user(), 0..3),
        mut units in proptest::collection::vec(unit(), 0..3),
        target in "/t[a-z]{0,3}", hard in proptest::option::of(any::<bool>()),
        wipe_table in proptest::option::of(any::<bool>()), label in "[a-z]{1,3}",
        password_hash in text(),
    ) -> Config {
        let named = |kind: &str, at: usize| format!("{kind}{at}");
        files.iter_mut().enumerate().for_each(|(at, it)| it.path = named("/file", at));
        users.iter_mut().enumerate().for_each(|(at, it)| it.name = named("user", at));
        units.iter_mut().enumerate().for_each(|(at, it)| it.name = named("u", at) + ".service");
        let mut config = Config::empty();
        config.storage.directories = vec![Directory { path: "/d".to_owned(), ..Directory::default() }];
        config.storage.links = vec![Link { path: "/l".to_owned(), target: Some(target), hard, ..Link::default() }];
        let partitions = vec![Partition { label: Some(label), number: 1, ..Partition::default() }];
        config.storage.disks = vec![Disk { device: "/dev/a".to_owned(), partitions, wipe_table }];
        let devices = vec!["/dev/b".to_owned()];
        let raid = Raid { name: "md".to_owned(), level: Some("raid1".to_owned()), devices, ..Raid::default() };
        config.storage.raid = vec![raid];
        config.storage.files = files;
        config.passwd.groups = vec![Group { name: "g".to_owned(), password_hash, ..Group::default() }];
        config.passwd.users = users;
        config.systemd.units = units;
        config
    }
}

proptest! {
    #[test]
    fn a_config_survives_conversion_down_and_up(config in common()) {
        for spec in EVERY {
            let body = convert(config.clone(), TargetVersion::V3(spec)).unwrap();
            let back = read(&body).unwrap().upgrade().unwrap();
            prop_assert_eq!(&back, &config, "by way of {}", spec);
        }
    }

    #[test]
    fn a_text_survives_conversion_up_and_down(config in common()) {
        for spec in EVERY {
            let text = convert(config.clone(), TargetVersion::V3(spec)).unwrap();
            prop_assert_eq!(convert_raw(&text, TargetVersion::V3(spec)).unwrap(), text);
        }
    }

    #[test]
    fn conversion_never_panics(text in "\\{.{0,40}\\}", to in 0..7_usize) {
        let _ = convert_raw(text.as_bytes(), TargetVersion::ALL[to]);
    }
}
