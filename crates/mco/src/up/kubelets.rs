//! Simulated kubelets, controllers and workload for machines whose daemons run in other processes.

use std::path::PathBuf;

use kube::Client;
use mco_cluster::{Clock, Shutdown};
use mco_daemon::simulate::Power;
use tokio::{sync::watch, task::JoinSet};

use super::{
    controllers,
    display::{ClusterWatch, DisplayMode},
    fleet, kubelet,
    workload::{self, BudgetUpdates},
};
use crate::print::Screen;

/// The simulated machines.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) masters: u16,
    pub(crate) workers: u16,
    /// Directory with the root directory of each machine.
    pub(crate) nodes: PathBuf,
}

/// Runs the simulation until shutdown, and writes a line for each change of the cluster.
pub(crate) async fn run(
    settings: &Settings,
    client: &Client,
    screen: &mut Screen<'_>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    for machine in fleet::machines(settings.masters, settings.workers) {
        let root = settings.nodes.join(machine.name.as_str());
        let (power, seen) = watch::channel(Power::Off);
        tasks.spawn(kubelet::follow(root.clone(), power, shutdown.clone()));
        let clients = kubelet::Clients { administrator: client.clone(), node: client.clone() };
        let stop = shutdown.clone();
        let seen = (seen, kubelet::Registration::AtOnce);
        tasks.spawn(kubelet::run(clients, machine, root, Clock::System, seen, stop));
    }
    let cluster = ClusterWatch::start(client, shutdown);
    let (nodes, wanted) = (cluster.nodes.clone(), usize::from(settings.workers));
    let (client, stop) = (client.clone(), shutdown.clone());
    tasks.spawn(controllers::run(client.clone(), nodes, Clock::System, stop.clone()));
    tasks.spawn(workload::run(client, wanted, BudgetUpdates::ByWorkload, stop));
    cluster.show(DisplayMode::Lines, screen, shutdown).await?;
    shutdown.request();
    tasks.join_all().await;
    Ok(())
}
