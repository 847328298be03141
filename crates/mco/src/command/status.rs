//! `mco status`: prints the status of pools and nodes.

mod first_boot;

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, ObjectMeta};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_cluster::{Api, Shutdown, permission};
use mco_core::takeover::{self, BASE_CONFIGS, Facts, Runner};

use crate::{
    print::Screen,
    process,
    remote::{self, Connection},
    up::{
        display::{self, ClusterWatch, DisplayMode},
        view::StatusView,
    },
};

/// Show the status of pools and nodes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Print changes until stopped
    #[arg(long, short)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco status        print the status once
  mco status -w     print the status and every change

Exit status: 0 all pools are updated, 2 some pool is not updated, 1 the cluster is unreachable.";

/// Prints the status once, or follows it with `--watch`.
pub(crate) fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        // Fetched first, so that an unreachable cluster is an error and not an empty screen.
        let view = fetch(&client).await?;
        if !args.watch {
            display::write(&view, screen)?;
            return Ok(if view.is_updated() { ExitCode::SUCCESS } else { ExitCode::from(2) });
        }
        let shutdown = Shutdown::on_signals()?;
        let mode =
            if io::stdout().is_terminal() { DisplayMode::Redraw } else { DisplayMode::Lines };
        ClusterWatch::start(&client, &shutdown).show(mode, screen, &shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn fetch(client: &kube::Client) -> anyhow::Result<StatusView> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(remote::call_error)?;
    let pools = Api::<MachineConfigPool>::all(client.clone()).list(&all).await;
    let pools = pools.map_err(remote::call_error)?;
    let operators = Api::<ClusterOperator>::all(client.clone());
    let operator = operators.get_opt(label::CLUSTER_OPERATOR).await.map_err(remote::call_error)?;
    let mut view = StatusView::of(operator.as_ref(), &pools.items, &nodes.items);
    view.explanations.extend(first_boot::fetch(client).await?);
    view.explanations.extend(other_operator(client).await?);
    Ok(view)
}

/// Returns a line about the operator that runs the cluster, if it is another one.
async fn other_operator(client: &kube::Client) -> anyhow::Result<Option<String>> {
    let own = process::build();
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, &own);
    let observed = permission::observe(client, &BASE_CONFIGS, suffices).await?;
    let facts = Facts {
        controller_config: observed.controller_config.as_ref(),
        base_configs: &observed.base_configs,
    };
    Ok(match takeover::runner(facts, &own) {
        Runner::Ours => None,
        Runner::Another(evidence) => Some(format!(
            "another operator runs this cluster: {evidence}; processes of mco change nothing without \
             --take-over, see `mco takeover --check`"
        )),
    })
}
