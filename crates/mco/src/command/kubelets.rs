//! `mco surroundings`: simulated kubelets and workload, for tests that run every process alone.

use std::{path::PathBuf, process::ExitCode};

use mco_cluster::{
    Shutdown, client,
    telemetry::{self, Format},
};

use crate::{
    print::Screen,
    up::kubelets::{self, Settings},
};

/// Simulate the kubelets and the workload of machines whose daemons run elsewhere
#[derive(Debug, clap::Args)]
pub(crate) struct KubeletsArgs {
    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Directory with a root directory for each node
    #[arg(long, value_name = "DIR")]
    nodes_dir: PathBuf,
    /// Number of simulated workers
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=500))]
    nodes: u16,
    /// Number of simulated masters
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=50))]
    masters: u16,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &KubeletsArgs,
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
        kubelets::run(&settings, &client, screen, &shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}
