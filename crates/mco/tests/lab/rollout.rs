//! A config goes to real machines: one at a time, drained within budgets, rebooted, and back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use mco_api::{MachineConfigPool, label};
use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, Machine, Step},
    nodes::View,
};

use crate::{
    application::Application,
    done,
    fleet::Fleet,
    lab,
    trouble::{a_config_that_breaks_the_kubelet_is_taken_back, a_roll_out_meets_with_trouble},
    workspace,
};

const FILE: &str = "/etc/custom-config";
const CONTENTS: &str = "greeting = hello\ninterval = 30\n";
const SECOND: &str = "/etc/second";
/// What takes a config back where no daemon comes up.
const STANDBY: &str = "machine-config-daemon-confirm.service";
const STANDBY_PROGRAM: &str = "/var/lib/machine-config-daemon/confirm";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_reaches_real_machines_whatever_happens_to_them() {
    let start = Instant::now();
    let told = |what: &str| eprintln!("lab: {:5.1} s: {what}", start.elapsed().as_secs_f32());
    let Some(lab) = lab().await else { return };
    told("three machines are Ready");
    let fleet = Fleet::watch(&lab);
    done(our_processes_take_the_machines_over(&lab, &fleet).await);
    told("our processes manage them");
    let application = done(Application::start(&lab).await);
    done(a_file_and_a_unit_reach_every_machine_one_at_a_time(&lab, &fleet, &application).await);
    told("a file and a unit have reached every machine");
    done(a_changed_file_degrades_its_machine_until_it_is_put_back(&lab, &fleet).await);
    told("a changed file was noticed");
    done(a_machine_that_is_killed_in_its_update_converges(&lab, &fleet, &application).await);
    told("a machine that was killed in its update has converged");
    done(a_roll_out_meets_with_trouble(&lab, &fleet, &application).await);
    told("a roll-out has come through although much went wrong");
    done(a_config_that_breaks_the_kubelet_is_taken_back(&lab, &fleet).await);
    told("a config that broke the kubelet was taken back");
    let memory = lab.memory();
    let [processes, peak] = [memory.processes, memory.peak].map(|bytes| bytes >> 20);
    told(&format!(
        "its processes take {processes} MiB, with files that are cached {peak} MiB at most"
    ));
    drop((fleet, application));
    done(lab.down());
    told("nothing is left");
}

async fn our_processes_take_the_machines_over(lab: &Lab, fleet: &Fleet<'_>) -> anyhow::Result<()> {
    lab.ask(&["label", "nodes", "--all", "node-role.kubernetes.io/worker="])?;
    let manifests = workspace().join("deploy").display().to_string();
    lab.ask(&["apply", "-f", &manifests])?;
    let daemons: Api<DaemonSet> = Api::namespaced(lab.client(), label::NAMESPACE);
    let step = Step::of_all("the daemon to run on every machine");
    lab.wait(step, daemons, "machine-config-daemon", |set| {
        let ready = set.status.clone().unwrap_or_default().number_ready;
        if ready == 3 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await?;
    for machine in lab.machines() {
        fleet.wait(machine, "its first config", |node| node.is_past("")).await?;
    }
    pool_is_updated(lab).await.map(drop)
}

async fn a_file_and_a_unit_reach_every_machine_one_at_a_time(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<()> {
    let before = at_rest(lab, fleet, application).await?;
    let pods = application.pods().await?;
    let boots = boots(lab)?;
    let config = workspace().join("examples/99-worker-custom.yaml").display().to_string();
    lab.ask(&["apply", "-f", &config])?;
    let mut waiting = names(lab);
    while !waiting.is_empty() {
        let machine = fleet.wait_next(&waiting, &before).await?;
        changes(fleet, machine, &before, &boots[machine.name()]).await?;
        waiting.remove(machine.name());
    }
    pool_is_updated(lab).await?;
    for machine in lab.machines() {
        let name = machine.name();
        assert_eq!(machine.read(FILE)?.as_deref(), Some(CONTENTS), "{name}");
        let unit = ["systemctl", "is-enabled", "custom.service"];
        assert_eq!(machine.ask(&unit)?.trim(), "enabled", "{name}: the unit");
        let unit = ["systemctl", "is-active", "custom.service"];
        assert_eq!(machine.ask(&unit)?.trim(), "active", "{name}: the unit");
        assert_ne!(boot_id(machine)?, boots[name], "{name} has rebooted");
        a_standby_has_left_it_to_the_daemon(machine)?;
    }
    let busiest = fleet.busiest();
    assert_eq!(busiest.len(), 1, "one machine at a time: {busiest:#?}");
    let now = application.pods().await?;
    assert!(pods.is_disjoint(&now), "every pod was evicted: {pods:?}, {now:?}");
    let fewest = application.fewest_available();
    assert!(fewest >= 2, "the budget was kept: {fewest} pods were there");
    Ok(())
}

/// The daemon is a pod here: what it leaves for the reboot must run on the machine itself, and go.
fn a_standby_has_left_it_to_the_daemon(machine: &Machine) -> anyhow::Result<()> {
    let journal = || machine.journal(Some(STANDBY), 20).unwrap_or_default();
    let over = || journal().contains("nothing is left to stand by for").then_some(());
    let waited = wait(&format!("{STANDBY} of {} to end", machine.name()), PATIENCE, over);
    waited.map_err(|error| error.context(journal()))?;
    let (name, disk) = (machine.name(), machine.disk()?);
    for path in ["/etc/systemd/system/machine-config-daemon-confirm.service", STANDBY_PROGRAM] {
        assert!(disk.stat(path)?.is_none(), "{name}: {path} is left");
    }
    Ok(())
}

/// The present boot of a machine, as the machine itself tells.
pub(crate) fn boot_id(machine: &Machine) -> anyhow::Result<String> {
    Ok(machine.ask(&["cat", "/proc/sys/kernel/random/boot_id"])?.trim().to_owned())
}

/// The present boots of all machines, by name.
fn boots(lab: &Lab) -> anyhow::Result<BTreeMap<&str, String>> {
    lab.machines().iter().map(|machine| Ok((machine.name(), boot_id(machine)?))).collect()
}

/// Follows one machine through its update; each step that does not come says so, and none is missed
/// where the machine is faster than who looks.
async fn changes(
    fleet: &Fleet<'_>,
    machine: &Machine,
    before: &str,
    boot: &str,
) -> anyhow::Result<()> {
    let has_it = |node: &View| node.current != before && node.current == node.desired;
    fleet.wait(machine, "it to be cordoned", |node| node.cordoned || has_it(node)).await?;
    let what = "it to be drained, changed and rebooted";
    fleet.wait(machine, what, |node| node.boot_id != boot && node.ready).await?;
    fleet.wait(machine, "it to say that it has its config", has_it).await?;
    fleet.wait(machine, "it to be uncordoned", |node| !node.cordoned).await?;
    fleet.wait(machine, "it to be Done", |node| node.state == "Done").await?;
    Ok(())
}

async fn a_changed_file_degrades_its_machine_until_it_is_put_back(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let machine = lab.machine("m2")?;
    machine.ask(&["sh", "-c", &format!("echo greeting = bye > {FILE}")])?;
    let wrong = format!("content mismatch for file \"{FILE}\"");
    fleet
        .wait(machine, "it to be Degraded by the changed file", |node| {
            node.state == "Degraded" && node.reason.contains(&wrong)
        })
        .await?;
    wait_for_pool(lab, "the pool to be Degraded", |pool| condition(pool, "Degraded") == "True")
        .await?;
    machine.write(FILE, CONTENTS)?;
    let what = "it to be Done again after the file was put back";
    fleet.wait(machine, what, |node| node.state == "Done").await?;
    wait_for_pool(lab, "the pool to be well again", |pool| condition(pool, "Degraded") == "False")
        .await?;
    Ok(())
}

async fn a_machine_that_is_killed_in_its_update_converges(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<()> {
    let before = at_rest(lab, fleet, application).await?;
    let config = workspace().join("crates/mco/tests/lab/second.yaml").display().to_string();
    lab.ask(&["apply", "-f", &config])?;
    let mut waiting = names(lab);
    let victim = fleet.wait_next(&waiting, &before).await?;
    drained(fleet, victim, &before).await?;
    // As its node tells: the machine itself may be on its way down.
    let boot = fleet.view(victim).boot_id;
    victim.power_cut()?;
    victim.boot()?;
    fleet.wait(victim, "it to be back after the power cut", |node| node.boot_id != boot).await?;
    while !waiting.is_empty() {
        let machine = fleet.wait_next(&waiting, &before).await?;
        let what = "it to be Done with the second config";
        fleet.wait(machine, what, |node| node.is_past(&before)).await?;
        assert_eq!(machine.read(SECOND)?.as_deref(), Some("second\n"), "{}", machine.name());
        waiting.remove(machine.name());
    }
    pool_is_updated(lab).await.map(drop)
}

/// Waits until a machine is empty and about to change. One that is past it already serves as well: it
/// only was faster than who looks.
pub(crate) async fn drained(
    fleet: &Fleet<'_>,
    machine: &Machine,
    before: &str,
) -> anyhow::Result<()> {
    let is_empty = |node: &View| node.state == "Working" && node.cordoned && node.is_drained();
    let is_so = |node: &View| is_empty(node) || node.is_past(before);
    fleet.wait(machine, "it to be drained for its update", is_so).await.map(drop)
}

/// Waits until nothing is under way, and counts from then on; returns the name of everybody's config.
pub(crate) async fn at_rest(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<String> {
    let before = pool_is_updated(lab).await?;
    application.wait_complete().await?;
    fleet.busiest();
    application.fewest_available();
    Ok(before)
}

/// The names of all machines.
pub(crate) fn names(lab: &Lab) -> BTreeSet<&str> {
    lab.machines().iter().map(Machine::name).collect()
}

/// Waits until every machine of the pool has its config, and returns the config's name.
pub(crate) async fn pool_is_updated(lab: &Lab) -> anyhow::Result<String> {
    let updated = wait_for_pool(lab, "the pool to be Updated", |pool| {
        let status = pool.status.clone().unwrap_or_default();
        let name = &pool.spec.configuration.rendered.name;
        let has_it = !name.is_empty() && status.configuration.rendered.name == *name;
        has_it && status.machine_count == 3 && condition(pool, "Updated") == "True"
    });
    let updated = updated.await.map_err(|error| error.context(cordoned(lab)));
    Ok(updated?.spec.configuration.rendered.name)
}

/// The machines that are closed to pods: whoever waits for all of them waits for these.
fn cordoned(lab: &Lab) -> String {
    let format = "jsonpath={range .items[?(@.spec.unschedulable==true)]}{.metadata.name} {end}";
    match lab.ask(&["get", "nodes", "-o", format]) {
        Ok(names) if names.trim().is_empty() => "no machine is cordoned".to_owned(),
        Ok(names) => format!("{}: timed out waiting for it to be uncordoned", names.trim()),
        Err(error) => format!("nobody knows which machine is cordoned ({error:#})"),
    }
}

pub(crate) async fn wait_for_pool(
    lab: &Lab,
    what: &str,
    is: impl Fn(&MachineConfigPool) -> bool,
) -> anyhow::Result<MachineConfigPool> {
    let pools: Api<MachineConfigPool> = Api::all(lab.client());
    lab.wait(Step::of_all(what), pools, "worker", |pool| {
        if is(pool) { Ok(pool.clone()) } else { Err(format!("{:?}", pool.status)) }
    })
    .await
}

pub(crate) fn condition(pool: &MachineConfigPool, kind: &str) -> String {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|found| found.kind.as_str() == kind);
    found.map(|found| found.status.clone()).unwrap_or_default()
}
