//! `mco surroundings`: what surrounds our processes in a cluster, for tests on a bare API server.

use std::{path::PathBuf, process::ExitCode};

use mco_cluster::{
    Shutdown, client,
    telemetry::{self, Format},
};

use crate::{
    print::Screen,
    up::surroundings::{self, Settings},
};

/// Play the kubelets and the workload of machines whose daemons run elsewhere
#[derive(Debug, clap::Args)]
pub(crate) struct SurroundingsArgs {
    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Folder with a root directory for each node
    #[arg(long, value_name = "DIR")]
    nodes_dir: PathBuf,
    /// Simulated workers
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=500))]
    nodes: u16,
    /// Simulated masters
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=50))]
    masters: u16,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &SurroundingsArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let level = if verbose { tracing::Level::INFO } else { tracing::Level::WARN };
    telemetry::start(Format::Text, level)?;
    let settings =
        Settings { masters: args.masters, workers: args.nodes, nodes: args.nodes_dir.clone() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        let client = client::connect(Some(&args.kubeconfig)).await?;
        surroundings::run(&settings, &client, screen, &shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}
