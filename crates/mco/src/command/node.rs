//! `mco node`: acts on one node of a cluster.

mod approve;

use std::{io::Write as _, process::ExitCode};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mco_api::annotation::{self, Recovery};
use serde_json::json;

use crate::{
    print::Screen,
    remote::{self, Connection},
};

/// Act on one node of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, clap::Subcommand)]
enum NodeCommand {
    Approve(approve::ApproveArgs),
    Recover(RecoverArgs),
}

/// Have a node forget an update that it can neither complete nor roll back, and apply its desired
/// config in full
#[derive(Debug, clap::Args)]
struct RecoverArgs {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco node approve              the certificate requests of new nodes that wait
  mco node approve worker-3     check and approve those of one node
  mco node recover worker-0

`recover`: the daemon of the node writes every file of the desired config again and reboots the machine. Files
that only the forgotten config has stay. On the machine itself, `mco host status` shows the update,
and `mco host recover` can also resume or undo it.";

/// Runs a command on one node.
pub(crate) fn run(args: &NodeArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    match &args.command {
        NodeCommand::Approve(args) => approve::run(args, screen),
        NodeCommand::Recover(args) => recover(args, screen),
    }
}

fn recover(args: &RecoverArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let nodes: Api<Node> = Api::all(client);
        let value = Recovery::Abandon.as_str();
        let patch = json!({"metadata": {"annotations": {(annotation::RECOVER.name()): value}}});
        nodes
            .patch(&args.node, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(remote::call_error)?;
        writeln!(screen, "node \"{}\" forgets its unfinished update", args.node)?;
        Ok(ExitCode::SUCCESS)
    })
}
