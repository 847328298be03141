//! Every offline command works on the examples.

use snapbox::str;

use crate::{Folder, mco};

#[test]
fn the_examples_have_no_faults() {
    mco(&["check", "-f", "examples"]).assert().success().stdout_eq(str![]).stderr_eq(str![[r#"
note: 7 MachineConfigs, 3 pools: 0 errors, 0 warnings

"#]]);
}

#[test]
fn rendered_names_of_the_examples_are_stable() {
    mco(&["render", "-f", "examples"]).assert().success().stdout_eq(str![[r#"
rendered-infra-313781f0bef439e2db2337fa19b739fe
rendered-master-23caab87bfd2373a8f4963716a741b22
rendered-worker-57eada5340e46522e188df8abad9bf9d

"#]]);
}

#[test]
fn a_custom_pool_overrides_the_worker_pool() {
    mco(&["cat", "-f", "examples", "--pool", "infra", "/etc/custom-config"])
        .assert()
        .success()
        .stdout_eq("greeting = infra\n");
    mco(&["why", "-f", "examples", "--pool", "infra", "/etc/custom-config"])
        .assert()
        .success()
        .stdout_eq(str![[r#"
path /etc/custom-config in pool infra:
  wins        50-infra-custom  sets contents, mode  [examples/infra-pool.yaml:30:9]
  overridden  99-worker-custom  sets contents, mode  [examples/99-worker-custom.yaml:17:9]

"#]]);
}

#[test]
fn why_finds_every_kind_of_entry() {
    let things =
        ["hugepages=16", "kernelType", "kubelet.service/20-limits.conf", "core", "usbguard"];
    let args = [&["why", "-f", "examples", "--pool", "worker"], things.as_slice()].concat();
    mco(&args).assert().success().stdout_eq(str![[r#"
kernel argument hugepages=16 in pool worker:
  wins        50-worker-kernel-arguments  [examples/50-worker-kernel-arguments.yaml:11:5]
setting kernelType in pool worker:
  wins        50-worker-kernel-arguments  [examples/50-worker-kernel-arguments.yaml:13:15]
drop-in kubelet.service/20-limits.conf in pool worker:
  wins        99-worker-kubelet-dropin  sets contents  [examples/99-worker-kubelet-dropin.yaml:14:9]
user core in pool worker:
  wins        99-worker-ssh  sets sshAuthorizedKeys  [examples/99-ssh.yaml:27:13]
extension usbguard in pool worker:
  wins        50-worker-kernel-arguments  [examples/50-worker-kernel-arguments.yaml:15:5]

"#]]);
    mco(&["why", "-f", "examples", "--pool", "worker", "-o", "json", "custom.service"])
        .assert()
        .success()
        .stdout_eq(str![[r#"
[
  {
    "configs": [
      {
        "config": "99-worker-custom",
        "overridden": [],
        "place": "examples/99-worker-custom.yaml:25:9",
        "sets": [
          "contents",
          "enabled"
        ],
        "verdict": "wins"
      }
    ],
    "key": "custom.service",
    "kind": "unit",
    "pool": "worker"
  }
]

"#]]);
}

#[test]
fn a_rendered_config_equals_its_source() {
    let folder = Folder::new(&[]);
    for format in ["yaml", "json"] {
        let out =
            mco(&["render", "-f", "examples", "--pool", "infra", "-o", format]).output().unwrap();
        let name = format!("rendered.{format}");
        folder.write(&name, &out.stdout);
        let path = folder.path(&name);
        mco(&["diff", "examples", path.to_str().unwrap(), "--pool", "infra"])
            .assert()
            .success()
            .stdout_eq("");
    }
}

#[test]
fn files_are_written_as_on_a_node() {
    let folder = Folder::new(&[]);
    let to = folder.path("out");
    mco(&["render", "-f", "examples", "--pool", "infra", "--to", to.to_str().unwrap()])
        .assert()
        .success();
    assert_eq!(folder.read("out/etc/custom-config"), "greeting = infra\n");
    assert!(folder.read("out/etc/systemd/system/custom.service").starts_with("[Unit]\n"));
    let dropin = "out/etc/systemd/system/kubelet.service.d/20-limits.conf";
    assert!(folder.read(dropin).starts_with("[Service]\n"));
}

#[test]
fn no_file_is_written_outside_of_the_directory() {
    let evil = crate::config(
        "99-evil",
        "config:\n  ignition: {version: 3.2.0}\n  storage:\n    files:\n    - path: /../../evil\n      contents: {source: 'data:,x'}",
    );
    let folder = Folder::new(&[("a.yaml", evil.as_bytes())]);
    folder.mco(&["render", "-f", "a.yaml", "--to", "out/in"]).assert().failure();
    assert!(!folder.path("evil").exists() && !folder.path("out/evil").exists());
}

#[test]
fn convert_writes_the_target_version() {
    mco(&["convert", "--to", "3.1.0", "examples/99-worker-chrony.yaml"])
        .assert()
        .success()
        .stdout_eq(str![[r#"
{"ignition":{"version":"3.1.0"},"storage":{"files":[{"overwrite":true,"path":"/etc/chrony.conf","contents":{"source":"data:,pool%20ntp.example.com%20iburst%0Adriftfile%20%2Fvar%2Flib%2Fchrony%2Fdrift%0Amakestep%201.0%203%0Artcsync%0Alogdir%20%2Fvar%2Flog%2Fchrony%0A"},"mode":420}]}}

"#]]);
    mco(&["convert", "--to", "2.2.0", "examples/99-worker-chrony.yaml"])
        .assert()
        .success()
        .stdout_eq(str![[r#"
{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","overwrite":true,"path":"/etc/chrony.conf","contents":{"source":"data:,pool%20ntp.example.com%20iburst%0Adriftfile%20%2Fvar%2Flib%2Fchrony%2Fdrift%0Amakestep%201.0%203%0Artcsync%0Alogdir%20%2Fvar%2Flog%2Fchrony%0A"},"mode":420}]}}

"#]]);
    mco(&["convert", "--to", "4.0.0", "examples/99-worker-chrony.yaml"])
        .assert()
        .code(2)
        .stderr_eq(str![[r#"
error: invalid value '4.0.0' for '--to <VERSION>': unknown Ignition version "4.0.0"; known are 2.2.0, 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0

For more information, try '--help'.

"#]]);
}

#[test]
fn crds_are_found_by_each_of_their_names() {
    let names = ["mcp", "MachineConfigPool", "machineconfigpools"];
    let outputs = names.map(|name| mco(&["crds", name]).output().unwrap().stdout);
    assert!(outputs[0].starts_with(b"apiVersion: apiextensions.k8s.io/v1\n"));
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    mco(&["crds", "mpc"]).assert().code(1).stderr_eq(str![[r#"
error: unknown definition "mpc"
hint: did you mean mcp?

"#]]);
}

#[test]
fn every_command_shows_examples() {
    for command in ["render", "check", "diff", "cat", "why", "convert", "crds"] {
        let out = mco(&[command, "--help"]).output().unwrap();
        assert!(String::from_utf8(out.stdout).unwrap().contains("Examples:\n  "), "{command}");
    }
}
