//! Tests of drift detection and of its messages.

use super::*;
use crate::fixture::machine;

fn found(mode: u32, contents: &str) -> Observed {
    let (mode, contents) = (Mode::from_kernel(mode), contents.as_bytes().to_vec());
    Observed::Present { mode, contents, owner: None }
}

fn judge(config: &Machine, at: usize, observed: &Observed) -> String {
    let expected = expected(config);
    compare(&expected[at], observed).map(|drift| drift.to_string()).unwrap_or_default()
}

// covers: C94
#[test]
fn a_file_drifts_by_contents_mode_kind_and_absence() {
    let config = machine("c", "/etc/foo=a");
    let cases = [
        (found(0o100_644, "a"), ""),
        (found(0o100_644, "b"), "content mismatch for file \"/etc/foo\""),
        (
            found(0o100_600, "a"),
            "mode mismatch for file: \"/etc/foo\"; expected: -rw-r--r--/420/0644; received: -rw-------/384/0600",
        ),
        (
            found(0o104_644, "a"),
            "mode mismatch for file: \"/etc/foo\"; expected: -rw-r--r--/420/0644; received: urw-r--r--/8389028/040000644",
        ),
        (
            found(0o120_777, "a"),
            "mode mismatch for file: \"/etc/foo\"; expected: -rw-r--r--/420/0644; received: Lrwxrwxrwx/134218239/01000000777",
        ),
        (
            Observed::Missing,
            "could not stat file \"/etc/foo\": lstat /etc/foo: no such file or directory",
        ),
    ];
    for (observed, want) in cases {
        assert_eq!(judge(&config, 0, &observed), want);
    }
}

#[test]
fn a_file_drifts_by_owner_where_its_config_names_one() {
    let id = |id| (Some(id), None);
    let name = |name: &str| (None, Some(name.to_owned()));
    let silent = (None, None);
    // user and group of the config, user and group as found, message
    let cases = [
        (silent.clone(), silent.clone(), (7, ""), (7, ""), ""),
        (id(0), id(0), (0, ""), (0, ""), ""),
        (id(0), silent.clone(), (1, ""), (7, ""), "expected: 0:any; received: 1:7"),
        (id(1000), id(1000), (1000, ""), (0, ""), "expected: 1000:1000; received: 1000:0"),
        (name("core"), name("core"), (1000, "core"), (1000, "core"), ""),
        (name("core"), name("core"), (0, ""), (0, ""), "expected: core:core; received: 0:0"),
        (
            (Some(-1), Some("core".to_owned())),
            silent,
            (0, ""),
            (0, ""),
            "expected: core:any; received: 0:0",
        ),
    ];
    for (user, group, found_user, found_group, message) in cases {
        let mut config = machine("c", "/etc/foo=a");
        let file = &mut config.config.storage.files[0];
        (file.user.id, file.user.name) = user;
        (file.group.id, file.group.name) = group;
        let found = |(id, name): (u32, &str)| FoundAccount {
            id,
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        };
        let observed = Observed::Present {
            mode: Mode::file(0o644),
            contents: b"a".to_vec(),
            owner: Some(FoundOwner { user: found(found_user), group: found(found_group) }),
        };
        let prefix = "owner mismatch for file: \"/etc/foo\"; ";
        let expected =
            if message.is_empty() { String::new() } else { format!("{prefix}{message}") };
        assert_eq!(judge(&config, 0, &observed), expected);
    }
}

// covers: C99
#[test]
fn masked_units_and_empty_dropins_do_not_drift() {
    let mut config = machine("c", "a.service=x a.service/e.conf=");
    config.config.systemd.units[0].mask = Some(true);
    assert_eq!(judge(&config, 0, &Observed::Link("/dev/null".to_owned())), "");
    assert_eq!(
        judge(&config, 0, &Observed::Link("/etc/x".to_owned())),
        "state validation: invalid unit masked setting. path: \"/etc/systemd/system/a.service\"; expected: /dev/null; received: /etc/x"
    );
    assert_eq!(
        judge(&config, 0, &Observed::Missing),
        "state validation: error while evaluation symlink for path \"/etc/systemd/system/a.service\": lstat /etc/systemd/system/a.service: no such file or directory"
    );
    assert_eq!(judge(&config, 1, &Observed::Missing), "");
    assert_eq!(judge(&config, 1, &found(0o100_644, "")), "");
    assert_eq!(
        judge(&config, 1, &found(0o100_644, "x")),
        "content mismatch for file \"/etc/systemd/system/a.service.d/e.conf\""
    );
}

#[test]
fn a_unit_drifts_by_contents_and_enablement() {
    let mut config = machine("c", "a.service=x b.service");
    assert_eq!(expected(&config).len(), 2, "units without contents belong to the system");
    assert_eq!(judge(&config, 0, &found(0o100_644, "x")), "");
    let cases = [
        (true, "enabled", ""),
        (true, "static", ""),
        (
            true,
            "disabled",
            "unit \"a.service\" expected enabled=true, but systemd reports \"disabled\"",
        ),
        (false, "disabled", ""),
        (
            false,
            "enabled",
            "unit \"a.service\" expected enabled=false, but systemd reports \"enabled\"",
        ),
    ];
    for (want, says, text) in cases {
        config.config.systemd.units[0].enabled = Some(want);
        assert_eq!(judge(&config, 1, &Observed::Enablement(says.to_owned())), text);
    }
}

#[test]
fn cluster_files_are_skipped_and_unusable_files_are_reported() {
    let mut config = machine("c", "/etc/kubernetes/kubelet-ca.crt=a /etc/x=a /etc/y=a");
    config.config.storage.files[1].contents.compression = Some("zstd".to_owned());
    config.config.storage.files[2].append.push(mco_ignition::config::Resource::default());
    assert_eq!(expected(&config).len(), 2);
    assert_eq!(
        judge(&config, 0, &Observed::Missing),
        "couldn't decode file \"/etc/x\": unsupported compression type \"zstd\""
    );
    assert_eq!(
        judge(&config, 1, &Observed::Missing),
        "found an append section when checking files. Append is not supported"
    );
}

// covers: C31, C32
#[test]
fn the_booted_system_is_compared_too() {
    let config = machine("c", "os:b karg:quiet karg:a=1");
    let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let judge =
        |image, text| compare_system(&config.spec, image, &arguments(text)).map(|d| d.to_string());
    assert_eq!(judge(Some("b"), "root=x quiet a=1"), None);
    assert_eq!(judge(None, "quiet a=1"), None);
    assert_eq!(
        judge(Some("a"), "").as_deref(),
        Some("expected target osImageURL \"b\", have \"a\"")
    );
    assert_eq!(
        judge(Some("b"), "root=x").as_deref(),
        Some("missing expected kernel arguments: [quiet a=1]")
    );
}

// covers: C85, C99
#[test]
fn no_image_and_no_answer_are_no_drift() {
    let config = crate::fixture::machine("config", "/etc/a=1");
    assert_eq!(compare_system(&config.spec, Some("booted"), &[]), None, "no image, no opinion");
    let unit = Expected { path: "a.service".to_owned(), want: Want::Enabled(true) };
    let outage = Observed::Unreadable("failed to reach systemd".to_owned());
    assert_eq!(compare(&unit, &outage), None);
    let file = Expected { path: "/etc/a".to_owned(), want: Want::EmptyOrAbsent };
    assert!(compare(&file, &outage).is_some(), "a file that cannot be read is drift");
}
