//! Loading of manifests: every fault of the input has a location and a hint.

use snapbox::str;

use crate::{Folder, config, mco};

fn check(files: &[(&str, &[u8])], path: &str) -> snapbox::cmd::OutputAssert {
    Folder::new(files).mco(&["check", "-f", path]).assert()
}

#[test]
fn a_syntax_error_has_line_and_column() {
    check(&[("a.yaml", b"kind: MachineConfig\n\tname: x\n")], "a.yaml").code(1).stdout_eq(str![[
        r#"
a.yaml:1:7: error: while scanning a plain scalar, found a tab [Syntax]
  hint: indent with spaces

"#
    ]]);
}

#[test]
fn duplicate_keys_are_errors() {
    let twice = config("99-a", "fips: true\nfips: false\n");
    check(&[("a.yaml", twice.as_bytes())], "a.yaml").code(1).stdout_eq(str![[r#"
a.yaml:9:3: error: duplicate key "fips" [Syntax]
  hint: remove one of the two keys

"#]]);
}

#[test]
fn invalid_utf8_is_an_error() {
    check(&[("a.yaml", b"a: 1\nb: \xff\xfe\n")], "a.yaml").code(1).stdout_eq(str![[r#"
a.yaml:2:4: error: not UTF-8 text [Syntax]
  hint: save the file as UTF-8; encode binary contents as a base64 data URL

"#]]);
}

#[test]
fn a_type_error_names_the_field() {
    let wrong = config("99-a", "kernelArguments: nosmt\n");
    check(&[("a.yaml", wrong.as_bytes())], "a.yaml").code(1).stdout_eq(str![[r#"
a.yaml:8:20: error: spec.kernelArguments: invalid type: string "nosmt", expected a sequence [WrongType]
  in MachineConfig/99-a, spec.kernelArguments

"#]]);
}

#[test]
fn unknown_kinds_and_versions_are_errors() {
    let manifests = b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfg\nmetadata: {name: a}\n---\n\
        apiVersion: machineconfiguration.openshift.io/v2\nkind: MachineConfig\nmetadata: {name: b}\n---\nname: c\n";
    check(&[("a.yaml", manifests)], "a.yaml").code(1).stdout_eq(str![[r#"
a.yaml:2:7: error: unknown kind MachineConfg in machineconfiguration.openshift.io/v1 [UnknownKind]
  in MachineConfg/a, kind
  hint: did you mean MachineConfig?
a.yaml:5:13: error: unknown apiVersion machineconfiguration.openshift.io/v2 of MachineConfig [UnknownApiVersion]
  in MachineConfig/b, apiVersion
  hint: set apiVersion: machineconfiguration.openshift.io/v1
a.yaml:9:1: error: not a Kubernetes object: apiVersion is missing [NotAnObject]
  hint: a MachineConfig starts with `apiVersion: machineconfiguration.openshift.io/v1` and `kind: MachineConfig`

"#]]);
}

#[test]
fn other_kinds_are_ignored() {
    let other = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let good = config("99-a", "fips: false\n");
    let files: [(&str, &[u8]); 2] = [("a.yaml", other), ("b.yaml", good.as_bytes())];
    let folder = Folder::new(&files);
    folder.mco(&["check", "-v", "-f", "."]).assert().success().stderr_eq(str![[r#"
note: assuming pools that are not in the input, from role labels: worker
note: ./a.yaml: ignored ConfigMap/a
note: 1 MachineConfig, 1 pool: 0 errors, 0 warnings

"#]]);
    folder.mco(&["check", "-f", "a.yaml"]).assert().code(1).stderr_eq(str![[r#"
error: the input contains no MachineConfig
hint: name files or directories with MachineConfigs; -v shows the ignored objects

"#]]);
}

#[test]
fn a_fault_of_one_file_does_not_hide_the_next() {
    let wrong = config("99-b", "kernelType: fast\n");
    let files: [(&str, &[u8]); 2] = [("a.yaml", b"a: [\n"), ("b.yaml", wrong.as_bytes())];
    check(&files, ".").code(1).stdout_eq(str![[r#"
./a.yaml:1:4: error: unclosed bracket '[' [Syntax]
./b.yaml:8:15: error: unknown kernel type "fast" [InvalidKernelType]
  in MachineConfig/99-b, spec.kernelType
  hint: use one of default, realtime, 64k-pages

"#]]);
}

#[test]
fn missing_input_is_named() {
    mco(&["check", "-f", "no/such/file.yaml"]).assert().code(1).stderr_eq(str![[r#"
error: failed to read no/such/file.yaml: No such file or directory (os error 2)

"#]]);
    Folder::new(&[("deep/a.yaml", b"")]).mco(&["check", "-f", "."]).assert().code(1).stderr_eq(
        str![[r#"
error: . contains no .yaml, .yml or .json file
hint: name another directory, or add -R to read subdirectories

"#]],
    );
    mco(&["check", "-f", "https://example.com/a.yaml"]).assert().code(1).stderr_eq(str![[r#"
error: https://example.com/a.yaml is a URL, and manifests are read from files only
hint: download the file: curl -fsSL https://example.com/a.yaml | mco … -f -

"#]]);
    Folder::new(&[("a.yaml", b"# nothing\n")])
        .mco(&["render", "-f", "a.yaml"])
        .assert()
        .code(1)
        .stderr_eq(str![[r#"
error: the input contains no MachineConfig
hint: name files or directories with -f, or pipe `kubectl get machineconfigs -o yaml` into -f -

"#]]);
}

#[test]
fn a_large_file_is_refused_before_it_is_read() {
    let folder = Folder::new(&[("a.yaml", b"")]);
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    file.as_file().set_len(65 * 1024 * 1024).unwrap();
    let path = file.path().to_str().unwrap();
    let out = folder.mco(&["check", "-f", path]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8(out.stderr).unwrap().contains("is larger than 64 MiB"));
}

#[test]
fn lists_json_and_standard_input_are_read() {
    let list = br#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigList","items":[
        {"metadata":{"name":"50-a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":{"kernelArguments":["a"]}}]}
        {"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"60-b","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":{"kernelArguments":["b"]}}"#;
    let folder = Folder::new(&[]);
    let one =
        folder.mco(&["render", "-f", "-", "-o", "json"]).stdin(list.as_slice()).output().unwrap();
    let text = String::from_utf8(one.stdout).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["spec"]["kernelArguments"], serde_json::json!(["a", "b"]));
}

#[test]
fn subdirectories_are_read_with_recursive() {
    let (a, b) = (config("50-a", "fips: false"), config("60-b", "fips: true"));
    let folder = Folder::new(&[("a.yaml", a.as_bytes()), ("deep/b.yml", b.as_bytes())]);
    let fips = |args: &[&str]| {
        let out = folder.mco(args).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()["spec"]["fips"].clone()
    };
    assert_eq!(fips(&["render", "-f", ".", "-o", "json"]), false);
    assert_eq!(fips(&["render", "-R", "-f", ".", "-o", "json"]), true);
}

#[test]
fn the_images_of_the_release_come_from_the_controller_config() {
    let config = config("50-a", "fips: false");
    let release = b"apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nmetadata: {name: machine-config-controller}\nspec: {baseOSContainerImage: 'quay.io/os@sha256:1'}\n";
    let folder = Folder::new(&[("a.yaml", config.as_bytes()), ("c.yaml", release)]);
    let out = folder.mco(&["render", "-f", ".", "-o", "json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value["spec"]["osImageURL"], "quay.io/os@sha256:1");
}

#[test]
fn an_unknown_pool_gets_a_suggestion() {
    mco(&["render", "-f", "examples", "--pool", "wroker"]).assert().code(1).stderr_eq(str![[r#"
error: unknown pool "wroker"
hint: did you mean worker?

"#]]);
    mco(&["cat", "-f", "examples", "/etc/motd"]).assert().code(1).stderr_eq(str![[r#"
error: the input has several pools
hint: choose one with --pool: infra, master, worker

"#]]);
}

#[test]
fn pools_without_configs_are_skipped() {
    let args = ["-f", "examples/pools.yaml", "-f", "examples/99-worker-chrony.yaml"];
    mco(&[&["render"], args.as_slice()].concat())
        .assert()
        .success()
        .stderr_eq(str![[r#"
note: pool master selects no MachineConfig

"#]])
        .stdout_eq(str![[r#"
rendered-worker-779cb03dcb5f3223cea97fd04f0a841c

"#]]);
    mco(&[&["render", "--pool", "master"], args.as_slice()].concat())
        .assert()
        .code(1)
        .stderr_eq(str![[r#"
error: failed to render pool master: no MachineConfigs found matching selector machineconfiguration.openshift.io/role=master

"#]]);
}
