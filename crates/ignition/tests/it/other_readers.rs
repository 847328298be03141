//! Comparison with other parsers of the Ignition format.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use mco_ignition::{Spec, read};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::generate::config;

proptest! {
    #[test]
    fn the_crate_ignition_config_accepts_our_configs(config in config()) {
        let json = config.to_json();
        let parsed = ignition_config::Config::parse_slice(&json);
        prop_assert!(parsed.is_ok(), "{:?}\n{}", parsed.err(), String::from_utf8_lossy(&json));
        let (_, warnings) = parsed.expect("checked above");
        prop_assert!(warnings.is_empty(), "{warnings:?}");
    }
}

/// Debian's `ignition-validate` supports the specification up to 3.3.
#[test]
fn ignition_validate_agrees_with_our_validation() {
    if validate(b"{}").is_none() {
        eprintln!("skipped: ignition-validate is not installed");
        return;
    }
    for (case, json) in SAMPLES {
        let is_valid = validate(json.as_bytes()).expect("the validator ran before");
        assert_eq!(read(json.as_bytes()).is_ok(), is_valid, "{case}");
    }
    let mut runner = TestRunner::new(ProptestConfig::with_cases(32));
    runner
        .run(&config(), |mut config| {
            config.ignition.version = Spec::V3_3.to_string();
            let json = config.tree(Spec::V3_3).to_json();
            prop_assert!(read(&json).is_ok());
            prop_assert_eq!(validate(&json), Some(true));
            Ok(())
        })
        .unwrap();
}

const SAMPLES: &[(&str, &str)] = &[
    ("empty", r#"{"ignition":{"version":"3.3.0"}}"#),
    ("no version", r#"{"ignition":{}}"#),
    ("future version", r#"{"ignition":{"version":"9.9.9"}}"#),
    ("trailing data", r#"{"ignition":{"version":"3.3.0"}} x"#),
    ("relative path", r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"a"}]}}"#),
    (
        "same path twice",
        r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a"}],"links":[{"path":"/a","target":"/b"}]}}"#,
    ),
    (
        "path below a link",
        r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a/b"}],"links":[{"path":"/a","target":"/c"}]}}"#,
    ),
    (
        "bad base64",
        r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:;base64,a"}}]}}"#,
    ),
    (
        "bad unit",
        r#"{"ignition":{"version":"3.3.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit"}]}}"#,
    ),
    (
        "unit without a suffix",
        r#"{"ignition":{"version":"3.3.0"},"systemd":{"units":[{"name":"a"}]}}"#,
    ),
    (
        "raid without devices",
        r#"{"ignition":{"version":"3.3.0"},"storage":{"raid":[{"name":"a","level":"raid1"}]}}"#,
    ),
    (
        "partitions that overlap",
        r#"{"ignition":{"version":"3.3.0"},"storage":{"disks":[{"device":"/d","partitions":[{"number":1,"startMiB":1,"sizeMiB":10},{"number":2,"startMiB":5,"sizeMiB":10}]}]}}"#,
    ),
    (
        "wrong type",
        r#"{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a","mode":"0644"}]}}"#,
    ),
    ("unknown key", r#"{"ignition":{"version":"3.3.0"},"bogus":1}"#),
];

/// Runs `ignition-validate` on a config, if it is installed; returns true if the config is valid.
#[expect(clippy::disallowed_methods, reason = "the validator is another program")]
fn validate(json: &[u8]) -> Option<bool> {
    let mut child = Command::new("ignition-validate")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(json).ok()?;
    Some(child.wait().ok()?.success())
}
