//! A node whose daemon is a systemd service: configs with and without a reboot, a killed daemon, an
//! edited file, and a config after which the daemon does not start.

use mco_testkit::{PATIENCE, api::wait, lab::Machine, nodes::NodeSummary};
use serde_json::{Value, json};

use crate::{
    boot_id,
    cluster::{Cluster, DAEMON},
    done, machine, output,
};

const APP: &str = "\
[Service]
ExecStart=/bin/sleep infinity
ExecReload=/bin/cp /etc/app.conf /run/app.seen
[Install]
WantedBy=multi-user.target
";

/// A unit that starts only after a file exists.
const SLOW: &str = "\
[Service]
ExecStartPre=/bin/sh -c 'touch /run/slow.begun; until test -e /run/slow.go; do sleep 0.1; done'
ExecStart=/bin/sleep infinity
TimeoutStartSec=infinity
";

const PLAIN: &str = "\
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
";

/// The unit that rolls back a config if no daemon starts.
const STANDBY: &str = "/etc/systemd/system/machine-config-daemon-confirm.service";
const STANDBY_PROGRAM: &str = "/var/lib/machine-config-daemon/confirm";

fn policies() -> Value {
    let of = |verb: &str, service: &str| {
        let key = verb.to_lowercase();
        json!({"type": verb, (key): {"serviceName": service}})
    };
    let (none, again) = (json!({"type": "None"}), json!({"type": "DaemonReload"}));
    json!({
        "files": [
            {"path": "/etc/app.conf", "actions": [of("Reload", "app.service")]},
            {"path": "/etc/slow.conf", "actions": [of("Restart", "slow.service")]},
        ],
        "units": [
            {"name": "app.service", "actions": [again, of("Restart", "app.service")]},
            {"name": "off.service", "actions": [none]},
            {"name": "slow.service", "actions": [again]},
            {"name": "systemd-pstore.service", "actions": [none]},
        ],
    })
}

fn file(path: &str, text: &str) -> Value {
    json!([{"path": path, "contents": {"source": format!("data:,{text}")}}])
}

// covers: C35, C68, C69, C92, C94, C134, C135
#[test]
fn a_node_is_updated_through_systemd() {
    let Some(lone) = machine() else { return };
    let cluster = done(Cluster::around(&lone, &policies()));
    done(a_joining_machine_gets_its_units_without_a_reboot(&cluster));
    done(a_service_is_reloaded_without_a_reboot(&cluster));
    done(a_killed_daemon_resumes_the_update(&cluster));
    done(commands_of_a_killed_daemon_are_awaited(&cluster));
    done(a_config_reboots_the_machine_once(&cluster));
    done(an_edited_file_degrades_the_node_until_restored(&cluster));
    done(a_config_without_a_daemon_is_rolled_back(&cluster));
}

fn enabled(machine: &Machine, unit: &str) -> String {
    output(machine, &["systemctl", "is-enabled", unit])
}

fn property(machine: &Machine, unit: &str, name: &str) -> String {
    output(machine, &["systemctl", "show", "--value", "--property", name, unit])
}

fn a_joining_machine_gets_its_units_without_a_reboot(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let boot = boot_id(machine);
    let dropin =
        json!([{"name": "10-place.conf", "contents": "[Service]\nEnvironment=PLACE=here\n"}]);
    let units = json!([
        {"name": "app.service", "enabled": true, "contents": APP, "dropins": dropin},
        {"name": "off.service", "enabled": false, "contents": PLAIN},
        {"name": "slow.service", "contents": SLOW},
        {"name": "systemd-pstore.service", "mask": true},
    ]);
    cluster.add("50-units", &json!([]), &units)?;
    machine.ask(&["systemctl", "start", DAEMON])?;
    // The pool may have had a config before the units were added.
    let target = cluster.target_with("50-units")?;
    let node = cluster.wait("the node to have its first config", |node| {
        node.is_done() && node.current == target
    })?;
    for (unit, want) in [
        ("app.service", "enabled"),
        ("off.service", "disabled"),
        ("systemd-pstore.service", "masked"),
    ] {
        assert_eq!(enabled(machine, unit), want, "{unit}: {node:?}");
    }
    assert_eq!(property(machine, "app.service", "ActiveState"), "active");
    assert_eq!(
        property(machine, "app.service", "Environment"),
        "PLACE=here",
        "the drop-in is used"
    );
    assert_eq!(boot_id(machine), boot, "no reboot was needed");
    Ok(())
}

fn a_service_is_reloaded_without_a_reboot(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let (boot, process) = (boot_id(machine), property(machine, "app.service", "MainPID"));
    cluster.roll_out("60-file", &file("/etc/app.conf", "one"), &json!([]))?;
    assert_eq!(output(machine, &["cat", "/run/app.seen"]), "one", "the service was reloaded");
    assert_eq!(
        property(machine, "app.service", "MainPID"),
        process,
        "the service was not restarted"
    );
    assert_eq!(boot_id(machine), boot);
    Ok(())
}

fn a_killed_daemon_resumes_the_update(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let before = cluster.node()?.current;
    cluster.add("70-slow", &file("/etc/slow.conf", "slow"), &json!([]))?;
    let begun =
        || machine.run(&["test", "-e", "/run/slow.begun"]).is_ok_and(|it| it.status.success());
    wait("the daemon to be updating", PATIENCE, || begun().then_some(()))?;
    let process = property(machine, DAEMON, "MainPID");
    machine.ask(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", DAEMON])?;
    wait("systemd to start the daemon again", PATIENCE, || {
        let now = property(machine, DAEMON, "MainPID");
        (now != "0" && now != process).then_some(())
    })?;
    assert_eq!(cluster.node()?.current, before, "the update is not complete");
    machine.ask(&["touch", "/run/slow.go"])?;
    cluster
        .wait("the daemon to resume the update", |node| node.is_done() && node.current != before)?;
    assert_eq!(machine.read("/etc/slow.conf")?.as_deref(), Some("slow"));
    assert_eq!(property(machine, "slow.service", "ActiveState"), "active");
    Ok(())
}

/// The command of a killed daemon: it runs until a file exists, and then shows the passwords.
const ORPHAN: &str = "until test -e /run/orphan.go; do sleep 0.1; done; cat /etc/passwd /etc/shadow >/run/orphan.seen";

fn commands_of_a_killed_daemon_are_awaited(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let before = cluster.node()?.current;
    machine.ask(&["useradd", "--create-home", "core"])?;
    let unit = "machine-config-daemon-run-x-1.service";
    machine.ask(&["systemd-run", &format!("--unit={unit}"), "/bin/sh", "-c", ORPHAN])?;
    // A process waits before its first command.
    machine.ask(&["systemctl", "restart", DAEMON])?;
    let users = json!([{"name": "core", "passwordHash": "$6$salt$hash"}]);
    let config = json!({"ignition": {"version": "3.5.0"}, "passwd": {"users": users}});
    let cluster_of = &**cluster;
    cluster_of.add("75-password", &json!({"config": config}))?;
    let text = "Waiting for commands of an earlier process";
    wait("the daemon to say that it waits", PATIENCE, || {
        let journal = machine.journal(Some(DAEMON), 200).ok()?;
        (journal.contains(text) && journal.contains(unit)).then_some(())
    })?;
    let accounts = || output(machine, &["cat", "/etc/passwd", "/etc/shadow"]);
    assert!(!accounts().contains("$6$salt$hash"), "the password was set beside the other command");
    assert_eq!(property(machine, unit, "ActiveState"), "active");
    machine.ask(&["touch", "/run/orphan.go"])?;
    cluster.wait("the daemon to set the password", |node| {
        node.is_done() && node.current != before && !node.cordoned
    })?;
    assert!(accounts().contains("$6$salt$hash"), "{}", accounts());
    let seen = output(machine, &["cat", "/run/orphan.seen"]);
    assert!(seen.contains("core:") && !seen.contains("$6$salt$hash"), "{seen}");
    Ok(())
}

fn a_config_reboots_the_machine_once(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let (boot, before) = (boot_id(machine), cluster.node()?.current);
    machine
        .wait_reboot_by(|| cluster.add("80-boot", &file("/etc/boot.conf", "new"), &json!([])))?;
    let after = boot_id(machine);
    assert_ne!(after, boot);
    let node = cluster.wait("the node to have the config after the reboot", |node| {
        node.is_done() && node.current != before && !node.cordoned
    })?;
    assert_eq!(node.last_drain, format!("uncordon-{}", node.current));
    assert_eq!(node.last_drain, node.desired_drain, "the daemon requested an uncordon");
    assert_eq!(machine.read("/etc/boot.conf")?.as_deref(), Some("new"));
    for path in ["/var/lib/machine-config-daemon/mco-update.json", STANDBY, STANDBY_PROGRAM] {
        assert!(machine.disk()?.stat(path)?.is_none(), "{path} is left");
    }
    let journal =
        output(machine, &["journalctl", "--no-pager", "-t", "machine-config-daemon-host"]);
    assert!(journal.contains("initiating reboot"), "{journal}");
    assert_eq!(property(machine, "app.service", "ActiveState"), "active", "started at boot");
    assert_eq!(boot_id(machine), after, "one reboot is enough");
    Ok(())
}

fn an_edited_file_degrades_the_node_until_restored(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let config = cluster.node()?.current;
    // `sed` writes a new file and renames it.
    machine.ask(&["sed", "-i", "s/one/by hand/", "/etc/app.conf"])?;
    let node = cluster.wait("the node to be Degraded", |node| node.state == "Degraded")?;
    let want = format!(
        "unexpected on-disk state validating against {config}: content mismatch for file \"/etc/app.conf\""
    );
    assert_eq!(node.reason, want);
    machine.ask(&["sed", "-i", "s/by hand/one/", "/etc/app.conf"])?;
    cluster.wait("the node to be Done after the file is restored", NodeSummary::is_done)?;
    Ok(())
}

fn a_config_without_a_daemon_is_rolled_back(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let (boot, before) = (boot_id(machine), cluster.node()?.current);
    cluster.confirm_within("5s")?;
    let units = json!([{"name": DAEMON, "mask": true}]);
    machine
        .wait_reboot_by(|| cluster.add("90-broken", &file("/etc/broken.conf", "new"), &units))?;
    // Only the standby unit can roll back the config, and no daemon reports before that.
    let node = cluster.wait("the node to report the rollback", |node| {
        node.state == "Degraded" && node.reason.contains("was rolled back after its reboot")
    })?;
    assert!(node.reason.contains("no daemon started to confirm it within 5s"), "{node:?}");
    assert_eq!(node.current, before);
    assert_ne!(boot_id(machine), boot);
    assert_eq!(machine.read("/etc/broken.conf")?, None);
    assert_eq!(enabled(machine, DAEMON), "enabled", "the unit is restored");
    for path in [STANDBY, STANDBY_PROGRAM] {
        assert!(machine.disk()?.stat(path)?.is_none(), "{path} is left");
    }
    let journal =
        output(machine, &["journalctl", "--no-pager", "-t", "machine-config-daemon-host"]);
    assert!(journal.contains("rolled back: no daemon started"), "{journal}");
    cluster.remove("90-broken")?;
    cluster.wait("the node to be Done without the config", |node| {
        node.is_done() && node.current == before && !node.cordoned
    })?;
    Ok(())
}
