//! Blank machines become nodes: with a token, not without one, and after a power cut at every stage.

mod cluster;
mod ignition;
mod power;

use std::{path::Path, time::Instant};

use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, Machine},
};

use self::cluster::JoinCluster;
pub(crate) use self::cluster::Snapshot;
use crate::{TURN, done, fleet::Fleet, lab};

pub(crate) const MCO: &str = "/usr/local/bin/mco";
/// Output of the command that joins.
const LOG: &str = "/root/join.log";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blank_machines_join_with_a_token() {
    let _turn = TURN.lock().await;
    let start = Instant::now();
    let log = |what: &str| eprintln!("join: {:5.1} s: {what}", start.elapsed().as_secs_f32());
    let Some(lab) = lab().await else { return };
    log("three machines are Ready");
    let program = Path::new(env!("CARGO_BIN_EXE_mco"));
    let blank = |number| done(lab.add_blank_machine(number, program));
    let machines = [blank(4), blank(5), blank(6)];
    for machine in &machines {
        done(machine.start());
    }
    let [joins, is_refused, loses_power] = &machines;
    let has_ignition = ignition::is_installed();
    let by_ignition = blank(7);
    let cluster = done(JoinCluster::install(&lab).await);
    log("the config server serves the profile `full`");
    for machine in &machines {
        done(machine.boot());
        done(cluster.introduce(machine));
    }
    let before = done(Snapshot::of(&lab));
    let fleet = Fleet::watch(&lab);

    done(a_wrong_token_gets_nothing(&cluster, is_refused));
    log("a machine with a wrong token got nothing");
    done(a_failed_join_is_reported(&cluster, is_refused));
    log("a machine that cannot take the config is named by `mco status`");
    done(a_kubelet_that_does_not_run_is_reported(&cluster, is_refused));
    log("a machine whose kubelet does not run is named by `mco status`");
    let cuts = power::Cuts::start(&cluster, loses_power);
    if has_ignition {
        done(ignition::install(&cluster, &by_ignition));
        log("Ignition has set up the disk of a machine, which boots");
    }
    done(a_blank_machine_becomes_a_node(&lab, &cluster, &fleet, joins).await);
    log("a blank machine has joined");
    done(cuts.and_then(|cuts| cuts.at_every_stage(&log)));
    done(becomes_done(&lab, &cluster, &fleet, loses_power).await);
    log("a machine that lost its power at every stage has joined");
    if has_ignition {
        done(becomes_done(&lab, &cluster, &fleet, &by_ignition).await);
        log("a machine that Ignition set up has joined");
    }
    assert_eq!(done(Snapshot::of(&lab)), before, "the other machines were not touched");
    drop(fleet);
    drop(cluster);
    done(lab.down());
    log("the lab was removed");
}

fn a_wrong_token_gets_nothing(cluster: &JoinCluster<'_>, machine: &Machine) -> anyhow::Result<()> {
    let wrong = format!("{}.{}", "a".repeat(8), "b".repeat(32));
    machine.write("/root/token", &wrong)?;
    let output = machine.run(&cluster.join_words())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("403"), "{text}");
    assert!(!text.contains(&"b".repeat(32)), "{text}");
    for path in [
        "/var/lib/machine-config-daemon",
        "/etc/kubernetes",
        "/etc/mcs-machine-config-content.json",
    ] {
        assert!(machine.disk()?.stat(path)?.is_none(), "{path} was written");
    }
    wait("the refusal in the server's log", PATIENCE, || {
        let log = cluster.server_log().ok()?;
        log.lines().any(|line| line.contains("aaaaaaaa") && line.contains("worker")).then_some(())
    })
    .map_err(|error| error.context(cluster.server_log().unwrap_or_default()))
}

/// A directory of the machine is in the place of a file of the config.
fn a_failed_join_is_reported(cluster: &JoinCluster<'_>, machine: &Machine) -> anyhow::Result<()> {
    let path = "/etc/containerd/config.toml";
    machine.ask(&["rm", "-rf", path])?;
    machine.ask(&["mkdir", "-p", &format!("{path}/in-the-way")])?;
    cluster.introduce(machine)?;
    let output = machine.run(&cluster.join_words())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the failure was reported to the config server"), "{text}");
    wait("the failure in `mco status`", PATIENCE, || {
        let status = cluster.status().ok()?;
        let of_machine = |line: &str| line.contains("first boot failed") && line.contains("m5");
        status.lines().find(|line| of_machine(line)).filter(|line| line.contains(path)).map(drop)
    })
    .map_err(|error| error.context(cluster.status().unwrap_or_default()))
}

/// The config is applied and the units are started, but the kubelet's program ends at once.
fn a_kubelet_that_does_not_run_is_reported(
    cluster: &JoinCluster<'_>,
    machine: &Machine,
) -> anyhow::Result<()> {
    machine.ask(&["rm", "-rf", "/etc/containerd/config.toml"])?;
    machine.ask(&["ln", "-sf", "/bin/false", "/usr/local/bin/kubelet"])?;
    let words = cluster.join_words().join(" ");
    let script = format!("exec {words} --report-after 5s >{LOG} 2>&1");
    machine.ask(&["systemd-run", "--unit=attempt", "sh", "-c", &script])?;
    let shown = wait("the failure in `mco status`", PATIENCE, || {
        let status = cluster.status().ok()?;
        let of_machine = |line: &str| line.contains("m5") && line.contains("step register");
        status.lines().find(|line| of_machine(line)).map(str::to_owned)
    });
    let text = machine.read(LOG)?.unwrap_or_default();
    let shown = shown.map_err(|error| error.context(text.clone()))?;
    assert!(shown.contains("waiting for the kubelet to request its certificate"), "{shown}");
    assert!(text.contains("the failure was reported to the config server"), "{text}");
    // The join goes on: it is the administrator who repairs the machine.
    machine.ask(&["systemctl", "is-active", "attempt"]).map(drop)
}

async fn a_blank_machine_becomes_a_node(
    lab: &Lab,
    cluster: &JoinCluster<'_>,
    fleet: &Fleet<'_>,
    machine: &Machine,
) -> anyhow::Result<()> {
    let words = cluster.join_words();
    let script = format!("{} >{LOG} 2>&1", words.join(" "));
    let (output, waited) = std::thread::scope(|scope| {
        let joined = scope.spawn(|| machine.run(&["sh", "-c", &script]));
        let is_named = || {
            let text = machine.read(LOG).ok()??;
            text.contains("waits for an approval").then_some(())
        };
        let waited = wait("the request to be named", PATIENCE, is_named)
            .map_err(|error| error.context(machine.read(LOG).ok().flatten().unwrap_or_default()))
            .and_then(|()| cluster.approve(machine));
        (joined.join().expect("the command does not panic"), waited)
    });
    waited?;
    let text = machine.read(LOG)?.unwrap_or_default();
    assert!(output?.status.success(), "{text}");
    assert!(text.contains("has joined pool worker as m4"), "{text}");
    cluster.shows_no_token(machine, &text)?;
    becomes_done(lab, cluster, fleet, machine).await?;
    let again = machine.ask(&words)?;
    assert!(again.contains("nothing to do"), "{again}");
    Ok(())
}

/// Waits until a machine is a Ready node of the pool and has its config.
async fn becomes_done(
    lab: &Lab,
    cluster: &JoinCluster<'_>,
    fleet: &Fleet<'_>,
    machine: &Machine,
) -> anyhow::Result<()> {
    cluster.approve(machine)?;
    let node = lab.wait_ready(machine).await?;
    let labels = node.metadata.labels.unwrap_or_default();
    let pool = labels.get("node.kubernetes.io/machine-config-pool").map(String::as_str);
    assert_eq!(pool, Some("worker"), "{labels:?}");
    cluster.has_role(machine)?;
    let config = cluster.config()?;
    let what = "the node to be Done with the pool's config";
    fleet
        .wait(machine, what, |node| {
            node.state == "Done" && node.current == config && node.desired == config
        })
        .await?;
    cluster.serves_logs(machine)?;
    for path in
        ["/etc/systemd/system/mco-join.service", "/var/lib/machine-config-daemon/join/program"]
    {
        assert!(machine.disk()?.stat(path)?.is_none(), "{path} is left");
    }
    Ok(())
}
