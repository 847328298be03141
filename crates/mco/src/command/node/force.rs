//! `mco node force`: has a node apply a config in full, whatever its files are.

use std::{io::Write as _, process::ExitCode};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use mco_api::annotation::{self, Recovery};
use mco_core::{
    force::{self, ForceError, ForcePlan},
    rollout::NodeView,
};
use serde_json::{Map, json};

use crate::{
    error::error_with_hint,
    print::{self, Screen},
    reference::ClusterObjects,
    remote::{self, Access, Connection},
};

/// Have a node apply its desired config again in full, whatever its files are
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ForceArgs {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: String,
    /// Rendered config to apply; if omitted, that of the pool for a degraded node, or the desired config
    /// of the node
    #[arg(long, value_name = "CONFIG")]
    to: Option<String>,
    /// Force the node without asking
    #[arg(long, short)]
    yes: bool,
    /// Print the steps, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco node force worker-0 --dry-run
  mco node force worker-0 --yes

A node that is degraded because its files differ, or because its last config was rolled back,
gets its config without a look at the present files. The daemon creates the file
/run/machine-config-daemon-force by itself; there is no need to log in. `--to` names another
rendered config, for a pool that is paused.";

/// Explains the steps, asks and forces the node.
pub(super) fn run(args: &ForceArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let access = Access::of_dry_run(args.dry_run);
        let client = args.connection.client_for(access).await?;
        let objects = ClusterObjects::fetch(&client).await?;
        let node = objects.node(&args.node)?;
        if let Some(to) = &args.to {
            objects.rendered(to)?;
        }
        let plan = force::plan(&NodeView::of(node), objects.pool_of(node), args.to.as_deref());
        let plan = plan.map_err(|error| refused(&error))?;
        write!(screen, "{plan}")?;
        screen.flush()?;
        if args.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.yes && !print::confirm(&format!("force node {}?", args.node))? {
            return Err(error_with_hint(
                "nothing was changed",
                "add --yes to force without asking",
            ));
        }
        request(&client, &plan).await?;
        writeln!(screen, "node/{} forced", args.node)?;
        print::note(&format!("follow the node with `mco status {} -w`", args.node));
        Ok(ExitCode::SUCCESS)
    })
}

/// Has the daemon of a node create the force file.
pub(crate) async fn request(client: &Client, plan: &ForcePlan) -> anyhow::Result<()> {
    let mut annotations = Map::new();
    if plan.retargets {
        annotations.insert(annotation::DESIRED_CONFIG.name().to_owned(), json!(plan.to));
    }
    annotations.insert(annotation::RECOVER.name().to_owned(), json!(Recovery::Force.as_str()));
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let nodes = Api::<Node>::all(client.clone());
    let patched = nodes.patch(&plan.node, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(remote::call_error)
}

fn refused(error: &ForceError) -> anyhow::Error {
    let hint = match error {
        ForceError::NotReported(node) => {
            format!("check that the daemon runs on the node: `mco status {node}`")
        }
        ForceError::Done { .. } => {
            "`mco rollout restart POOL` reboots the nodes of a pool, each drained first".to_owned()
        }
        ForceError::NotPaused { pool, .. } => {
            format!("run `mco rollout pause {pool}` first, and `mco rollout resume {pool}` later")
        }
    };
    error_with_hint(error.to_string(), hint)
}
