//! What a cluster brings along beside our processes, for machines whose daemons run elsewhere:
//! kubelets, a scheduler, a workload with its disruption budget.

use std::path::PathBuf;

use kube::Client;
use mco_cluster::{Clock, Shutdown};
use mco_daemon::simulate::Power;
use tokio::{sync::watch, task::JoinSet};

use super::{
    fleet, kubelet,
    live::{Show, Sight},
    workload::{self, Accounts},
};
use crate::print::Screen;

/// Which machines there are.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) masters: u16,
    pub(crate) workers: u16,
    /// The folder with the root directory of each machine.
    pub(crate) nodes: PathBuf,
}

/// Plays its part until told to stop, and writes a line for each change of the cluster.
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
        let (client, stop) = (client.clone(), shutdown.clone());
        tasks.spawn(kubelet::run(client, machine, root, Clock::System, seen, stop));
    }
    let sight = Sight::start(client, shutdown);
    let (nodes, wanted) = (sight.nodes.clone(), usize::from(settings.workers));
    let (client, stop) = (client.clone(), shutdown.clone());
    tasks.spawn(workload::run(client, nodes, wanted, Accounts::Missing, stop));
    sight.show(Show::Lines, screen, shutdown).await?;
    shutdown.request();
    tasks.join_all().await;
    Ok(())
}
