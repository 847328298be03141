//! What goes wrong in real clusters while a config is on its way: a budget that is never met, a machine
//! that is cut off, a leader whose machine goes down, and a config that breaks the kubelet.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use mco_api::{MachineConfigNode, label};
use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, Machine, Network, Step},
    nodes::View,
};

use crate::{
    application::Application,
    fleet::Fleet,
    rollout::{at_rest, boot_id, drained, names, pool_is_updated, wait_for_pool},
    workspace,
};

const BUDGET: &str = "application";

fn manifest(name: &str) -> String {
    workspace().join("crates/mco/tests/lab").join(name).display().to_string()
}

/// One roll-out, with another trouble on each of the three machines.
pub(crate) async fn a_roll_out_meets_with_trouble(
    lab: &Lab,
    fleet: &Fleet<'_>,
    application: &Application<'_>,
) -> anyhow::Result<()> {
    let before = at_rest(lab, fleet, application).await?;
    set_budget(lab, 3)?;
    lab.ask(&["apply", "-f", &manifest("third.yaml")])?;
    let mut waiting = names(lab);

    let machine = fleet.wait_next(&waiting, &before).await?;
    a_drain_that_cannot_finish_says_who_is_to_blame(lab, machine).await?;
    set_budget(lab, 2)?;
    let what = "it to be updated once the budget allows it";
    fleet.wait(machine, what, |node| node.is_past(&before)).await?;
    waiting.remove(machine.name());
    eprintln!("lab: a drain that could not finish said so, and finished");

    let machine = fleet.wait_next(&waiting, &before).await?;
    a_machine_that_is_cut_off_keeps_its_place(fleet, machine, &before).await?;
    waiting.remove(machine.name());
    eprintln!("lab: a machine that was cut off has come back");

    let machine = fleet.wait_next(&waiting, &before).await?;
    the_leaders_machine_goes_down(lab, fleet).await?;
    let what = "it to be updated although the leader was lost";
    fleet.wait(machine, what, |node| node.is_past(&before)).await?;
    pool_is_updated(lab).await?;
    let busiest = fleet.busiest();
    assert_eq!(busiest.len(), 1, "one machine at a time, whatever happens: {busiest:#?}");
    Ok(())
}

/// How many pods of the application must be there.
fn set_budget(lab: &Lab, least: u8) -> anyhow::Result<()> {
    let patch = format!(r#"{{"spec": {{"minAvailable": {least}}}}}"#);
    lab.ask(&["patch", "pdb", BUDGET, "--type", "merge", "-p", &patch]).map(drop)
}

async fn a_drain_that_cannot_finish_says_who_is_to_blame(
    lab: &Lab,
    machine: &Machine,
) -> anyhow::Result<()> {
    let reports: Api<MachineConfigNode> = Api::all(lab.client());
    let step = Step::on(machine, "its drain to say what holds it up");
    let said = lab.wait(step, reports, machine.name(), |report| {
        let conditions = report.status.clone().unwrap_or_default().conditions;
        let drained = conditions.into_iter().find(|found| found.type_ == "Drained");
        let drained = drained.ok_or("nothing is said of its drain")?;
        let blamed =
            drained.message.contains("PodDisruptionBudget default/application wants 3 of 3");
        if drained.status == "Unknown" && blamed {
            Ok(drained.message)
        } else {
            Err(drained.message)
        }
    });
    let said = said.await?;
    for part in ["pod default/application-", "of ReplicaSet application-", "since "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    wait("somebody to be told that it cannot finish", PATIENCE, || {
        let events =
            lab.ask(&["get", "events", "-A", "-o", "jsonpath={.items[*].message}"]).ok()?;
        events.contains("this drain cannot finish").then_some(())
    })
}

async fn a_machine_that_is_cut_off_keeps_its_place(
    fleet: &Fleet<'_>,
    machine: &Machine,
    before: &str,
) -> anyhow::Result<()> {
    drained(fleet, machine, before).await?;
    machine.set_network(Network::Cut)?;
    fleet.wait(machine, "it to be missed", |node| !node.ready).await?;
    machine.set_network(Network::Connected)?;
    fleet.wait(machine, "it to be updated after the cut", |node| node.is_past(before)).await?;
    Ok(())
}

/// Restarts the machine that the controller runs on, without asking anybody.
async fn the_leaders_machine_goes_down(lab: &Lab, fleet: &Fleet<'_>) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), label::NAMESPACE);
    let ours = ListParams::default().labels("k8s-app=machine-config-controller");
    let running = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    let found = pods.list(&ours).await?.items.into_iter().find(running);
    let name = found.and_then(|pod| pod.spec?.node_name);
    let Some(name) = name else {
        // It is on its way from one machine to another, which is as good.
        eprintln!("lab: the leader is on its way to another machine");
        return Ok(());
    };
    let machine = lab.machine(&name)?;
    let boot = fleet.view(machine).boot_id;
    machine.power_cut()?;
    machine.boot()?;
    fleet.wait(machine, "it to be back", |node| node.boot_id != boot && node.ready).await?;
    eprintln!("lab: {name}, on which the leader ran, was restarted");
    Ok(())
}

/// The kubelet does not come up with a new config; the daemon still runs, and so it can be taken back.
pub(crate) async fn a_config_that_breaks_the_kubelet_is_taken_back(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let before = pool_is_updated(lab).await?;
    lab.ask(&["apply", "-f", &manifest("policies.yaml")])?;
    let status = ["patch", "machineconfiguration", "cluster", "--subresource=status", "--type"];
    let file = manifest("policies-status.json");
    lab.ask(&[&status[..], &["merge", "--patch-file", &file]].concat())?;
    lab.ask(&["apply", "-f", &manifest("broken.yaml")])?;
    let machine = fleet.wait_next(&names(lab), &before).await?;
    let boot = boot_id(machine)?;
    let noticed = |node: &View| !node.ready || node.state == "Degraded";
    let found = fleet.wait(machine, "its kubelet to be missed", noticed).await?;
    if !found.ready {
        // One that ends at once is active for a moment, again and again.
        wait("its kubelet to be down", PATIENCE, || {
            let kubelet = machine.run(&["systemctl", "is-active", "kubelet.service"]).ok()?;
            (String::from_utf8_lossy(&kubelet.stdout).trim() != "active").then_some(())
        })?;
    }
    eprintln!("lab: {} was told to break its kubelet: {found}", machine.name());
    for other in lab.machines().iter().filter(|other| other.name() != machine.name()) {
        let view = fleet.view(other);
        assert_eq!(view.desired, before, "it goes no further: {} {view}", other.name());
    }

    lab.ask(&["delete", "mc", "99-worker-broken"])?;
    let what = "it to be repaired by the revert";
    let repaired = |node: &View| {
        node.ready && node.state == "Done" && node.current == before && node.desired == before
    };
    for machine in lab.machines() {
        fleet.wait(machine, what, repaired).await?;
    }
    assert_eq!(boot_id(machine)?, boot, "nobody had to restart it");
    wait_for_pool(lab, "the pool to be well", |pool| {
        crate::rollout::condition(pool, "Degraded") == "False"
    })
    .await?;
    pool_is_updated(lab).await.map(drop)
}
