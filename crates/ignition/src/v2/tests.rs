//! Tests of 2.x configs, from parsing to conversion to the newest version.

use crate::{ReadError, TargetVersion, convert, read};

fn upgraded(version: &str, members: &str) -> String {
    let raw = format!(r#"{{"ignition":{{"version":"{version}"}},{members}}}"#);
    let document = match read(raw.as_bytes()) {
        Ok(document) => document,
        Err(ReadError::V2 { report, .. }) => return report.to_string().trim_end().to_owned(),
        Err(error) => return error.to_string(),
    };
    match document.upgrade() {
        Ok(config) => String::from_utf8(config.to_json()).unwrap(),
        Err(error) => error.to_string().rsplit(": ").next().unwrap_or_default().to_owned(),
    }
}

// covers: REN-20
#[test]
fn a_file_is_replaced_by_default() {
    let file = |more: &str| {
        let file = format!(r#"{{"filesystem":"root","path":"/a//b/../c"{more}}}"#);
        upgraded("2.2.0", &format!(r#""storage":{{"files":[{file}]}}"#))
    };
    let with = |members: &str| {
        format!(r#"{{"ignition":{{"version":"3.5.0"}},"storage":{{"files":[{{{members}}}]}}}}"#)
    };
    let path = r#""path":"/a/c""#;
    let cases = [
        ("", with(&format!(r#""overwrite":true,{path},"contents":{{"source":""}}"#))),
        (
            r#","overwrite":false"#,
            with(&format!(r#""overwrite":false,{path},"contents":{{"source":""}}"#)),
        ),
        (
            r#","append":true"#,
            with(&format!(r#""overwrite":false,{path},"append":[{{"source":""}}]"#)),
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(file(more), expected, "{more}");
    }
}

// covers: REN-20
#[test]
fn values_that_older_versions_imply_are_set() {
    let members = r#""storage":{"files":[{"filesystem":"root","path":"/a","overwrite":"?"}]}"#;
    let contents = r#""contents":{"source":""},"mode":0"#;
    let of = |owner: &str, user: &str| {
        let file = format!(r#"{{{owner}"overwrite":true,"path":"/a",{user}{contents}}}"#);
        format!(r#"{{"ignition":{{"version":"3.5.0"}},"storage":{{"files":[{file}]}}}}"#)
    };
    assert_eq!(upgraded("2.1.0", members), of("", ""));
    assert_eq!(upgraded("2.0.0", members), of(r#""group":{"id":0},"#, r#""user":{"id":0},"#));
    let fault = upgraded("2.2.0", members);
    assert!(fault.contains("$.storage.files.0.overwrite"), "{fault}");
}

#[test]
fn features_that_3_x_does_not_support_are_rejected() {
    let node = |path: &str| format!(r#"{{"filesystem":"root","path":"{path}"}}"#);
    let cases = [
        (
            r#""networkd":{"units":[{"name":"a.network"}]}"#.to_owned(),
            "config includes deprecated networkd section - use Files instead",
        ),
        (
            r#""storage":{"filesystems":[{"name":"data","path":"/data"}]}"#.to_owned(),
            "Config defined filesystem \"data\" but no mapping was defined.Please specify a path \
             to be used as the filesystem mountpoint.",
        ),
        (
            format!(r#""storage":{{"files":[{}],"directories":[{}]}}"#, node("/a"), node("/a/")),
            // The text after the last colon.
            "/a\".  All files, directories and links must specify a unique `path`.",
        ),
        (
            format!(r#""storage":{{"files":[{}],"links":[{}]}}"#, node("/a/b"), node("/a")),
            "/a/b uses link defined in config \"/a\". Please use a link not defined in \
             Storage:Links",
        ),
        (r#""passwd":{"users":[{"name":"root"}]}"#.to_owned(), "root. Only core user is supported"),
    ];
    for (members, expected) in cases {
        assert_eq!(upgraded("2.2.0", &members), expected, "{members}");
    }
}

#[test]
fn all_faults_are_reported_at_once() {
    let members = r#""storage":{"files":[{"path":"a","mode":-1,"contents":{"source":"ftp://x","compression":"zstd","verification":{"hash":"md5-0"}}}]},"systemd":{"units":[{"name":"a"}]}"#;
    let report = upgraded("2.2.0", members);
    let lines: Vec<_> = report.lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "no filesystem specified",
            "path not absolute",
            "illegal file mode",
            "invalid url scheme",
            "invalid compression method",
            "unrecognized hash function",
            "invalid systemd unit extension",
        ],
        "{report}"
    );
}

#[test]
fn a_config_of_2_2_survives_conversion_up_and_down() {
    let members = r#""passwd":{"users":[{"name":"core","gecos":"g"}]},"storage":{"files":[{"filesystem":"root","path":"/a","contents":{"source":"data:,x"},"mode":420}]},"systemd":{"units":[{"contents":"[Unit]\n","enabled":true,"name":"a.service"}]}"#;
    let raw = format!(r#"{{"ignition":{{"version":"2.2.0"}},{members}}}"#);
    let config = read(raw.as_bytes()).unwrap().upgrade().unwrap();
    let body = convert(config.clone(), TargetVersion::V2_2).unwrap();
    assert_eq!(read(&body).unwrap().upgrade().unwrap(), config);
}
