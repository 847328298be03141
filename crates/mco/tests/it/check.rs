//! `mco check` reports all faults with their locations and never prints a secret.

use snapbox::str;

use crate::{Folder, config, indented};

/// Returns the codes and positions of the faults of a config with this `spec`.
fn codes(spec: &str) -> String {
    let folder = Folder::new(&[("a.yaml", config("99-a", spec).as_bytes())]);
    let out = folder.mco(&["check", "-f", "a.yaml", "-o", "json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let faults = value["faults"].as_array().unwrap();
    assert_eq!(out.status.code() == Some(1), value["errors"] != 0, "{spec}");
    let codes = faults.iter().map(|fault| {
        format!("{} {}:{}", fault["code"].as_str().unwrap(), fault["line"], fault["column"])
    });
    codes.collect::<Vec<_>>().join(", ")
}

fn ignition(rest: &str) -> String {
    format!("config:\n  ignition: {{version: 3.2.0}}\n{}", indented(2, rest))
}

#[test]
fn fields_of_the_spec_are_checked() {
    let rows = [
        ("fips: true", ""),
        ("kernelType: fast", "InvalidKernelType 8:15"),
        ("extensions: [usbguard, usbgard]", "UnknownExtension 8:26"),
        ("osImageURL: quay.io/os:latest", "ImageByTag 8:15"),
        ("osImageURL: quay.io/os@sha256:12", ""),
        ("kernelArgs: [a]", "UnknownField 8:3"),
        ("kernelType: realtime\nextensions: [kernel-devel]", "KernelDevel 9:3"),
    ];
    for (spec, want) in rows {
        assert_eq!(codes(spec), want, "{spec}");
    }
}

#[test]
fn files_are_checked() {
    let rows = [
        ("{path: /a, mode: 0644, contents: {source: 'data:,a'}}", ""),
        ("{path: /a, mode: 01777}", "FileMode 12:26"),
        ("{path: /a, mode: 644}", "FileMode 12:26"),
        ("{path: a}", "IgnitionInvalid 12:16"),
        ("{path: /a, contents: {source: 'https://example.com/a'}}", "RemoteSource 12:39"),
        ("{path: /a, contents: {source: 'tftp://example.com/a'}}", "RemoteSource 12:39"),
        ("{path: /a, contents: {source: 'data:;base64,*'}}", "Contents 12:39"),
        ("{path: /a, contents: {source: 'data:,a', compression: gzip}}", "Contents 12:39"),
        ("{path: /a, append: [{source: 'data:,a'}]}", "FileAppend 12:20"),
        ("{path: /run/machine-config-daemon-force}", "ForceFile 12:16"),
        ("{path: /usr/bin/a}", "ReadOnlyPath 12:16"),
        ("{path: /usr/local/bin/a}", ""),
        ("{path: /a, contents: {source: 'data:,password%3Dhunter22'}}", "Secret 12:39"),
    ];
    for (file, want) in rows {
        let spec = ignition(&format!("storage:\n  files:\n  - {file}"));
        assert_eq!(codes(&spec), want, "{file}");
    }
}

#[test]
fn unit_faults_have_the_line_in_the_unit() {
    let unit = |contents: &str| {
        let contents = indented(6, contents);
        ignition(&format!(
            "systemd:\n  units:\n  - name: a.service\n    enabled: true\n    contents: |\n{contents}"
        ))
    };
    let rows = [
        ("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target", ""),
        ("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target\n...", "UnitSyntax 19:11"),
        ("[Service]\nExecStart=./x\n[Install]\nWantedBy=a.target", "UnitExec 16:11"),
        ("[Service]\nExecStart=/bin/true", "IgnitionWarning 15:11"),
        (
            "[Service]\nExecStart=/a\nEnvironment=A=b\n[Foo]\n[Install]\nWantedBy=a",
            "UnitSection 18:11",
        ),
    ];
    for (contents, want) in rows {
        assert_eq!(codes(&unit(contents)), want, "{contents}");
    }
}

#[test]
fn users_and_first_boot_sections_are_checked() {
    let rows = [
        ("passwd: {users: [{name: core, sshAuthorizedKeys: [a]}]}", ""),
        ("passwd: {users: [{name: bob}]}", "UserNotCore 10:29"),
        ("passwd: {users: [{name: core, shell: /bin/zsh}]}", "UserField 10:35"),
        ("passwd: {users: [{name: core, passwordHash: hunter22}]}", "PlainPassword 10:49"),
        ("storage: {directories: [{path: /a}]}", "FirstBootOnly 10:15"),
        ("storage: {links: [{path: /a, target: /b}]}", "FirstBootOnly 10:15"),
    ];
    for (rest, want) in rows {
        assert_eq!(codes(&ignition(rest)), want, "{rest}");
    }
}

#[test]
fn ignition_versions_are_checked() {
    assert_eq!(codes("config: {ignition: {version: 3.9.0}}"), "IgnitionVersion 8:32");
    assert_eq!(codes("config: {storage: {}}"), "IgnitionVersion 8:3");
    assert_eq!(
        codes(
            "config: {ignition: {version: 2.2.0}, storage: {files: [{filesystem: root, path: /a, mode: 420, contents: {source: 'data:,a'}}]}}"
        ),
        ""
    );
}

#[test]
fn labels_and_names_are_checked() {
    let two = config("99-a", "fips: true").replace("role: worker", "role: gpu")
        + "---\n"
        + &config("99-a", "fips: true")
        + "---\n"
        + &config("99-B", "fips: true")
            .replace("    machineconfiguration.openshift.io/role: worker\n", "    a: b\n")
        + "---\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker}\n\
           spec: {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}}\n\
           ---\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: all}\n\
           spec: {machineConfigSelector: {}}\n\
           ---\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: none}\n\
           spec: {machineConfigSelector: {matchLabels: {a: c}}}\n";
    let folder = Folder::new(&[("a.yaml", two.as_bytes())]);
    folder.mco(&["check", "-f", "a.yaml"]).assert().code(1).stdout_eq(str![[r#"
a.yaml:13:9: error: duplicate MachineConfig/99-a [DuplicateName]
  in MachineConfig/99-a, metadata.name
  hint: the first one is at a.yaml:4:9
a.yaml:22:9: error: invalid name "99-B": only lower-case letters, digits, '-' and '.' are allowed [BadName]
  in MachineConfig/99-B, metadata.name
a.yaml:23:3: warning: MachineConfig/99-B has no role label [NoRole]
  in MachineConfig/99-B, metadata.labels
  hint: add the label machineconfiguration.openshift.io/role: worker
a.yaml:36:8: error: pool all selects all MachineConfigs [SelectsAll]
  in MachineConfigPool/all, spec.machineConfigSelector
  hint: set a machineConfigSelector that names roles
a.yaml:41:8: warning: pool none: no MachineConfigs found matching selector a=c [NothingSelected]
  in MachineConfigPool/none, spec.machineConfigSelector

"#]]);
}

#[test]
fn the_size_of_the_rendered_config_is_checked() {
    let file = |bytes: usize| {
        ignition(&format!(
            "storage:\n  files:\n  - path: /a\n    contents: {{source: 'data:,{}'}}",
            "a".repeat(bytes)
        ))
    };
    assert_eq!(codes(&file(1_000_000)), "");
    assert_eq!(codes(&file(1_300_000)), "NearSizeLimit null:null");
    assert_eq!(codes(&file(1_600_000)), "TooLarge null:null");
}

#[test]
fn no_secret_is_printed() {
    let spec = ignition(
        "passwd: {users: [{name: core, passwordHash: hunter22}]}\nstorage:\n  files:\n  - path: /a\n    contents: {source: 'data:,password%3Dhunter22%0A-----BEGIN%20PRIVATE%20KEY-----%0Ahunter22'}\nsystemd:\n  units:\n  - name: a.service\n    contents: |\n      [Service]\n      ExecStart=/bin/true\n      Environment=A=b\n      password=hunter22\n      hunter22",
    );
    let folder = Folder::new(&[
        ("a.yaml", config("99-a", &spec).as_bytes()),
        ("b.yaml", config("99-a", "fips: false").as_bytes()),
    ]);
    for args in [
        vec!["check", "-f", "a.yaml"],
        vec!["check", "-f", "a.yaml", "-o", "json"],
        vec!["diff", "b.yaml", "a.yaml"],
        vec!["render", "-f", "a.yaml"],
    ] {
        let out = folder.mco(&args).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        assert!(!text.contains("hunter22"), "{args:?}: {text}");
    }
}
