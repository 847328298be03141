//! `mco host` on a machine that is a directory: plan, apply, verify, rollback, and interrupted
//! applies.

#![expect(clippy::disallowed_methods, reason = "the tests read the tree of the machine")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::{Folder, config};

const SPEC: &str = "\
config:
  ignition: {version: 3.2.0}
  passwd: {users: [{name: core, sshAuthorizedKeys: [key-1], passwordHash: $6$new}]}
  storage:
    files:
    - {path: /etc/motd, contents: {source: 'data:,ours'}, mode: 0600}
    - {path: /etc/deep/new, contents: {source: 'data:,new'}}
    - {path: /etc/chrony.conf, contents: {source: 'data:,server%20a'}}
  systemd:
    units:
    - name: app.service
      enabled: true
      contents: |
        [Install]
        WantedBy=multi-user.target
    - {name: old.service, mask: true}
";

const MORE: &str = "\
config:
  ignition: {version: 3.2.0}
  storage:
    files:
    - {path: /etc/chrony.conf, contents: {source: 'data:,server%20b'}}
";

/// Returns a machine that is not running, and manifests for it.
fn machine() -> Folder {
    let folder = Folder::new(&[
        ("manifests/50-a.yaml", config("50-a", SPEC).as_bytes()),
        ("manifests/60-b.yaml", config("60-b", MORE).as_bytes()),
        ("root/etc/motd", b"welcome"),
        // With root: a killed apply leaves a directory of root, whose owner is looked up.
        ("root/etc/passwd", b"root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n"),
        ("root/etc/shadow", b"core:$6$old:1:0:99999:7:::\n"),
        ("root/usr/lib/systemd/system/old.service", b"[Service]\n"),
    ]);
    for path in ["root/etc/shadow", "root/etc/motd"] {
        fs::set_permissions(folder.path(path), fs::Permissions::from_mode(0o640)).unwrap();
    }
    folder
}

/// Returns the files of the machine except for the records of the last apply.
fn tree(folder: &Folder) -> BTreeMap<String, String> {
    let root = folder.path("root");
    let mut found = BTreeMap::new();
    let mut pending = vec![root.clone()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            let contents = if name.contains("machine-config-daemon/mco-") {
                continue;
            } else if stat.is_dir() {
                pending.push(path);
                continue;
            } else if stat.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            found.insert(
                name,
                format!("{:o} {}:{} {contents}", stat.mode(), stat.uid(), stat.gid()),
            );
        }
    }
    found
}

fn run(folder: &Folder, words: &str) -> (i32, String, String) {
    let words: Vec<&str> = words.split_whitespace().collect();
    let args = [&["host"], words.as_slice(), &["--root", "root"]].concat();
    let out = folder.mco(&args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

// covers: C14
#[test]
fn a_rollback_restores_the_machine_exactly() {
    let folder = machine();
    let before = tree(&folder);
    let (code, out, _) = run(&folder, "plan -f manifests");
    assert_eq!(code, 0);
    assert!(out.contains("write /etc/deep/new") && out.contains("mask old.service"), "{out}");
    assert_eq!(tree(&folder), before, "a plan changes nothing");

    let (code, _, err) = run(&folder, "apply -f manifests");
    assert_eq!(code, 2, "not confirmed");
    assert!(err.contains("confirmation required"), "{err}");
    assert_eq!(tree(&folder), before);

    let (code, out, err) = run(&folder, "apply -f manifests --yes");
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("it takes effect at the next boot"), "{out}");
    assert_eq!(folder.read("root/etc/chrony.conf"), "server b", "configs merge as in a pool");
    assert_eq!(folder.read("root/etc/shadow"), "core:$6$new:1:0:99999:7:::\n");
    let link = folder.path("root/etc/systemd/system/multi-user.target.wants/app.service");
    assert!(fs::symlink_metadata(link).is_ok(), "units are enabled by links");
    assert_eq!(run(&folder, "verify").0, 0);
    assert_eq!(run(&folder, "verify -f manifests").0, 0);
    let (code, out, _) = run(&folder, "apply -f manifests --yes");
    assert_eq!((code, out.starts_with("nothing to do")), (0, true), "{out}");

    let (code, out, err) = run(&folder, "rollback --yes");
    assert_eq!(code, 0, "{out}{err}");
    let mut left = tree(&folder);
    left.retain(|name, _| !name.starts_with("etc/machine-config-daemon"));
    assert_eq!(left, before);
    let (code, _, err) = run(&folder, "rollback --yes");
    assert_eq!(code, 2);
    assert!(err.contains("no apply on record"), "{err}");
}

/// Applies the manifests and opens the record of the apply again, as a crash leaves it.
fn unfinished() -> Folder {
    let folder = machine();
    let (code, out, err) = run(&folder, "apply -f manifests --yes");
    assert_eq!(code, 0, "{out}{err}");
    let records = folder.path("root/var/lib/machine-config-daemon");
    fs::rename(records.join("mco-last-update.json"), records.join("mco-update.json")).unwrap();
    folder
}

#[test]
fn an_unfinished_update_is_shown_and_can_be_left() {
    let folder = machine();
    let before = tree(&folder);
    assert_eq!(run(&folder, "status").1, "config: none\n");
    let (code, _, err) = run(&folder, "recover undo --yes");
    assert_eq!((code, err.contains("no unfinished update on record")), (2, true), "{err}");

    let folder = unfinished();
    let (code, out, _) = run(&folder, "status");
    assert_eq!(code, 1, "{out}");
    for line in [", applying\n", "steps: 0 of ", "backup: complete\n", "mco host recover undo"] {
        assert!(out.contains(line), "no {line:?} in {out}");
    }
    let (code, out, err) = run(&folder, "recover undo --yes");
    assert_eq!(code, 0, "{out}{err}");
    let mut left = tree(&folder);
    left.retain(|name, _| !name.starts_with("etc/machine-config-daemon"));
    assert_eq!(left, before);
    assert_eq!(run(&folder, "status").0, 0);

    let folder = unfinished();
    let (code, out, err) = run(&folder, "recover resume --yes");
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!((run(&folder, "status").0, run(&folder, "verify").0), (0, 0));

    let folder = unfinished();
    folder.write("root/var/lib/machine-config-daemon/mco-update.json", b"{");
    let (code, out, _) = run(&folder, "status");
    assert_eq!((code, out.contains("unfinished update: cannot be read")), (1, true), "{out}");
    assert_eq!(run(&folder, "apply -f manifests --yes").0, 2, "nothing is applied meanwhile");
    let (code, out, err) = run(&folder, "recover abandon --yes");
    assert_eq!(code, 0, "{out}{err}");
    assert!(run(&folder, "status").1.contains("force file"), "everything is written again");
    assert_eq!(run(&folder, "apply -f manifests --yes --force").0, 0);
}

// covers: C94
#[test]
fn drift_is_listed_and_blocks_the_next_apply() {
    let folder = machine();
    run(&folder, "apply -f manifests --yes");
    folder.write("root/etc/motd", b"edited");
    fs::remove_file(folder.path("root/etc/deep/new")).unwrap();
    fs::remove_file(folder.path("root/etc/systemd/system/multi-user.target.wants/app.service"))
        .unwrap();
    let (code, out, _) = run(&folder, "verify");
    assert_eq!(code, 1);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(out.contains("content mismatch for file \"/etc/motd\""), "{out}");
    assert!(out.contains("could not stat file \"/etc/deep/new\""), "{out}");
    assert!(out.contains("unit \"app.service\" expected enabled=true"), "{out}");

    folder.write("manifests/60-b.yaml", config("60-b", "kernelArguments: []").as_bytes());
    let (code, _, err) = run(&folder, "apply -f manifests --yes");
    assert_eq!(code, 2);
    assert!(err.contains("and 2 more") && err.contains("--force"), "{err}");
    assert_eq!(folder.read("root/etc/motd"), "edited", "drift is not overwritten without --force");
    let (code, out, err) = run(&folder, "apply -f manifests --yes --force");
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(folder.read("root/etc/chrony.conf"), "server a");
    assert_eq!(run(&folder, "verify").0, 0);
}

#[test]
fn a_failed_apply_is_rolled_back() {
    let folder = machine();
    let before = tree(&folder);
    let spec = format!("kernelArguments: [nosmt]\n{SPEC}");
    folder.write("manifests/50-a.yaml", config("50-a", &spec).as_bytes());
    let (code, out, err) = run(&folder, "apply -f manifests --yes");
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("while it does not run"), "{err}");
    assert!(out.contains("all changes were rolled back"), "{out}");
    assert_eq!(tree(&folder), before);
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(folder: &Folder, words: &str, stdout: Stdio, stderr: Stdio) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
    command.arg("host").args(words.split_whitespace()).args(["--root", "root"]);
    let command = command.current_dir(folder.path("")).stdout(stdout).stderr(stderr);
    Running(command.spawn().unwrap())
}

/// Kills an apply when it prints this step; returns false if there is no such step.
fn kill_at(folder: &Folder, step: usize) -> bool {
    let mut apply = start(folder, "apply -f manifests --yes", Stdio::null(), Stdio::piped());
    let lines = BufReader::new(apply.0.stderr.take().unwrap()).lines();
    let mut steps = lines.map_while(Result::ok).filter(|line| !line.contains("assuming"));
    let is_there = steps.nth(step - 1).is_some();
    drop(apply.0.kill());
    let _: ExitStatus = apply.0.wait().unwrap();
    is_there
}

// covers: C134
#[test]
fn an_interrupted_apply_is_resumed_at_any_step() {
    let whole = machine();
    assert_eq!(run(&whole, "apply -f manifests --yes").0, 0);
    let want = tree(&whole);
    let mut killed = 0;
    for step in 1.. {
        let folder = machine();
        let before = tree(&folder);
        if !kill_at(&folder, step) {
            break;
        }
        killed += 1;
        let (code, out, err) = run(&folder, "apply -f manifests --yes");
        assert_eq!(code, 0, "killed at step {step}: {out}{err}");
        assert_eq!(tree(&folder), want, "killed at step {step}");
        let (code, out, err) = run(&folder, "rollback --yes");
        assert_eq!(code, 0, "killed at step {step}: {out}{err}");
        let mut left = tree(&folder);
        left.retain(|name, _| !name.starts_with("etc/machine-config-daemon"));
        assert_eq!(left, before, "killed at step {step}");
    }
    assert!(killed > 5, "{killed}");
}

#[test]
fn watch_prints_drift_and_its_end() {
    let folder = machine();
    run(&folder, "apply -f manifests --yes");
    let mut watch = start(&folder, "watch", Stdio::piped(), Stdio::null());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().starts_with("no differences from rendered-worker-"));
    let motd = |text: &str| fs::write(folder.path("root/etc/motd"), text).unwrap();
    motd("edited");
    assert_eq!(next(), "content mismatch for file \"/etc/motd\"");
    motd("ours");
    assert!(next().starts_with("no differences from"));
    let id = rustix::process::Pid::from_child(&watch.0);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
}

// covers: C13, C15
#[test]
fn an_ignition_config_is_applied_unchanged() {
    let folder = machine();
    let ignition = r#"{"ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/once", "contents": {"source": "data:,once"}}]},
        "systemd": {"units": [{"name": "once.service", "enabled": true,
            "contents": "[Install]\nWantedBy=multi-user.target\n"}]}}"#;
    folder.write("once.ign", ignition.as_bytes());
    let (code, out, err) = run(&folder, "apply -f once.ign --yes");
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(folder.read("root/etc/once"), "once");
    assert_eq!(run(&folder, "verify -f once.ign").0, 0);
    for (text, want) in [
        ("{}", "unable to decipher onceFrom config type: bad.ign is not an Ignition config"),
        (
            r#"{"ignition": {"version": "9.9.9"}}"#,
            "unable to decipher onceFrom config type: bad.ign",
        ),
    ] {
        folder.write("bad.ign", text.as_bytes());
        let (code, _, err) = run(&folder, "apply -f bad.ign --yes");
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(want), "{err}");
    }
}

#[test]
fn the_policy_of_the_manifests_is_applied() {
    let folder = machine();
    assert_eq!(run(&folder, "apply -f manifests --yes").0, 0);
    let spec = MORE.replace("server%20b", "server%20c");
    folder.write("manifests/60-b.yaml", config("60-b", &spec).as_bytes());
    assert!(run(&folder, "plan -f manifests").1.contains("reboot needed"));
    folder.write(
        "manifests/policy.yaml",
        b"apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  nodeDisruptionPolicy:
    files:
    - path: /etc/chrony.conf
      actions: [{type: Restart, restart: {serviceName: chronyd.service}}]
",
    );
    let (_, out, err) = run(&folder, "plan -f manifests");
    assert!(out.contains("no reboot") && out.contains("restart chronyd.service"), "{out}{err}");
}

#[test]
fn a_locked_machine_is_not_changed() {
    let folder = machine();
    let root = mco_host::Root::open(&folder.path("root")).unwrap();
    let lock = root.lock("/etc/machine-config-daemon").unwrap();
    assert!(lock.is_some());
    for words in ["apply -f manifests --yes", "rollback --yes", "confirm"] {
        let (code, _, err) = run(&folder, words);
        assert_eq!(code, 2, "{words}");
        assert!(err.contains("another mco process is changing"), "{words}: {err}");
    }
    drop(lock);
    let (code, out, err) = run(&folder, "confirm");
    assert_eq!((code, out.as_str()), (0, "nothing to confirm\n"), "{err}");
}

#[test]
fn an_image_is_staged_only_on_image_based_systems() {
    let folder = machine();
    let (code, _, err) = run(&folder, "pivot quay.io/example/os@sha256:01 --yes");
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("cannot boot the image quay.io/example/os@sha256:01"), "{err}");
    let (code, _, err) = run(&folder, "pivot --yes not=an\u{a0}image");
    assert_eq!(code, 2, "{err}");
}

// covers: C13, C14, C15
#[test]
fn once_from_applies_one_config() {
    let ignition = br#"{"ignition": {"version": "3.2.0"}, "storage": {"files": [
        {"path": "/etc/motd", "contents": {"source": "data:,ours"}}]}}"#;
    let alone = config("only", MORE).replace("role: worker", "role: nobody");
    let folder = machine();
    folder.write("ignition", ignition);
    folder.write("machine", alone.as_bytes());
    folder.write("neither", b"hello: world");
    folder.write("root/etc/ignition-machine-config-encapsulated.json", b"{}");
    let once = |from: &str| {
        let words = ["daemon", "start", "--root-mount", "root", "--once-from", from];
        let out = folder.mco(&[&words[..], &["--skip-reboot"]].concat()).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    for (from, want) in [
        ("neither", "unable to decipher onceFrom config type: neither"),
        ("https://example.com/a.ign", "--once-from does not fetch"),
    ] {
        let (code, err) = once(from);
        assert!(code != 0 && err.contains(want), "{from}: {code} {err}");
    }
    assert_eq!(folder.read("root/etc/motd"), "welcome", "nothing was changed");
    let (code, err) = once("ignition");
    assert_eq!((code, folder.read("root/etc/motd").as_str()), (0, "ours"), "{err}");
    assert!(!folder.path("root/etc/ignition-machine-config-encapsulated.json").exists());
    let (code, err) = once("machine");
    assert_eq!((code, folder.read("root/etc/chrony.conf").as_str()), (0, "server b"), "{err}");
    assert!(!folder.path("root/etc/motd").exists(), "the config replaces the last one");
}
