//! Tests of merging configs, list by list.

use crate::{merge, parse::read};

/// Parses the sections in `parent` and `child`, merges the two configs, and returns the merged
/// sections.
fn merged(parent: &str, child: &str) -> String {
    let [parent, child] = [parent, child].map(|body| {
        let raw = format!(r#"{{"ignition":{{"version":"3.5.0"}},{body}}}"#);
        let document = read(raw.as_bytes()).unwrap_or_else(|error| panic!("{raw}: {error}"));
        document.upgrade().expect("3.x needs no translation")
    });
    let json = String::from_utf8(merge(parent, child).to_json()).expect("JSON is text");
    let sections = json.strip_prefix(r#"{"ignition":{"version":"3.5.0"},"#);
    sections.and_then(|rest| rest.strip_suffix('}')).unwrap_or(&json).to_owned()
}

// covers: REN-17
#[test]
fn lists_merge_by_key_and_keep_their_order() {
    let cases = [
        (
            "members of a unit come from the child",
            r#""systemd":{"units":[{"name":"a.service","enabled":true,"contents":"x"},{"name":"b.service"}]}"#,
            r#""systemd":{"units":[{"name":"c.service"},{"name":"a.service","enabled":false}]}"#,
            r#""systemd":{"units":[{"contents":"x","enabled":false,"name":"a.service"},{"name":"b.service"},{"name":"c.service"}]}"#,
        ),
        (
            "drop-ins merge by name",
            r#""systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"x"}]}]}"#,
            r#""systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":""},{"name":"2.conf"}]}]}"#,
            r#""systemd":{"units":[{"dropins":[{"contents":"","name":"1.conf"},{"name":"2.conf"}],"name":"a.service"}]}"#,
        ),
        (
            "SSH keys of users are a set",
            r#""passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","b"]}]}"#,
            r#""passwd":{"users":[{"name":"core","sshAuthorizedKeys":["c","a"]}]}"#,
            r#""passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","b","c"]}]}"#,
        ),
        (
            "contents to append and options have no keys",
            r#""storage":{"files":[{"path":"/a","append":[{"source":"data:,1"}]}],"filesystems":[{"device":"/d","format":"xfs","options":["x"]}]}"#,
            r#""storage":{"files":[{"path":"/a","append":[{"source":"data:,1"}]}],"filesystems":[{"device":"/d","format":"xfs","options":["x"]}]}"#,
            r#""storage":{"files":[{"path":"/a","append":[{"source":"data:,1"},{"source":"data:,1"}]}],"filesystems":[{"device":"/d","format":"xfs","options":["x","x"]}]}"#,
        ),
        (
            "partitions merge by number, else by label",
            r#""storage":{"disks":[{"device":"/d","partitions":[{"number":1,"label":"a"},{"label":"b"}]}]}"#,
            r#""storage":{"disks":[{"device":"/d","partitions":[{"number":1,"sizeMiB":5},{"label":"b","sizeMiB":6},{"label":"c"}]}]}"#,
            r#""storage":{"disks":[{"device":"/d","partitions":[{"label":"a","number":1,"sizeMiB":5},{"label":"b","sizeMiB":6},{"label":"c"}]}]}"#,
        ),
    ];
    for (case, parent, child, expected) in cases {
        assert_eq!(merged(parent, child), expected, "{case}");
    }
}

// covers: REN-17
#[test]
fn a_child_entry_replaces_a_conflicting_parent_entry() {
    let cases = [
        (
            "a link replaces a file",
            r#""storage":{"files":[{"path":"/a"},{"path":"/b"}]}"#,
            r#""storage":{"links":[{"path":"/a","target":"/t"}]}"#,
            r#""storage":{"files":[{"path":"/b"}],"links":[{"path":"/a","target":"/t"}]}"#,
        ),
        (
            "a directory replaces a link",
            r#""storage":{"links":[{"path":"/a","target":"/t"}]}"#,
            r#""storage":{"directories":[{"path":"/a"}]}"#,
            r#""storage":{"directories":[{"path":"/a"}]}"#,
        ),
        (
            "a kernel argument that should no longer exist",
            r#""kernelArguments":{"shouldExist":["a","b"],"shouldNotExist":["c"]}"#,
            r#""kernelArguments":{"shouldExist":["c"],"shouldNotExist":["a"]}"#,
            r#""kernelArguments":{"shouldExist":["b","c"],"shouldNotExist":["a"]}"#,
        ),
    ];
    for (case, parent, child, expected) in cases {
        assert_eq!(merged(parent, child), expected, "{case}");
    }
}

#[test]
fn a_child_header_without_a_value_removes_the_parent_header() {
    let file = |headers: &str| {
        format!(
            r#""storage":{{"files":[{{"path":"/a","contents":{{"httpHeaders":[{headers}],"source":"http://x"}}}}]}}"#
        )
    };
    let merged = merged(
        &file(r#"{"name":"A","value":"1"},{"name":"B","value":"2"}"#),
        &file(r#"{"name":"A"},{"name":"C"}"#),
    );
    assert_eq!(merged, file(r#"{"name":"B","value":"2"},{"name":"C"}"#));
}

#[test]
fn long_lists_merge_like_short_ones() {
    let files = |from: u32, to: u32, mode: u32| {
        let files = (from..to).map(|at| format!(r#"{{"path":"/{at}","mode":{mode}}}"#));
        format!(r#""storage":{{"files":[{}]}}"#, files.collect::<Vec<_>>().join(","))
    };
    let (parent, child) = (files(0, 30, 1), files(20, 40, 2));
    let expected =
        (0..40).map(|at| format!(r#"{{"path":"/{at}","mode":{}}}"#, if at < 20 { 1 } else { 2 }));
    let expected = format!(r#""storage":{{"files":[{}]}}"#, expected.collect::<Vec<_>>().join(","));
    assert_eq!(merged(&parent, &child), expected);
}
