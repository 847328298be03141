//! Failures during a rollout: a budget that is never met, a disconnected machine, a leader whose
//! machine goes down, and a config that breaks the kubelet.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use mco_api::{MachineConfigNode, label};
use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, Machine, Network, WaitTarget},
    nodes::NodeSummary,
};

use crate::{
    application::Application,
    fleet::Fleet,
    rollout::{boot_id, drained, idle, names, pool_is_updated, wait_for_pool},
    workspace,
};

const BUDGET: &str = "application";

fn manifest(name: &str) -> String {
    workspace().join("crates/mco/tests/lab").join(name).display().to_string()
}

/// Runs one rollout with another failure on each of the three machines.
pub(crate) async fn a_rollout_completes_despite_failures(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<()> {
    let before = idle(lab, fleet, application).await?;
    set_budget(lab, 3)?;
    lab.ask(&["apply", "-f", &manifest("third.yaml")])?;
    let mut waiting = names(lab);

    let machine = fleet.wait_next(&waiting, &before).await?;
    a_blocked_drain_names_the_budget(lab, machine).await?;
    set_budget(lab, 2)?;
    let what = "the node to be updated once the budget allows it";
    fleet.wait(machine, what, |node| node.has_updated_from(&before)).await?;
    waiting.remove(machine.name());
    eprintln!("lab: a blocked drain was reported, and finished");

    let machine = fleet.wait_next(&waiting, &before).await?;
    a_disconnected_machine_keeps_its_slot(fleet, machine, &before).await?;
    waiting.remove(machine.name());
    eprintln!("lab: a disconnected machine has reconnected");

    let machine = fleet.wait_next(&waiting, &before).await?;
    the_machine_of_the_leader_reboots(lab, fleet).await?;
    let what = "the node to be updated although the leader was lost";
    fleet.wait(machine, what, |node| node.has_updated_from(&before)).await?;
    pool_is_updated(lab).await?;
    let busiest = fleet.busiest();
    assert_eq!(busiest.len(), 1, "one machine at a time: {busiest:#?}");
    Ok(())
}

/// Sets the number of pods of the application that must be available.
fn set_budget(lab: &Lab, least: u8) -> anyhow::Result<()> {
    let patch = format!(r#"{{"spec": {{"minAvailable": {least}}}}}"#);
    lab.ask(&["patch", "pdb", BUDGET, "--type", "merge", "-p", &patch]).map(drop)
}

async fn a_blocked_drain_names_the_budget(lab: &Lab, machine: &Machine) -> anyhow::Result<()> {
    let reports: Api<MachineConfigNode> = Api::all(lab.client());
    let step = WaitTarget::machine(machine, "the drain to report its blocker");
    let message = lab.wait(step, reports, machine.name(), |report| {
        let conditions = report.status.clone().unwrap_or_default().conditions;
        let drained = conditions.into_iter().find(|found| found.type_ == "Drained");
        let drained = drained.ok_or("the drain has no condition")?;
        let blamed =
            drained.message.contains("PodDisruptionBudget default/application requires 3 of 3");
        if drained.status == "Unknown" && blamed {
            Ok(drained.message)
        } else {
            Err(drained.message)
        }
    });
    let message = message.await?;
    for part in ["pod default/application-", "of ReplicaSet application-", "since "] {
        assert!(message.contains(part), "{part}: {message}");
    }
    wait("an event about the blocked drain", PATIENCE, || {
        let events =
            lab.ask(&["get", "events", "-A", "-o", "jsonpath={.items[*].message}"]).ok()?;
        events.contains("this drain cannot finish").then_some(())
    })
}

async fn a_disconnected_machine_keeps_its_slot(
    fleet: &Fleet<'_>,
    machine: &Machine,
    before: &str,
) -> anyhow::Result<()> {
    drained(fleet, machine, before).await?;
    machine.set_network(Network::Cut)?;
    fleet.wait(machine, "the node to be not ready", |node| !node.ready).await?;
    machine.set_network(Network::Connected)?;
    fleet
        .wait(machine, "the node to be updated after it reconnected", |node| {
            node.has_updated_from(before)
        })
        .await?;
    Ok(())
}

/// Reboots the machine that the controller runs on, without a drain.
async fn the_machine_of_the_leader_reboots(lab: &Lab, fleet: &Fleet<'_>) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), label::NAMESPACE);
    let ours = ListParams::default().labels("k8s-app=machine-config-controller");
    let running = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    let found = pods.list(&ours).await?.items.into_iter().find(running);
    let name = found.and_then(|pod| pod.spec?.node_name);
    let Some(name) = name else {
        // The controller is being moved to another machine, which tests the same.
        eprintln!("lab: the leader is being moved to another machine");
        return Ok(());
    };
    let machine = lab.machine(&name)?;
    let boot = fleet.view(machine).boot_id;
    machine.power_cut()?;
    machine.boot()?;
    fleet.wait(machine, "the machine to boot", |node| node.boot_id != boot && node.ready).await?;
    eprintln!("lab: {name}, the machine of the leader, was rebooted");
    Ok(())
}

/// Rolls out a config with which the kubelet does not start. The daemon still runs and can roll
/// back.
pub(crate) async fn a_config_that_breaks_the_kubelet_is_rolled_back(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let before = pool_is_updated(lab).await?;
    lab.ask(&["apply", "-f", &manifest("policies.yaml")])?;
    lab.ask(&["apply", "-f", &manifest("broken.yaml")])?;
    let machine = fleet.wait_next(&names(lab), &before).await?;
    let boot = boot_id(machine)?;
    let noticed = |node: &NodeSummary| !node.ready || node.state == "Degraded";
    let found = fleet.wait(machine, "the kubelet to be missing", noticed).await?;
    if !found.ready {
        // A unit that fails at once is active for a moment after each restart.
        wait("the kubelet to be down", PATIENCE, || {
            let kubelet = machine.run(&["systemctl", "is-active", "kubelet.service"]).ok()?;
            (String::from_utf8_lossy(&kubelet.stdout).trim() != "active").then_some(())
        })?;
    }
    eprintln!("lab: {} got the config that breaks its kubelet: {found}", machine.name());
    for other in lab.machines().iter().filter(|other| other.name() != machine.name()) {
        let view = fleet.view(other);
        assert_eq!(view.desired, before, "the rollout stops: {} {view}", other.name());
    }

    lab.ask(&["delete", "mc", "99-worker-broken"])?;
    let what = "the node to be repaired by the revert";
    let repaired = |node: &NodeSummary| {
        node.ready && node.state == "Done" && node.current == before && node.desired == before
    };
    for machine in lab.machines() {
        fleet.wait(machine, what, repaired).await?;
    }
    assert_eq!(boot_id(machine)?, boot, "no reboot was needed");
    wait_for_pool(lab, "the pool to be well", |pool| {
        crate::rollout::condition(pool, "Degraded") == "False"
    })
    .await?;
    pool_is_updated(lab).await.map(drop)
}
