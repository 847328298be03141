//! `mco cat` and `mco why`: exact bytes, suggestions for typos, and closed pipes.

use snapbox::str;

use crate::{Folder, config, mco};

#[test]
fn contents_are_printed_unchanged() {
    let spec = "config:\n  ignition: {version: 3.2.0}\n  storage:\n    files:\n    - {path: /a, contents: {source: 'data:;base64,AAEC/xtbMzFt'}}";
    let folder = Folder::new(&[("a.yaml", config("99-a", spec).as_bytes())]);
    let out = folder.mco(&["cat", "a.yaml", "/a"]).output().unwrap();
    assert_eq!(out.stdout, b"\x00\x01\x02\xff\x1b[31m");
}

#[test]
fn units_are_found_by_name_and_by_path() {
    let names =
        ["kubelet.service/20-limits.conf", "/etc/systemd/system/kubelet.service.d/20-limits.conf"];
    for name in names {
        let out = mco(&["cat", "examples/99-worker-kubelet-dropin.yaml", name]).output().unwrap();
        assert!(out.stdout.starts_with(b"[Service]\n"), "{name}");
    }
}

#[test]
fn typos_get_a_suggestion() {
    let file = "examples/99-worker-custom.yaml";
    mco(&["cat", file, "/etc/custom-confg"]).assert().code(1).stderr_eq(str![[r#"
error: 99-worker-custom has no file or unit /etc/custom-confg
hint: did you mean /etc/custom-config?

"#]]);
    mco(&["cat", file, "custom-config"]).assert().code(1).stderr_eq(str![[r#"
error: 99-worker-custom has no file or unit custom-config
hint: did you mean /etc/custom-config?

"#]]);
    mco(&["cat", "examples/99-worker-kubelet-dropin.yaml", "kubelet.service"])
        .assert()
        .code(1)
        .stderr_eq(str![[r#"
error: unit kubelet.service has no contents in this config
hint: print one of its drop-ins: kubelet.service/20-limits.conf

"#]]);
    mco(&["cat", file]).assert().code(1).stderr_eq(str![[r#"
error: a config and the name of an entry are required
hint: run `mco cat NODE:PATH`, `mco cat FILE NAME`, or `mco cat -f PATH NAME`

"#]]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let big = format!(
        "config:\n  ignition: {{version: 3.2.0}}\n  storage:\n    files:\n    - {{path: /a, contents: {{source: 'data:,{}'}}}}",
        "line%0A".repeat(100_000)
    );
    let folder = Folder::new(&[("a.yaml", config("99-a", &big).as_bytes())]);
    let script =
        format!("set -o pipefail; '{}' cat a.yaml /a | head -1", env!("CARGO_BIN_EXE_mco"));
    snapbox::cmd::Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path("."))
        .assert()
        .success()
        .stdout_eq("line\n")
        .stderr_eq("");
}

#[test]
fn why_prints_the_precedence_of_each_config() {
    let ignition = |rest: &str| format!("config:\n  ignition: {{version: 3.2.0}}\n{rest}");
    let file =
        |rest: &str| ignition(&format!("  storage:\n    files:\n    - {{path: /a, {rest}}}"));
    let link = ignition("  storage:\n    links:\n    - {path: /b, target: /c}");
    let b = ignition("  storage:\n    files:\n    - {path: /b, mode: 0644}");
    let texts = [
        config("10-a", &file("mode: 0600, contents: {source: 'data:,1'}")),
        config("20-b", &file("mode: 0644")),
        config("30-c", &b),
        config("40-d", &link),
    ];
    let folder = Folder::new(&[("a.yaml", texts.join("---\n").as_bytes())]);
    folder.mco(&["why", "-f", "a.yaml", "/a", "/b"]).assert().success().stdout_eq(str![[r#"
path /a in pool worker:
  wins        20-b  sets mode  [a.yaml:25:9]
  in part     10-a  sets contents, mode (overridden)  [a.yaml:12:9]
path /b in pool worker:
  wins        40-d  sets target  [a.yaml:51:9]
  overridden  30-c  sets mode  [a.yaml:38:9]

"#]]);
    folder.mco(&["why", "-f", "a.yaml", "/aa"]).assert().code(1).stderr_eq(str![[r#"
note: assuming pools that are not in the input, from role labels: worker
error: no MachineConfig sets /aa
hint: did you mean /a?

"#]]);
}
