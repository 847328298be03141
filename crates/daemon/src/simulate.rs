//! Runs a machine that is only a directory as if it were a real one: it is installed, it boots, its
//! daemon starts, and when the daemon asks for a reboot it boots again.

use std::{path::PathBuf, time::Duration};

use kube::Client;
use mco_api::{MachineConfig, NodeName};
use mco_cluster::{Shutdown, report::chain};
use mco_host::{Host, Root, RootError, SimulatedSystem, SystemError};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    Ended, Surroundings, cluster::pool_config, disk, execute::ExecuteError, first_boot, run,
};

/// How often a machine that is not installed yet asks for its config.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    On,
    /// It does not: it is being installed, or between two boots.
    #[default]
    Off,
}

/// A machine that is only a directory.
#[derive(Debug)]
pub struct Machine {
    /// The node that it is.
    pub node: NodeName,
    /// The directory; made where it is missing.
    pub root: PathBuf,
    /// How long a boot takes.
    pub boot_time: Duration,
    /// Tells whether the machine runs.
    pub power: watch::Sender<Power>,
}

/// Why a machine cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The directory is a real machine's.
    #[error("{} is the root of a running machine, and this daemon runs simulated ones only", .0.display())]
    Real(PathBuf),
    /// The directory cannot be used.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The machine's state cannot be used.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The machine cannot be installed.
    #[error("cannot install the machine")]
    Install(#[from] ExecuteError),
}

/// Runs the machine until told to stop.
pub async fn simulate(
    machine: Machine,
    around: Surroundings,
    shutdown: Shutdown,
) -> Result<(), SimulateError> {
    let Machine { node, root: path, boot_time, power } = machine;
    let root = Root::create(&path)?;
    // Init's own entry: only the kernel puts it there.
    if root.exists("/proc/1/stat")? {
        return Err(SimulateError::Real(path));
    }
    SimulatedSystem::furnish(&root)?;
    if disk::current_config(&root).map_err(ExecuteError::from)?.is_none() {
        let Some(config) = first_config(&around.clients.own, &node, &shutdown).await else {
            return Ok(());
        };
        let mut host = Host { root: root.try_clone()?, system: SimulatedSystem::open(&root)? };
        first_boot::provision(&mut host, &config)?;
        host.system.boot()?;
    }
    loop {
        power.send_replace(Power::On);
        let host = Host { root: root.try_clone()?, system: SimulatedSystem::open(&root)? };
        let ended = run(node.clone(), host, around.clone(), shutdown.clone()).await;
        power.send_replace(Power::Off);
        match ended {
            Ended::Stopped => return Ok(()),
            Ended::Rebooting => {
                tokio::select! {
                    () = shutdown.requested() => return Ok(()),
                    () = tokio::time::sleep(boot_time) => {}
                }
                SimulatedSystem::open(&root)?.boot()?;
                info!(%node, "Booted");
            }
        }
    }
}

/// The config that a new machine is installed with: that of the pool its node belongs to.
async fn first_config(
    client: &Client,
    node: &NodeName,
    shutdown: &Shutdown,
) -> Option<MachineConfig> {
    loop {
        match pool_config(client, node).await {
            Ok(Some(config)) => return Some(config),
            Ok(None) => {}
            Err(error) => warn!(%node, error = chain(&error), "Cannot ask for the first config"),
        }
        tokio::select! {
            () = shutdown.requested() => return None,
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
    }
}
