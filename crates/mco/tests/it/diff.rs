//! `mco diff` compares decoded configs and exits as diff(1) does.

use snapbox::str;

use crate::{Folder, config};

const OLD: &str = "\
osImageURL: quay.io/os@sha256:1
kernelArguments: [a, b]
config:
  ignition: {version: 3.2.0}
  passwd: {users: [{name: core, passwordHash: $y$old, sshAuthorizedKeys: [key-one]}]}
  storage:
    files:
    - {path: /etc/a, mode: 0644, contents: {source: 'data:,one%0Atwo%0A'}}
    - {path: /etc/binary, contents: {source: 'data:;base64,AAEC'}}
    - {path: /etc/same, mode: 420, contents: {source: 'data:,same'}}
    - {path: /etc/pw, contents: {source: 'data:,password%3Dhunter21'}}
  systemd:
    units:
    - name: a.service
      enabled: true
      contents: |
        [Service]
        ExecStart=/bin/true
      dropins:
      - {name: x.conf, contents: '[Service]'}
";

fn pair() -> Folder {
    let new = OLD
        .replace("os@sha256:1", "os@sha256:2")
        .replace("[a, b]", "[a, c]")
        .replace("$y$old", "$y$new")
        .replace("[key-one]", "[key-one, key-two]")
        .replace(
            "0644, contents: {source: 'data:,one%0Atwo%0A'}",
            "0600, contents: {source: 'data:,one%0Athree%1b%5B31m%0A'}",
        )
        .replace("AAEC", "AAEDBA==")
        .replace("'data:,same'", "'data:;base64,c2FtZQ=='")
        .replace("hunter21", "hunter22")
        .replace("enabled: true", "enabled: false")
        .replace("x.conf", "y.conf");
    Folder::new(&[
        ("old.yaml", config("rendered-worker-1", OLD).as_bytes()),
        ("new.yaml", config("rendered-worker-2", &new).as_bytes()),
    ])
}

#[test]
fn differences_are_printed_decoded() {
    pair().mco(&["diff", "old.yaml", "new.yaml"]).assert().code(1).stdout_eq(str![[r#"
setting osImageURL changed
  value: quay.io/os@sha256:1 -> quay.io/os@sha256:2
setting kernelArguments changed
--- a/kernelArguments
+++ b/kernelArguments
@@ -1,2 +1,2 @@
 a
-b
+c
file /etc/a changed
  mode: 0644 -> 0600
--- a/etc/a
+++ b/etc/a
@@ -1,2 +1,2 @@
 one
-two
+three/u{1b}[31m
file /etc/binary changed
  binary contents differ: 3 bytes -> 4 bytes
file /etc/pw changed
  lines with secrets differ; --show-secrets shows them
unit a.service changed
  enabled: true -> false
drop-in a.service/x.conf removed
--- a/a.service/x.conf
+++ /dev/null
@@ -1 +0,0 @@
-[Service]
/ No newline at end of file
drop-in a.service/y.conf added
--- /dev/null
+++ b/a.service/y.conf
@@ -0,0 +1 @@
+[Service]
/ No newline at end of file
user core changed
  passwordHash: (hidden) -> (hidden, another)
--- a/core
+++ b/core
@@ -1,6 +1,7 @@
 {
   "name": "core",
   "sshAuthorizedKeys": [
-    "key-one"
+    "key-one",
+    "key-two"
   ]
 }

"#]]);
}

#[test]
fn differences_are_printed_as_json() {
    let out = pair().mco(&["diff", "old.yaml", "new.yaml", "-o", "json"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let changes = value["changes"].as_array().unwrap();
    let find = |name: &str| changes.iter().find(|change| change["name"] == name).unwrap();
    assert_eq!(changes.len(), 9);
    assert_eq!(find("/etc/a")["attributes"]["mode"]["new"], "0600");
    let diff = "--- a/kernelArguments\n+++ b/kernelArguments\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    assert_eq!(find("kernelArguments")["contents"]["diff"], diff);
    assert_eq!(find("/etc/binary")["contents"]["binary"]["newBytes"], 4);
    assert_eq!(find("/etc/pw")["contents"]["hidden"], true);
    assert_eq!(find("a.service/x.conf")["change"], "removed");
}

#[test]
fn secrets_are_printed_with_show_secrets() {
    let out = pair().mco(&["diff", "old.yaml", "new.yaml", "--show-secrets"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("+password=hunter22"));
    assert!(!text.contains("$y$"), "hashes stay hidden");
}

#[test]
fn contents_never_add_colours() {
    let folder = pair();
    let command = folder.mco(&["diff", "old.yaml", "new.yaml"]);
    let out = command.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("\u{1b}[32m+"));
    assert!(!text.contains("three\u{1b}[31m"));
}

#[test]
fn equal_configs_exit_with_0_and_failures_with_2() {
    let folder = pair();
    folder.mco(&["diff", "old.yaml", "old.yaml"]).assert().code(0).stdout_eq("");
    folder.mco(&["diff", "old.yaml", "missing.yaml"]).assert().code(2).stderr_eq(str![[r#"
error: failed to read missing.yaml: No such file or directory (os error 2)

"#]]);
}
