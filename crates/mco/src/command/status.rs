//! `mco status`: prints the status of pools and nodes.

mod first_boot;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use mco_api::{ClusterOperator, MachineConfigNode, MachineConfigPool, label};
use mco_cluster::{Api, Shutdown};
use mco_core::lint::suggest;
use serde_json::json;

use crate::{
    error::error_with_hint,
    print::Screen,
    remote::{self, Access, Connection, runner},
    up::{
        display::{self, ClusterWatch, DisplayMode, Part},
        terminal::Terminal,
        view::{StatusView, Width},
    },
};

/// Show the status of pools and nodes: phase, start, what each node waits for and what happens next
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Pool or node to show; the whole cluster if omitted
    #[arg(value_name = "POOL|NODE")]
    name: Option<String>,
    /// Print changes until stopped
    #[arg(long, short)]
    watch: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco status                 the status of all pools and nodes, once
  mco status -w              the status and every change
  mco status worker          one pool and its nodes
  mco status worker-0 -o wide
  mco status -o json

Exit status: 0 all pools are updated, 2 some pool is not updated, 1 the cluster is unreachable.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Tables, and a sentence for everything that waits or is degraded
    #[default]
    Table,
    /// Also the start of each phase, what the node waits for and what happens next
    Wide,
    Json,
    Yaml,
}

/// Prints the status once, or follows it with `--watch`.
pub(crate) fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let width = if args.output == Output::Wide { Width::Wide } else { Width::Narrow };
    if args.watch && matches!(args.output, Output::Json | Output::Yaml) {
        let hint = "omit --watch, or use `mco get mcp -w -o json`";
        return Err(error_with_hint("--watch prints tables only", hint));
    }
    remote::block_on(async {
        let client = args.connection.installed(Access::Read).await?;
        // Fetched first, so that an unreachable cluster is an error and not an empty screen.
        let view = fetch(&client, args.name.as_deref()).await?;
        let code = if view.is_updated() { ExitCode::SUCCESS } else { ExitCode::from(2) };
        if !args.watch {
            print(&StatusView { width, ..view }, args.output, screen)?;
            return Ok(code);
        }
        let shutdown = Shutdown::on_signals()?;
        let mode =
            if io::stdout().is_terminal() { DisplayMode::Redraw } else { DisplayMode::Lines };
        let part = Part { name: args.name.clone(), width };
        ClusterWatch::start(&client, &shutdown).show_part(&part, mode, screen, &shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn print(view: &StatusView, output: Output, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let document = json!({
        "pools": view.progress.pools, "nodes": view.progress.nodes, "messages": view.explanations,
    });
    match output {
        Output::Table | Output::Wide => display::write(view, Terminal::of_stdout(), screen)?,
        Output::Json => writeln!(screen, "{}", serde_json::to_string_pretty(&document)?)?,
        Output::Yaml => screen.write_all(serde_saphyr::to_string(&document)?.as_bytes())?,
    }
    Ok(())
}

async fn fetch(client: &kube::Client, name: Option<&str>) -> anyhow::Result<StatusView> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(remote::call_error)?;
    let pools = Api::<MachineConfigPool>::all(client.clone()).list(&all).await;
    let pools = pools.map_err(remote::call_error)?;
    let operators = Api::<ClusterOperator>::all(client.clone());
    let operator = operators.get_opt(label::CLUSTER_OPERATOR).await.map_err(remote::call_error)?;
    // Only the start of each phase is missing if the user may not read them.
    let reports = Api::<MachineConfigNode>::all(client.clone()).list(&all).await;
    let reports = reports.map(|list| list.items).unwrap_or_default();
    let mut view = StatusView::of(operator.as_ref(), &pools.items, &nodes.items, &reports);
    if let Some(name) = name {
        return view.about(name).ok_or_else(|| unknown(name, &view));
    }
    view.explanations.extend(first_boot::fetch(client).await?);
    view.explanations.extend(other_operator(client).await?);
    Ok(view)
}

/// Returns the error for a name that is neither a pool nor a node.
fn unknown(name: &str, view: &StatusView) -> anyhow::Error {
    let pools = view.pools.iter().map(|pool| pool.name.as_str());
    let names = pools.clone().chain(view.nodes.iter().map(|node| node.name.as_str()));
    let hint = match suggest::closest(name, names) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the pools are: {}", pools.collect::<Vec<_>>().join(", ")),
    };
    error_with_hint(format!("no pool or node is named {name:?}"), hint)
}

/// Returns a line about the operator that runs the cluster, if it is another one.
async fn other_operator(client: &kube::Client) -> anyhow::Result<Option<String>> {
    let found = runner::other(client).await?;
    Ok(found.map(|evidence| {
        format!(
            "another operator runs this cluster: {evidence}; processes of mco change nothing without \
             --take-over, see `mco takeover --check`"
        )
    }))
}
