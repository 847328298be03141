//! A rollout to real machines: one at a time, drained within budgets, rebooted and uncordoned.

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
    lab::{Lab, Machine, WaitTarget},
    nodes::NodeSummary,
};

use crate::{
    TURN,
    application::Application,
    done,
    fleet::Fleet,
    lab, settings,
    trouble::{
        a_config_that_breaks_the_kubelet_is_rolled_back, a_rollout_completes_despite_failures,
    },
    workspace,
};

const FILE: &str = "/etc/custom-config";
const CONTENTS: &str = "greeting = hello\ninterval = 30\n";
const SECOND: &str = "/etc/second";
/// The unit that rolls back a config if no daemon starts.
const STANDBY: &str = "machine-config-daemon-confirm.service";
const STANDBY_PROGRAM: &str = "/var/lib/machine-config-daemon/confirm";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_is_rolled_out_despite_failures() {
    let _turn = TURN.lock().await;
    let start = Instant::now();
    let log = |what: &str| eprintln!("lab: {:5.1} s: {what}", start.elapsed().as_secs_f32());
    let Some(lab) = lab().await else { return };
    log("three machines are Ready");
    let fleet = Fleet::watch(&lab);
    done(the_processes_adopt_the_machines(&lab, &fleet).await);
    log("the processes manage the machines");
    let application = done(Application::start(&lab).await);
    done(a_file_and_a_unit_are_rolled_out_one_machine_at_a_time(&lab, &fleet, &application).await);
    log("a file and a unit were rolled out to every machine");
    done(a_changed_file_degrades_its_machine_until_restored(&lab, &fleet).await);
    log("a changed file was detected");
    done(a_machine_that_is_killed_during_its_update_converges(&lab, &fleet, &application).await);
    log("a machine that was killed during its update has converged");
    done(a_rollout_completes_despite_failures(&lab, &fleet, &application).await);
    log("a rollout has completed despite failures");
    done(a_config_that_breaks_the_kubelet_is_rolled_back(&lab, &fleet).await);
    log("a config that broke the kubelet was rolled back");
    done(
        settings::a_kubelet_config_reaches_the_kubelets_and_its_deletion_returns(&lab, &fleet)
            .await,
    );
    log("a KubeletConfig reached the kubelets, and was deleted");
    done(settings::a_mirror_is_used_without_a_reboot(&lab, &fleet).await);
    log("a mirror was used");
    done(settings::an_ssh_key_appears_and_disappears(&lab, &fleet).await);
    log("an SSH key appeared, and disappeared");
    let memory = lab.memory();
    let [processes, peak] = [memory.processes, memory.peak].map(|bytes| bytes >> 20);
    log(&format!("the processes use {processes} MiB, with cached files at most {peak} MiB"));
    drop((fleet, application));
    done(lab.down());
    log("the lab was removed");
}

async fn the_processes_adopt_the_machines(lab: &Lab, fleet: &Fleet<'_>) -> anyhow::Result<()> {
    lab.ask(&["label", "nodes", "--all", "node-role.kubernetes.io/worker="])?;
    crate::install::apply(lab, &[])?;
    let daemons: Api<DaemonSet> = Api::namespaced(lab.client(), label::NAMESPACE);
    let step = WaitTarget::cluster("the daemon to run on every machine");
    lab.wait(step, daemons, "machine-config-daemon", |set| {
        let ready = set.status.clone().unwrap_or_default().number_ready;
        if ready == 3 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await?;
    for machine in lab.machines() {
        fleet.wait(machine, "its first config", |node| node.has_updated_from("")).await?;
    }
    pool_is_updated(lab).await.map(drop)
}

async fn a_file_and_a_unit_are_rolled_out_one_machine_at_a_time(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<()> {
    let before = idle(lab, fleet, application).await?;
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
        the_standby_unit_left_the_config_to_the_daemon(machine)?;
    }
    let busiest = fleet.busiest();
    assert_eq!(busiest.len(), 1, "one machine at a time: {busiest:#?}");
    let now = application.pods().await?;
    assert!(pods.is_disjoint(&now), "every pod was evicted: {pods:?}, {now:?}");
    let fewest = application.fewest_available();
    assert!(fewest >= 2, "the budget was respected: {fewest} pods were available");
    Ok(())
}

/// The daemon is a pod here: the standby unit must run on the machine itself, and be removed.
fn the_standby_unit_left_the_config_to_the_daemon(machine: &Machine) -> anyhow::Result<()> {
    let journal = || machine.journal(Some(STANDBY), 20).unwrap_or_default();
    let over = || journal().contains("nothing to stand by for").then_some(());
    let waited = wait(&format!("{STANDBY} of {} to end", machine.name()), PATIENCE, over);
    waited.map_err(|error| error.context(journal()))?;
    let (name, disk) = (machine.name(), machine.disk()?);
    for path in ["/etc/systemd/system/machine-config-daemon-confirm.service", STANDBY_PROGRAM] {
        assert!(disk.stat(path)?.is_none(), "{name}: {path} is left");
    }
    Ok(())
}

/// Returns the boot id of a machine from the machine itself.
pub(crate) fn boot_id(machine: &Machine) -> anyhow::Result<String> {
    Ok(machine.ask(&["cat", "/proc/sys/kernel/random/boot_id"])?.trim().to_owned())
}

/// Returns the boot ids of all machines, by name.
fn boots(lab: &Lab) -> anyhow::Result<BTreeMap<&str, String>> {
    lab.machines().iter().map(|machine| Ok((machine.name(), boot_id(machine)?))).collect()
}

/// Follows one machine through its update. A missing step fails the test; a step that passed
/// between two polls does not.
async fn changes(
    fleet: &Fleet<'_>,
    machine: &Machine,
    before: &str,
    boot: &str,
) -> anyhow::Result<()> {
    let has_it = |node: &NodeSummary| node.current != before && node.current == node.desired;
    fleet.wait(machine, "the node to be cordoned", |node| node.cordoned || has_it(node)).await?;
    let what = "the node to be drained, changed and rebooted";
    fleet.wait(machine, what, |node| node.boot_id != boot && node.ready).await?;
    fleet.wait(machine, "the node to report its config", has_it).await?;
    fleet.wait(machine, "the node to be uncordoned", |node| !node.cordoned).await?;
    fleet.wait(machine, "the node to be Done", |node| node.state == "Done").await?;
    Ok(())
}

async fn a_changed_file_degrades_its_machine_until_restored(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let machine = lab.machine("m2")?;
    machine.ask(&["sh", "-c", &format!("echo greeting = bye > {FILE}")])?;
    let wrong = format!("content mismatch for file \"{FILE}\"");
    fleet
        .wait(machine, "the node to be Degraded by the changed file", |node| {
            node.state == "Degraded" && node.reason.contains(&wrong)
        })
        .await?;
    wait_for_pool(lab, "the pool to be Degraded", |pool| condition(pool, "Degraded") == "True")
        .await?;
    machine.write(FILE, CONTENTS)?;
    let what = "the node to be Done again after the file was restored";
    fleet.wait(machine, what, |node| node.state == "Done").await?;
    wait_for_pool(lab, "the pool to recover", |pool| condition(pool, "Degraded") == "False")
        .await?;
    Ok(())
}

async fn a_machine_that_is_killed_during_its_update_converges(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<()> {
    let before = idle(lab, fleet, application).await?;
    let config = workspace().join("crates/mco/tests/lab/second.yaml").display().to_string();
    lab.ask(&["apply", "-f", &config])?;
    let mut waiting = names(lab);
    let victim = fleet.wait_next(&waiting, &before).await?;
    drained(fleet, victim, &before).await?;
    // From the node, because the machine itself may be shutting down.
    let boot = fleet.view(victim).boot_id;
    victim.power_cut()?;
    victim.boot()?;
    fleet
        .wait(victim, "the machine to boot after the power cut", |node| node.boot_id != boot)
        .await?;
    while !waiting.is_empty() {
        let machine = fleet.wait_next(&waiting, &before).await?;
        let what = "the node to be Done with the second config";
        fleet.wait(machine, what, |node| node.has_updated_from(&before)).await?;
        assert_eq!(machine.read(SECOND)?.as_deref(), Some("second\n"), "{}", machine.name());
        waiting.remove(machine.name());
    }
    pool_is_updated(lab).await.map(drop)
}

/// Waits until a machine is drained and about to be changed. A machine that is already past that
/// state counts too.
pub(crate) async fn drained(
    fleet: &Fleet<'_>,
    machine: &Machine,
    before: &str,
) -> anyhow::Result<()> {
    let is_empty =
        |node: &NodeSummary| node.state == "Working" && node.cordoned && node.is_drained();
    let is_so = |node: &NodeSummary| is_empty(node) || node.has_updated_from(before);
    fleet.wait(machine, "the node to be drained for its update", is_so).await.map(drop)
}

/// Waits until no node is updating and restarts the counters; returns the config of all nodes.
pub(crate) async fn idle(
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

/// Returns the names of all machines.
pub(crate) fn names(lab: &Lab) -> BTreeSet<&str> {
    lab.machines().iter().map(Machine::name).collect()
}

/// Waits until every machine of the pool has its config, and returns the name of the config.
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

/// Returns the cordoned machines, for the message of a timeout.
fn cordoned(lab: &Lab) -> String {
    let format = "jsonpath={range .items[?(@.spec.unschedulable==true)]}{.metadata.name} {end}";
    match lab.ask(&["get", "nodes", "-o", format]) {
        Ok(names) if names.trim().is_empty() => "no machine is cordoned".to_owned(),
        Ok(names) => format!("{}: timed out waiting for it to be uncordoned", names.trim()),
        Err(error) => format!("failed to list the cordoned machines ({error:#})"),
    }
}

pub(crate) async fn wait_for_pool(
    lab: &Lab,
    what: &str,
    is: impl Fn(&MachineConfigPool) -> bool,
) -> anyhow::Result<MachineConfigPool> {
    let pools: Api<MachineConfigPool> = Api::all(lab.client());
    lab.wait(WaitTarget::cluster(what), pools, "worker", |pool| {
        if is(pool) { Ok(pool.clone()) } else { Err(format!("{:?}", pool.status)) }
    })
    .await
}

pub(crate) fn condition(pool: &MachineConfigPool, kind: &str) -> String {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|found| found.kind.as_str() == kind);
    found.map(|found| found.status.clone()).unwrap_or_default()
}
