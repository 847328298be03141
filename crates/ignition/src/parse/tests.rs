//! Tests of parsing whole documents.

use super::*;

fn error_text(raw: &str) -> String {
    read(raw.as_bytes()).expect_err("a bad document").to_string()
}

fn config(raw: &str) -> String {
    let document = read(raw.as_bytes()).unwrap_or_else(|error| panic!("{raw}: {error}"));
    let config = document.upgrade().expect("3.x needs no translation");
    String::from_utf8(config.to_json()).expect("JSON is text")
}

// covers: REN-20
#[test]
fn errors_are_worded_as_in_the_reference() {
    let supported = "Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5";
    let invalid = format!("parsing Ignition config failed: invalid version. {supported}");
    let unknown = format!("parsing Ignition config failed: unknown version. {supported}");
    let v3 = "parsing Ignition config spec v3 failed with error: ";
    let cases = [
        ("", format!("{v3}not a config (empty)\nReport: ")),
        ("null", invalid.clone()),
        (r#"{"ignitionVersion":1}"#, invalid.clone()),
        (r#"{"ignition":{"version":"3.5"}}"#, invalid),
        (r#"{"ignition":{"version":"3.5.1"}}"#, unknown.clone()),
        (r#"{"ignition":{"version":"3.6.0-experimental"}}"#, unknown),
        (
            "#cloud-config\n",
            format!(
                "{v3}config is not valid\nReport: error at line 1 col 1: invalid character '#' \
                 looking for beginning of value\n"
            ),
        ),
        (
            r#"{"ignition":{"version":3.2}}"#,
            format!(
                "{v3}config is not valid\nReport: error at $.ignition.version, line 1 col 24: a \
                 string is needed here, not a number\n"
            ),
        ),
        (
            r#"{"ignition":{"version":"3.2.0"}"#,
            format!(
                "{v3}config is not valid\nReport: error at line 1 col 32: unexpected end of JSON \
                 input\n"
            ),
        ),
    ];
    for (raw, expected) in cases {
        assert_eq!(error_text(raw), expected, "{raw}");
    }
}

#[test]
fn all_faults_are_reported_in_document_order() {
    let text = error_text(
        "{\n  \"ignition\": {\"version\": \"3.4.0\"},\n  \"storage\": {\n    \"files\": [\n      \
         {\"path\": \"a\", \"mode\": 99999},\n      {\"path\": \"/b\", \"colour\": 1}\n    ]\n  }\n}",
    );
    let (_, report) = text.split_once("Report: ").expect("there is a report");
    let special = "setuid/setgid/sticky bits are not supported or functional in spec versions \
                   older than 3.6.0";
    assert_eq!(
        report,
        format!(
            "error at $.storage.files.0.path, line 5 col 16: path not absolute\n\
             error at $.storage.files.0.mode, line 5 col 29: illegal file mode\n\
             warning at $.storage.files.0.mode, line 5 col 29: {special}\n\
             warning at $.storage.files.1.colour, line 6 col 22: unused key colour\n"
        )
    );
}

#[test]
fn every_value_of_the_wrong_type_is_named() {
    let text = error_text(
        r#"{"ignition":{"version":"3.5.0"},"passwd":[],"storage":{"files":[{"path":1,"mode":"0644","overwrite":"yes"},7],"links":{}}}"#,
    );
    let places: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        places,
        [
            "Report: error at $.passwd, line 1 col 43: an object is needed here, not a list",
            "error at $.storage.files.0.path, line 1 col 73: a string is needed here, not a number",
            "error at $.storage.files.0.mode, line 1 col 82: a number is needed here, not a string",
            "error at $.storage.files.0.overwrite, line 1 col 101: a bool is needed here, not a string",
            "error at $.storage.files.1, line 1 col 108: an object is needed here, not a number",
            "error at $.storage.links, line 1 col 120: a list is needed here, not an object",
        ]
    );
}

// covers: REN-20
#[test]
fn members_are_decoded_as_in_go() {
    let cases = [
        ("case is ignored", r#"{"Ignition":{"VERSION":"3.5.0"}}"#, ""),
        ("the long s is an s", "{\"ignition\":{\"ver\u{17f}ion\":\"3.5.0\"}}", ""),
        ("unknown keys are ignored", r#"{"ignition":{"version":"3.5.0"},"x":[[[]]]}"#, ""),
        (
            "null counts as absent",
            r#"{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","enabled":null}]}}"#,
            r#","systemd":{"units":[{"name":"a.service"}]}"#,
        ),
        (
            "a duplicate member is decoded on top of the first",
            r#"{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","mask":true},{"name":"b.service"}],"units":[{"enabled":true}]}}"#,
            r#","systemd":{"units":[{"enabled":true,"mask":true,"name":"a.service"}]}"#,
        ),
        (
            "a member of a later version is unknown",
            r#"{"ignition":{"version":"3.2.0"},"kernelArguments":{"shouldExist":["a"]}}"#,
            "",
        ),
        (
            "an older version has no link without a target",
            r#"{"ignition":{"version":"3.2.0"},"storage":{"links":[{"path":"/a"}]}}"#,
            r#","storage":{"links":[{"path":"/a","target":""}]}"#,
        ),
    ];
    for (case, raw, expected) in cases {
        assert_eq!(
            config(raw),
            format!(r#"{{"ignition":{{"version":"3.5.0"}}{expected}}}"#),
            "{case}"
        );
    }
}

#[test]
fn warnings_are_part_of_the_document() {
    let raw = "{\"ignition\":{\"version\":\"3.5.0\"},\n\"Storage\":{},\"x\":1}";
    let document = read(raw.as_bytes()).expect("a valid document");
    assert_eq!(document.declared(), "3.5.0");
    assert_eq!(
        document.warnings_in(raw.as_bytes()).to_string(),
        "warning at $.Storage, line 2 col 1: key Storage is read as storage\n\
         warning at $.x, line 2 col 14: unused key x\n"
    );
}

#[test]
fn conversion_from_3_4_drops_advertisements_with_a_warning() {
    let raw = |minor: u8| {
        format!(
            r#"{{"ignition":{{"version":"3.{minor}.0"}},"storage":{{"luks":[{{"name":"l","device":"/d","clevis":{{"tang":[{{"url":"http://t","thumbprint":"x","advertisement":"{{}}"}}]}}}}]}}}}"#
        )
    };
    assert!(config(&raw(5)).contains("advertisement"));
    assert!(!config(&raw(4)).contains("advertisement"));
    let document = read(raw(4).as_bytes()).expect("a valid document");
    assert_eq!(
        document.warnings().to_string(),
        "warning at $.storage.luks.0.clevis.tang.0.advertisement: advertisement is dropped unless \
         the version is 3.5.0\n"
    );
}

// covers: REN-23
#[test]
fn modes_beyond_permission_bits_are_rejected() {
    let raw = |mode: i64| {
        format!(
            r#"{{"ignition":{{"version":"3.5.0"}},"storage":{{"files":[{{"path":"/a","mode":{mode}}}]}}}}"#
        )
    };
    let check = |mode| read(raw(mode).as_bytes()).expect("a valid document").check_modes();
    assert_eq!(check(0o777), Ok(()));
    let error = check(0o1777).expect_err("a sticky file");
    assert_eq!(error.to_string(), "invalid mode 01777 for /a, cannot exceed 0777");

    let error = ModeError { path: "/a".to_owned(), mode: -5 };
    assert_eq!(error.to_string(), "invalid mode -05 for /a, cannot exceed 0777");
}

#[test]
fn check_applies_the_rules_of_the_newest_version() {
    let raw = r#"{"ignition":{"version":"3.2.0"},"storage":{"links":[{"path":"/a"}]}}"#;
    let document = read(raw.as_bytes()).expect("valid in 3.2");
    let error = document.check().expect_err("not valid in 3.5");
    assert_eq!(
        error.to_string(),
        "invalid ignition V3 config found: error at $.storage.links.0.target: link target is \
         required\n"
    );
    assert_eq!(check(&Config::default()), Ok(()), "a config without members");
}
