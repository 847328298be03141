//! Simulates a machine in a directory: it is installed, it boots, its daemon starts, and when the
//! daemon starts a reboot it boots again.

use std::{path::PathBuf, time::Duration};

use kube::Client;
use mco_api::{MachineConfig, NodeName};
use mco_apply::{disk, execute::ExecuteError, first_boot};
use mco_cluster::{
    Shutdown,
    config_server::{ConfigServer, JoinToken, JoiningMachine},
    report::chain,
};
use mco_core::served_config;
use mco_host::{Host, Root, RootError, SimulatedSystem, SystemError};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{DaemonContext, DaemonExit, cluster::pool_config, run};

/// Pause between two lookups of the config for the installation.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The power state of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// The machine runs.
    On,
    /// The machine is being installed or reboots.
    #[default]
    Off,
}

/// A simulated machine.
#[derive(Debug)]
pub struct Machine {
    /// Name of its node.
    pub node: NodeName,
    /// Its root directory, created if missing.
    pub root: PathBuf,
    /// Duration of a boot.
    pub boot_time: Duration,
    /// Publishes the power state.
    pub power: watch::Sender<Power>,
    /// Source of the config that the machine is installed with.
    pub first: FirstConfig,
}

/// The source of the config that a machine is installed with.
#[derive(Clone, Debug)]
pub enum FirstConfig {
    /// The API server: the config of the pool that selects the node.
    ApiServer,
    /// The config server, as for a real machine.
    Server {
        /// The server.
        server: ConfigServer,
        /// Pool of the machine.
        pool: String,
        /// Proof that the machine may join, if the server requires one.
        token: Option<JoinToken>,
    },
}

/// A failed simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The directory is the root of a running machine.
    #[error("{} is the root of a running machine, not of a simulated one", .0.display())]
    Real(PathBuf),
    /// The directory cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The simulated system's state cannot be read or written.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The machine cannot be installed.
    #[error("failed to install the machine")]
    Install(#[from] ExecuteError),
}

/// Runs the machine until a shutdown is requested.
pub async fn simulate(
    machine: Machine,
    around: DaemonContext,
    shutdown: Shutdown,
) -> Result<(), SimulateError> {
    let Machine { node, root: path, boot_time, power, first } = machine;
    let root = Root::create(&path)?;
    // The entry of init, which only a kernel provides.
    if root.exists("/proc/1/stat")? {
        return Err(SimulateError::Real(path));
    }
    SimulatedSystem::write_base_files(&root)?;
    if disk::current_config(&root).map_err(ExecuteError::from)?.is_none() {
        let client = &around.clients.own;
        let Some(config) = first_config(&first, client, &node, &shutdown).await else {
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
            DaemonExit::Stopped => return Ok(()),
            DaemonExit::Rebooting => {
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

/// Fetches the config to install: that of the node's pool.
async fn first_config(
    first: &FirstConfig,
    client: &Client,
    node: &NodeName,
    shutdown: &Shutdown,
) -> Option<MachineConfig> {
    let mut shown = String::new();
    loop {
        let fetched = tokio::select! {
            () = shutdown.requested() => return None,
            fetched = fetch(first, client, node) => fetched,
        };
        match fetched {
            Ok(Some(config)) => return Some(config),
            Ok(None) => {}
            Err(error) => {
                if error != shown {
                    warn!(%node, error, "Failed to fetch the first config");
                }
                shown = error;
            }
        }
        tokio::select! {
            () = shutdown.requested() => return None,
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Fetches the config to install once; the error is a text for people.
async fn fetch(
    first: &FirstConfig,
    client: &Client,
    node: &NodeName,
) -> Result<Option<MachineConfig>, String> {
    let FirstConfig::Server { server, pool, token } = first else {
        return pool_config(client, node).await.map_err(|error| chain(&error));
    };
    let (name, join_id) = (node.to_string(), format!("simulated-{node}"));
    let token = token.clone();
    let machine = JoiningMachine { token, node: name, join_id, ..JoiningMachine::default() };
    let document = server.fetch(pool, &machine).await.map_err(|error| chain(&error))?;
    let served = served_config::read(&document).map_err(|error| chain(&error))?;
    Ok(Some(served.recorded))
}
