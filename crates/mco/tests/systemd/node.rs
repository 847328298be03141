//! A node whose daemon is a service of its systemd: configs with and without a reboot, kill -9 in the middle,
//! an editor behind everybody's back, and a config after which the daemon does not come up.

use mco_testkit::{PATIENCE, api::wait, lab::Machine, nodes::View};
use serde_json::{Value, json};

use crate::{
    boot_id,
    cluster::{Cluster, DAEMON},
    done, machine, said,
};

const APP: &str = "\
[Service]
ExecStart=/bin/sleep infinity
ExecReload=/bin/cp /etc/app.conf /run/app.seen
[Install]
WantedBy=multi-user.target
";

/// Starts only once somebody lets it.
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

/// What takes a config back where no daemon comes up.
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
            {"path": "/etc/mco/release", "actions": [none]},
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
fn a_node_follows_its_configs_through_its_own_systemd() {
    let Some(lone) = machine() else { return };
    let cluster = done(Cluster::around(&lone, &policies()));
    done(a_machine_that_joins_gets_its_units_without_a_reboot(&cluster));
    done(a_service_hears_of_its_file_without_a_reboot(&cluster));
    done(a_daemon_that_is_killed_in_the_middle_goes_on(&cluster));
    done(a_config_that_needs_it_reboots_the_machine_once(&cluster));
    done(an_editor_that_renames_degrades_the_node_until_it_is_put_back(&cluster));
    done(the_machine_takes_back_a_config_that_keeps_the_daemon_down(&cluster));
}

fn enabled(machine: &Machine, unit: &str) -> String {
    said(machine, &["systemctl", "is-enabled", unit])
}

fn property(machine: &Machine, unit: &str, name: &str) -> String {
    said(machine, &["systemctl", "show", "--value", "--property", name, unit])
}

fn a_machine_that_joins_gets_its_units_without_a_reboot(
    cluster: &Cluster<'_>,
) -> anyhow::Result<()> {
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
    // The units may come after the config that the pool had before them.
    let target = cluster.target_with("50-units")?;
    let node = cluster
        .wait("it to have its first config", |node| node.is_done() && node.current == target)?;
    for (unit, want) in [
        ("app.service", "enabled"),
        ("off.service", "disabled"),
        ("systemd-pstore.service", "masked"),
    ] {
        assert_eq!(enabled(machine, unit), want, "{unit}: {node:?}");
    }
    assert_eq!(property(machine, "app.service", "ActiveState"), "active");
    assert_eq!(property(machine, "app.service", "Environment"), "PLACE=here", "the drop-in counts");
    assert_eq!(boot_id(machine), boot, "nothing of it needed a reboot");
    Ok(())
}

fn a_service_hears_of_its_file_without_a_reboot(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let (boot, process) = (boot_id(machine), property(machine, "app.service", "MainPID"));
    cluster.roll_out("60-file", &file("/etc/app.conf", "one"), &json!([]))?;
    assert_eq!(said(machine, &["cat", "/run/app.seen"]), "one", "it was reloaded");
    assert_eq!(property(machine, "app.service", "MainPID"), process, "and not restarted");
    assert_eq!(boot_id(machine), boot);
    Ok(())
}

fn a_daemon_that_is_killed_in_the_middle_goes_on(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let before = cluster.node()?.current;
    cluster.add("70-slow", &file("/etc/slow.conf", "slow"), &json!([]))?;
    let begun =
        || machine.run(&["test", "-e", "/run/slow.begun"]).is_ok_and(|it| it.status.success());
    wait("the daemon to be in the middle of it", PATIENCE, || begun().then_some(()))?;
    let process = property(machine, DAEMON, "MainPID");
    machine.ask(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", DAEMON])?;
    wait("systemd to start the daemon again", PATIENCE, || {
        let now = property(machine, DAEMON, "MainPID");
        (now != "0" && now != process).then_some(())
    })?;
    assert_eq!(cluster.node()?.current, before, "it is still in the middle");
    machine.ask(&["touch", "/run/slow.go"])?;
    cluster
        .wait("it to go on where it was killed", |node| node.is_done() && node.current != before)?;
    assert_eq!(machine.read("/etc/slow.conf")?.as_deref(), Some("slow"));
    assert_eq!(property(machine, "slow.service", "ActiveState"), "active");
    Ok(())
}

fn a_config_that_needs_it_reboots_the_machine_once(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let (boot, before) = (boot_id(machine), cluster.node()?.current);
    machine.rebooted_by(|| cluster.add("80-boot", &file("/etc/boot.conf", "new"), &json!([])))?;
    let after = boot_id(machine);
    assert_ne!(after, boot);
    let node = cluster.wait("it to have the config that it rebooted for", |node| {
        node.is_done() && node.current != before && !node.cordoned
    })?;
    assert_eq!(node.last_drain, format!("uncordon-{}", node.current));
    assert_eq!(node.last_drain, node.desired_drain, "it asked to be open again");
    assert_eq!(machine.read("/etc/boot.conf")?.as_deref(), Some("new"));
    for path in ["/etc/machine-config-daemon/mco-update.json", STANDBY, STANDBY_PROGRAM] {
        assert!(machine.disk()?.stat(path)?.is_none(), "{path} is left");
    }
    let journal = said(machine, &["journalctl", "--no-pager", "-t", "machine-config-daemon-host"]);
    assert!(journal.contains("initiating reboot"), "{journal}");
    assert_eq!(property(machine, "app.service", "ActiveState"), "active", "it starts at boot");
    assert_eq!(boot_id(machine), after, "once is enough");
    Ok(())
}

fn an_editor_that_renames_degrades_the_node_until_it_is_put_back(
    cluster: &Cluster<'_>,
) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let config = cluster.node()?.current;
    // It writes another file and renames it.
    machine.ask(&["sed", "-i", "s/one/by hand/", "/etc/app.conf"])?;
    let node = cluster.wait("it to be Degraded by the edit", |node| node.state == "Degraded")?;
    let want = format!(
        "unexpected on-disk state validating against {config}: content mismatch for file \"/etc/app.conf\""
    );
    assert_eq!(node.reason, want);
    machine.ask(&["sed", "-i", "s/by hand/one/", "/etc/app.conf"])?;
    cluster.wait("it to be well once the file is put back", View::is_done)?;
    Ok(())
}

fn the_machine_takes_back_a_config_that_keeps_the_daemon_down(
    cluster: &Cluster<'_>,
) -> anyhow::Result<()> {
    let machine = cluster.machine;
    let (boot, before) = (boot_id(machine), cluster.node()?.current);
    cluster.confirm_within("5s")?;
    let units = json!([{"name": DAEMON, "mask": true}]);
    machine.rebooted_by(|| cluster.add("90-broken", &file("/etc/broken.conf", "new"), &units))?;
    // Nobody but the machine itself is left to do something, and nobody speaks before that.
    let node = cluster.wait("it to say that the config was taken back", |node| {
        node.state == "Degraded" && node.reason.contains("was rolled back after its reboot")
    })?;
    assert!(node.reason.contains("no daemon came up to confirm it within 5s"), "{node:?}");
    assert_eq!(node.current, before);
    assert_ne!(boot_id(machine), boot);
    assert_eq!(machine.read("/etc/broken.conf")?, None);
    assert_eq!(enabled(machine, DAEMON), "enabled", "its unit is back");
    for path in [STANDBY, STANDBY_PROGRAM] {
        assert!(machine.disk()?.stat(path)?.is_none(), "{path} is left");
    }
    let journal = said(machine, &["journalctl", "--no-pager", "-t", "machine-config-daemon-host"]);
    assert!(journal.contains("rolled back: no daemon started"), "{journal}");
    cluster.remove("90-broken")?;
    cluster.wait("it to be well without that config", |node| {
        node.is_done() && node.current == before && !node.cordoned
    })?;
    Ok(())
}
