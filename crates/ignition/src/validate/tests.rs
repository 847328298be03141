//! Tests of the validation rules, one table per kind of object.

use crate::{parse, report::Report};

/// Returns the faults of a document of version 3.`minor`, one per line, without positions.
fn report(minor: u8, body: &str) -> String {
    let raw = format!(r#"{{"ignition":{{"version":"3.{minor}.0"}},{body}}}"#);
    let show = |report: &Report| {
        let lines = report.faults.iter().map(|fault| {
            let sign = if fault.to_string().starts_with("error") { "" } else { "(" };
            let path = fault.path.to_string();
            format!("{sign}{} {}", path.trim_start_matches("$."), fault.message)
        });
        lines.collect::<Vec<_>>().join("; ")
    };
    match parse::read(raw.as_bytes()) {
        Ok(document) => show(document.warnings()),
        Err(error) => show(error.report().expect("the version is known")),
    }
}

fn expect(cases: &[(u8, &str, &str)]) {
    for (minor, body, expected) in cases {
        assert_eq!(report(*minor, body), *expected, "3.{minor} {body}");
    }
}

fn expect_in(list: &str, cases: &[(u8, &str, &str)]) {
    for (minor, item, expected) in cases {
        let body = format!(r#""storage":{{"{list}":[{item}]}}"#);
        let path = format!("storage.{list}.0");
        let reported = report(*minor, &body).replace(&path, "");
        assert_eq!(reported, *expected, "3.{minor} {item}");
    }
}

#[test]
fn paths_are_absolute_and_clean() {
    expect_in(
        "directories",
        &[
            (5, r#"{"path":"/etc"}"#, ""),
            (5, r#"{"path":"/"}"#, ""),
            (5, r"{}", ".path path not specified"),
            (5, r#"{"path":"etc"}"#, ".path path not absolute"),
            (5, r#"{"path":"/etc/"}"#, ".path path is not fully simplified"),
            (5, r#"{"path":"/a/../b"}"#, ".path path is not fully simplified"),
        ],
    );
}

#[test]
fn modes_owners_and_contents_of_files() {
    let special = "setuid/setgid/sticky bits are not supported or functional in spec versions \
                   older than 3.6.0";
    expect_in(
        "files",
        &[
            (5, r#"{"path":"/a","mode":511}"#, ""),
            (5, r#"{"path":"/a","mode":1023}"#, &format!("(.mode {special}")),
            (
                5,
                r#"{"path":"/a","mode":-1}"#,
                &format!(".mode illegal file mode; (.mode {special}"),
            ),
            (
                5,
                r#"{"path":"/a","user":{"id":0,"name":"root"}}"#,
                ".user cannot set both id and name",
            ),
            (5, r#"{"path":"/a","group":{"id":0,"name":""}}"#, ""),
            (
                5,
                r#"{"path":"/a","overwrite":true}"#,
                ".overwrite overwrite must be false if source is unspecified",
            ),
            (5, r#"{"path":"/a","overwrite":true,"contents":{"source":""}}"#, ""),
            (
                5,
                r#"{"path":"/a","contents":{"compression":"xz"}}"#,
                ".contents.compression invalid compression method",
            ),
            (
                5,
                r#"{"path":"/a","contents":{"httpHeaders":[{"name":"","value":""}],"source":"data:,"}}"#,
                ".contents.httpHeaders cannot use HTTP headers with this source scheme; \
                 .contents.httpHeaders.0.name HTTP header name can't be empty; \
                 .contents.httpHeaders.0.value unable to parse HTTP header",
            ),
        ],
    );
}

#[test]
fn hashes_by_version() {
    let sha256 = "0".repeat(64);
    let hash = |hash: &str| {
        format!(
            r#"{{"path":"/a","contents":{{"source":"data:,","verification":{{"hash":"{hash}"}}}}}}"#
        )
    };
    let place = ".contents.verification.hash";
    expect_in(
        "files",
        &[
            (0, &hash(&format!("sha256-{sha256}")), &format!("{place} unrecognized hash function")),
            (1, &hash(&format!("sha256-{sha256}")), ""),
            (0, &hash(&format!("sha512-{sha256}{sha256}")), ""),
            (5, &hash("sha512-00"), &format!("{place} incorrect size for hash sum")),
            (5, &hash("sha512"), &format!("{place} malformed hash specifier")),
            (
                5,
                r#"{"path":"/a","contents":{"verification":{"hash":"x"}}}"#,
                &format!(
                    "{place} source must be specified if verification is specified; {place} \
                     malformed hash specifier"
                ),
            ),
        ],
    );
}

#[test]
fn sources_by_version() {
    let source = |source: &str| format!(r#"{{"path":"/a","contents":{{"source":"{source}"}}}}"#);
    let refused = ".contents.source invalid url scheme";
    expect_in(
        "files",
        &[
            (0, &source("https://x/a"), ""),
            (0, &source("tftp://x/a"), ""),
            (0, &source("ftp://x/a"), refused),
            (1, &source("gs://b/k"), refused),
            (2, &source("gs://b/k"), ""),
            (3, &source("arn:aws:s3:::b/k"), refused),
            (4, &source("arn:aws:s3:::b/k"), ""),
            (4, &source("arn:aws:s3:::b"), ".contents.source invalid S3 ARN format"),
            (4, &source("arn:aws:iam:::b/k"), ".contents.source invalid S3 ARN format"),
            (0, &source("s3://b/k?versionId="), ".contents.source invalid S3 object VersionId"),
            (0, &source("s3://b/k?versionId=1"), ""),
            (5, &source("http://[::1"), ".contents.source unable to parse url"),
            (5, &source("data:"), ".contents.source missing comma before data"),
        ],
    );
}

#[test]
fn references_need_a_source_since_3_1() {
    let body = |minor: u8, ignition: &str| {
        let raw = format!(r#"{{"ignition":{{"version":"3.{minor}.0",{ignition}}}}}"#);
        parse::read(raw.as_bytes()).err().map_or(String::new(), |error| {
            let report = error.report().expect("the version is known").clone();
            let lines = report.faults.into_iter().map(|it| format!("{} {}", it.path, it.message));
            lines.collect::<Vec<_>>().join("; ")
        })
    };
    let merge = r#""config":{"merge":[{}]}"#;
    let authority = r#""security":{"tls":{"certificateAuthorities":[{}]}}"#;
    assert_eq!(body(0, merge), "");
    assert_eq!(body(1, merge), "$.ignition.config.merge.0 source is required");
    let place = "$.ignition.security.tls.certificateAuthorities.0";
    assert_eq!(body(0, authority), format!("{place}.source invalid url scheme"));
    assert_eq!(body(1, authority), format!("{place} source is required"));
    // In 3.0 a reference has no member `compression`, so its value is not checked.
    assert_eq!(body(0, r#""config":{"replace":{"compression":7}}"#), "");
    assert_eq!(
        body(5, r#""proxy":{"httpProxy":"foo"}"#),
        "$.ignition.proxy.httpProxy proxies must be http(s)"
    );
}

#[test]
fn links_need_a_target_and_cannot_be_parents() {
    expect(&[
        (
            3,
            r#""storage":{"links":[{"path":"/a"}]}"#,
            "storage.links.0.target link target is required",
        ),
        (2, r#""storage":{"links":[{"path":"/a"}]}"#, ""),
        (
            5,
            r#""storage":{"links":[{"path":"/a","target":"/x"}],"files":[{"path":"/a/b/c"}]}"#,
            "storage.files.0 file path includes link in config",
        ),
        (
            5,
            r#""storage":{"links":[{"path":"/a","target":"/x"},{"path":"/a/b","target":"/y"}]}"#,
            "storage.links.1 link path includes link in config",
        ),
        (
            5,
            r#""storage":{"links":[{"path":"/a","target":"../d","hard":true,"user":{"id":1}}],"directories":[{"path":"/d"}]}"#,
            "storage.links.0 hard link target is a directory; (storage.links.0.user.id user/group \
             ignored for hard link",
        ),
    ]);
}

#[test]
fn keys_are_unique_in_their_key_space() {
    expect(&[
        (
            5,
            r#""storage":{"files":[{"path":"/a"}],"links":[{"path":"/a","target":"/b"}]}"#,
            "storage.links.0 duplicate entry defined",
        ),
        (
            5,
            r#""kernelArguments":{"shouldExist":["a"],"shouldNotExist":["b","a"]}"#,
            "kernelArguments.shouldNotExist.1 duplicate entry defined",
        ),
        (
            5,
            r#""passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k","k"]},{"name":"core"}]}"#,
            "passwd.users.0.sshAuthorizedKeys.1 duplicate entry defined; passwd.users.1 duplicate \
             entry defined",
        ),
        (
            5,
            r#""storage":{"filesystems":[{"device":"/d","format":"xfs","options":["a","a"],"mountOptions":["b","b"]}]}"#,
            "",
        ),
    ]);
}

#[test]
fn disks_and_partitions() {
    let disk = |partitions: &str| format!(r#"{{"device":"/d","partitions":[{partitions}]}}"#);
    expect_in(
        "disks",
        &[
            (5, r#"{"device":""}"#, ".device disk device is required"),
            (5, r#"{"device":"d"}"#, ".device path not absolute"),
            (5, &disk(r#"{"number":1},{"label":"x"}"#), ""),
            (5, &disk("{}"), ".partitions.0 a partition number >= 1 or a label must be specified"),
            (
                5,
                &disk(r#"{"number":1},{"number":1}"#),
                ".partitions.1 partition numbers collide; .partitions.1 duplicate entry defined",
            ),
            (
                5,
                &disk(r#"{"number":1,"label":"x"},{"number":2,"label":"x"}"#),
                ".partitions.1 cannot use the same partition label twice",
            ),
            (
                5,
                &disk(
                    r#"{"number":1,"startMiB":1,"sizeMiB":10},{"number":2,"startMiB":10,"sizeMiB":0}"#,
                ),
                ".partitions.1 partitions overlap",
            ),
            (
                5,
                &disk(r#"{"number":1,"shouldExist":false,"sizeMiB":1}"#),
                ".partitions.0 shouldExist specified false with other options also specified",
            ),
            (
                5,
                &disk(r#"{"number":1,"label":"a:b","guid":"1"}"#),
                ".partitions.0.label partition label will be truncated to text before the colon; \
                 .partitions.0.guid doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"",
            ),
        ],
    );
}

#[test]
fn filesystems_and_arrays_by_version() {
    expect_in(
        "filesystems",
        &[
            (2, r#"{"device":"/d","format":"none"}"#, ".format invalid filesystem format"),
            (3, r#"{"device":"/d","format":"none"}"#, ""),
            (
                5,
                r#"{"device":"/d","format":"xfs","label":"thirteenchars"}"#,
                ".label filesystem labels cannot be longer than 12 characters when using xfs",
            ),
            (
                5,
                r#"{"device":"/d","label":"x"}"#,
                ".format format cannot be empty when path, label, uuid, wipeFilesystem, options, or \
                 mountOptions is specified; .label filesystem must specify format if label is \
                 specified",
            ),
        ],
    );
    expect_in(
        "raid",
        &[
            (2, r#"{"name":"m","devices":["/d"]}"#, ".level unrecognized raid level"),
            (3, r#"{"name":"m","devices":["/d"]}"#, ".level raid level is required"),
            (5, r#"{"name":"m","level":"raid1"}"#, ".devices raid devices required"),
            (5, r#"{"name":"m","level":"10","devices":["d"]}"#, ".devices.0 path not absolute"),
            (
                5,
                r#"{"name":"m","level":"linear","spares":1,"devices":["/d"]}"#,
                ".level spares unsupported for linear and raid0 arrays",
            ),
        ],
    );
}

#[test]
fn encrypted_volumes_by_version() {
    let clevis = |clevis: &str| format!(r#"{{"name":"l","device":"/d","clevis":{{{clevis}}}}}"#);
    let both = ".clevis cannot use custom clevis config with tpm2, tang, or threshold";
    expect_in(
        "luks",
        &[
            (
                2,
                r#"{"name":"a/b"}"#,
                ".device disk device is required; .name device names cannot contain slashes",
            ),
            (2, &clevis(r#""custom":{},"tpm2":true"#), both),
            (3, &clevis(r#""custom":{},"tpm2":true"#), ""),
            (3, &clevis(r#""custom":{"pin":"sss","config":"{}"},"tpm2":true"#), both),
            (
                2,
                &clevis(r#""custom":{"config":"{}"}"#),
                ".clevis.custom.pin unsupported clevis pin",
            ),
            (
                3,
                &clevis(r#""custom":{"needsNetwork":true}"#),
                ".clevis.custom.pin missing required custom clevis pin; .clevis.custom.config \
                 missing required custom clevis config",
            ),
            (
                5,
                &clevis(r#""tang":[{"url":"http://t"}]"#),
                ".clevis.tang.0.thumbprint thumbprint is required",
            ),
            (
                5,
                &clevis(r#""tang":[{"url":"http://t","thumbprint":"x","advertisement":"{"}]"#),
                ".clevis.tang.0.advertisement advertisement is not valid JSON",
            ),
            (
                5,
                &clevis(
                    r#""tang":[{"url":"http://t","thumbprint":"x","advertisement":"[1e999]"}]"#,
                ),
                ".clevis.tang.0.advertisement advertisement is not valid JSON",
            ),
            (
                5,
                r#"{"name":"l","device":"/d","cex":{"enabled":true},"clevis":{"tpm2":true},"keyFile":{"source":"x:"}}"#,
                ".keys invalid key-file source; .cex cannot use cex with clevis; .cex cannot use key \
                 file with cex; .keyFile.source invalid url scheme",
            ),
        ],
    );
}

#[test]
fn units_and_drop_ins() {
    let unit = |unit: &str| format!(r#""systemd":{{"units":[{unit}]}}"#);
    let place = "systemd.units.0";
    expect(&[
        (5, &unit(r#"{"name":"a.service","contents":"[Unit]\nA=b\n"}"#), ""),
        (5, &unit(r#"{"name":"a"}"#), &format!("{place}.name invalid systemd unit extension")),
        (
            5,
            &unit(r#"{"name":"a.service","contents":"[Unit"}"#),
            &format!("{place}.contents invalid unit content: unable to find end of section"),
        ),
        (
            5,
            &unit(r#"{"name":"a.service","dropins":[{"name":"x.txt","contents":"[A]\nb"}]}"#),
            &format!(
                "{place}.dropins.0.name invalid systemd drop-in extension; {place}.dropins.0.contents \
                 invalid unit content: EOF"
            ),
        ),
        (
            5,
            &unit(r#"{"name":"a.service","enabled":true,"contents":"[Unit]\nA=b\n[Install]\n"}"#),
            &format!(
                "({place}.contents unit \"a.service\" is enabled, but has no install section so \
                 enable does nothing"
            ),
        ),
        (
            5,
            &unit(
                r#"{"name":"t@1.service","enabled":true},{"name":"t@.service","contents":"[Unit]\nA=b\n"}"#,
            ),
            &format!(
                "({place}.contents template unit \"t@.service\" for \"t@1.service\" doesn't have \
                 Install section"
            ),
        ),
        (
            5,
            r#""systemd":{"units":[{"name":"a.service","contents":"[A]\n"}]},"storage":{"files":[{"path":"/etc/systemd/system/a.service"}]}"#,
            "storage.files.0.path path conflicts with systemd unit or dropin",
        ),
    ]);
}
