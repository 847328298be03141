//! `mco host` on a booted machine: its own systemd, a real reboot, drift by an editor, and first
//! boot.

use mco_testkit::{PATIENCE, api::wait, lab::Machine};

use crate::{boot_id, done, machine, output};

/// Runs `mco` on the machine; returns its exit code and its output.
fn mco(machine: &Machine, words: &str) -> (i32, String) {
    let words: Vec<&str> = std::iter::once("/usr/local/bin/mco").chain(words.split(' ')).collect();
    let output = done(machine.run(&words));
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// The last lines of a service that sleeps forever.
const SLEEPS: &str = "ExecStart=/bin/sleep infinity
          [Install]
          WantedBy=multi-user.target";

fn manifests(conf: &str, more: &str) -> String {
    format!(
        "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-a
  labels: {{machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {{version: 3.2.0}}
    storage:
      files:
      - {{path: /etc/app.conf, contents: {{source: 'data:,{conf}'}}}}
{more}
    systemd:
      units:
      - name: app.service
        enabled: true
        contents: |
          [Service]
          ExecStartPre=/bin/cp /etc/app.conf /run/app.seen
          {SLEEPS}
      - name: off.service
        enabled: false
        contents: |
          [Service]
          {SLEEPS}
      - name: confirm.service
        enabled: true
        contents: |
          [Unit]
          Description=Keeps the config after a reboot, or takes it back
          [Service]
          Type=oneshot
          ExecStart=/usr/local/bin/mco host confirm --within 2
          [Install]
          WantedBy=multi-user.target
      - {{name: systemd-pstore.service, mask: true}}
---
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {{name: cluster}}
spec:
  nodeDisruptionPolicy:
    files:
    - path: /etc/app.conf
      actions: [{{type: Restart, restart: {{serviceName: app.service}}}}]
    units:
    - name: app.service
      actions: [{{type: DaemonReload}}, {{type: Restart, restart: {{serviceName: app.service}}}}]
    - {{name: off.service, actions: [{{type: None}}]}}
    - {{name: confirm.service, actions: [{{type: None}}]}}
    - {{name: systemd-pstore.service, actions: [{{type: None}}]}}
"
    )
}

fn apply(machine: &Machine, conf: &str, more: &str, words: &str) -> (i32, String) {
    done(machine.write("/root/manifests/a.yaml", &manifests(conf, more)));
    mco(machine, &format!("host apply -f /root/manifests --yes{words}"))
}

// covers: C68, C69, C92, C94, C135
#[test]
fn a_machine_is_configured_through_systemd() {
    let Some(lone) = machine() else { return };
    let machine = lone.machine();
    done(machine.write("/etc/kubernetes/kubeconfig", ""));
    units_are_changed_through_systemd(machine);
    a_reboot_completes_the_apply(machine);
    a_rename_by_an_editor_is_detected(machine);
    first_boot_completes_without_changes(machine);
}

fn units_are_changed_through_systemd(machine: &Machine) {
    let (code, text) = apply(machine, "one", "", "");
    assert_eq!(code, 0, "{text}");
    for (unit, want) in [
        ("app.service", "enabled"),
        ("off.service", "disabled"),
        ("systemd-pstore.service", "masked"),
    ] {
        assert_eq!(output(machine, &["systemctl", "is-enabled", unit]), want, "{unit}: {text}");
    }
    assert_eq!(output(machine, &["systemctl", "is-active", "app.service"]), "active", "{text}");
    assert_eq!(output(machine, &["cat", "/run/app.seen"]), "one");
    let (code, text) = apply(machine, "two", "", "");
    assert_eq!(code, 0, "{text}");
    assert_eq!(
        output(machine, &["cat", "/run/app.seen"]),
        "two",
        "the service was restarted: {text}"
    );
    assert_eq!(mco(machine, "host verify").0, 0);
}

fn a_reboot_completes_the_apply(machine: &Machine) {
    let before = boot_id(machine);
    let more = "      - {path: /etc/new.conf, contents: {source: 'data:,new'}}";
    done(machine.wait_reboot_by(|| {
        let (code, text) = apply(machine, "two", more, " --reboot");
        anyhow::ensure!(code == 0, "{text}");
        Ok(())
    }));
    assert_ne!(boot_id(machine), before);
    let open = "/var/lib/machine-config-daemon/mco-update.json";
    done(wait("the config to be confirmed", PATIENCE, || {
        machine.read(open).ok()?.is_none().then_some(())
    }));
    let journal =
        output(machine, &["journalctl", "--no-pager", "-t", "machine-config-daemon-host"]);
    assert!(journal.contains("write /etc/new.conf"), "{journal}");
    assert!(journal.contains("initiating reboot"), "{journal}");
    assert_eq!(output(machine, &["systemctl", "is-active", "app.service"]), "active");
    let (code, text) = mco(machine, "host verify");
    assert_eq!(code, 0, "{text}");
}

fn a_rename_by_an_editor_is_detected(machine: &Machine) {
    let watch = [
        "systemd-run",
        "--unit=watch",
        "--property=StandardOutput=file:/run/watch.log",
        "/usr/local/bin/mco",
        "host",
        "watch",
    ];
    done(machine.ask(&watch));
    let log = || output(machine, &["cat", "/run/watch.log"]);
    let sees = |text: &str| {
        let found = wait(text, PATIENCE, || log().contains(text).then_some(()));
        done(found.map_err(|late| {
            let state = output(machine, &["systemctl", "status", "--no-pager", "watch"]);
            late.context(format!("its output is {:?}\n{state}", log()))
        }));
    };
    sees("no differences from");
    // `sed` writes a new file and renames it.
    done(machine.ask(&["sed", "-i", "s/two/by hand/", "/etc/app.conf"]));
    sees("content mismatch for file \"/etc/app.conf\"");
    assert_eq!(mco(machine, "host verify").0, 1);
    let (code, text) = mco(machine, "host apply -f /root/manifests --yes");
    assert_eq!(code, 2, "drift is not overwritten without --force: {text}");
    let (code, text) = mco(machine, "host apply -f /root/manifests --yes --force");
    assert_eq!(code, 3, "{text}");
    assert_eq!(output(machine, &["cat", "/etc/app.conf"]), "two");
    done(machine.ask(&["systemctl", "stop", "watch"]));
}

fn first_boot_completes_without_changes(machine: &Machine) {
    let config = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
        "metadata":{"name":"rendered-worker-1"},"spec":{"config":{"ignition":{"version":"3.5.0"}}}}"#;
    let path = "/etc/ignition-machine-config-encapsulated.json";
    done(machine.write(path, config));
    let words = "daemon firstboot-complete-machineconfig --root-mount /";
    let (code, text) = mco(machine, words);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("skipping reboot since no changes were detected"), "{text}");
    assert_eq!(done(machine.read(path)), None);
}
