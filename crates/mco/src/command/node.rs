//! `mco node`: acts on one node of a cluster.

mod approve;
mod drain;
pub(crate) mod force;

use std::{io::Write as _, process::ExitCode};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mco_api::annotation::{self, Recovery};
use mco_core::rollout::{Cordon, NodeView};
use serde_json::json;

use crate::{
    error::error_with_hint,
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
    Cordon(CordonArgs),
    Drain(drain::DrainArgs),
    Uncordon(UncordonArgs),
    Force(force::ForceArgs),
    Recover(RecoverArgs),
}

/// Make a node unschedulable; it is not updated until it is uncordoned
#[derive(Debug, clap::Args)]
struct CordonArgs {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    connection: Connection,
}

/// Make a node schedulable again, and let the controller update it
#[derive(Debug, clap::Args)]
struct UncordonArgs {
    #[command(flatten)]
    node: CordonArgs,
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
  mco node cordon worker-0      keep pods and updates away
  mco node drain worker-0       evict its pods, too
  mco node uncordon worker-0
  mco node force worker-0       apply the desired config again, whatever the files are
  mco node recover worker-0

`recover`: the daemon of the node writes every file of the desired config again and reboots the machine. Files
that only the forgotten config has stay. On the machine itself, `mco host status` shows the update,
and `mco host recover` can also resume or undo it.";

/// Runs a command on one node.
pub(crate) fn run(args: &NodeArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    match &args.command {
        NodeCommand::Approve(args) => approve::run(args, screen),
        NodeCommand::Cordon(args) => cordon(args, true, screen),
        NodeCommand::Drain(args) => drain::run(args, screen),
        NodeCommand::Force(args) => force::run(args, screen),
        NodeCommand::Uncordon(args) => cordon(&args.node, false, screen),
        NodeCommand::Recover(args) => recover(args, screen),
    }
}

fn cordon(args: &CordonArgs, cordoned: bool, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let CordonArgs { node: name, connection } = args;
    remote::block_on(async {
        let client = connection.writer().await?;
        let node = remote::node(&client, name).await?;
        let nodes: Api<Node> = Api::all(client);
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let word = if cordoned { "cordoned" } else { "uncordoned" };
        if is_cordoned == cordoned {
            writeln!(screen, "node/{name} already {word}")?;
            return Ok(ExitCode::SUCCESS);
        }
        // The controller cordons for a drain, and uncordons the node itself when the update is complete.
        if !cordoned && NodeView::of(&node).cordon == Cordon::Controller {
            return Err(error_with_hint(
                format!("the controller cordoned node {name} for an update"),
                format!("`mco status {name}` shows the update; the controller uncordons the node"),
            ));
        }
        let patch = json!({"spec": {"unschedulable": cordoned}});
        let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(remote::call_error)?;
        writeln!(screen, "node/{name} {word}")?;
        Ok(ExitCode::SUCCESS)
    })
}

fn recover(args: &RecoverArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.writer().await?;
        remote::node(&client, &args.node).await?;
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
