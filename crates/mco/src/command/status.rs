//! `mco status`: how far the cluster is, on one screen.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_cluster::Shutdown;

use crate::{
    print::Screen,
    remote::{self, Connection},
    up::{
        live::{self, Show, Sight},
        view::View,
    },
};

/// Show pools, nodes and what they are doing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Go on showing changes until stopped
    #[arg(long, short)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco status        once
  mco status -w     and every change from then on

Exit status: 0 every pool is updated, 2 some pool is not, 1 the cluster cannot be asked.";

/// Prints what there is to see.
pub(crate) fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        // Asked first, so that a cluster that does not answer is an error and not an empty screen.
        let view = once(&client).await?;
        if !args.watch {
            live::write(&view, screen)?;
            return Ok(if view.is_updated() { ExitCode::SUCCESS } else { ExitCode::from(2) });
        }
        let shutdown = Shutdown::on_signals()?;
        let how = if io::stdout().is_terminal() { Show::InPlace } else { Show::Lines };
        Sight::start(&client, &shutdown).show(how, screen, &shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn once(client: &kube::Client) -> anyhow::Result<View> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(remote::explain)?;
    let pools = Api::<MachineConfigPool>::all(client.clone()).list(&all).await;
    let pools = pools.map_err(remote::explain)?;
    let operators = Api::<ClusterOperator>::all(client.clone());
    let operator = operators.get_opt(label::CLUSTER_OPERATOR).await.map_err(remote::explain)?;
    Ok(View::of(operator.as_ref(), &pools.items, &nodes.items))
}
