//! `mco rollout undo`: returns a pool to an earlier rendered config.

use std::{io::Write as _, process::ExitCode};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, api::DeleteParams};
use mco_api::MachineConfig;
use mco_core::history::{self, Cause, Undo};

use crate::{
    error::error_with_hint,
    live, print,
    print::Screen,
    remote::{self, Connection},
};

/// Return a pool to an earlier rendered config, by deleting the MachineConfigs that were added since
#[derive(Debug, clap::Args)]
#[command(after_help = DETAILS)]
pub(super) struct UndoArgs {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Revision of `mco rollout history`, or name of a rendered config; the one before if omitted
    #[arg(long, value_name = "REVISION", visible_alias = "to-revision")]
    to: Option<String>,
    /// Delete without asking
    #[arg(long, short)]
    yes: bool,
    /// Print what would be deleted
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

const DETAILS: &str = "\
A rendered config follows from MachineConfigs, so that one of them has to change. If the pool renders to
the earlier config without the MachineConfigs that were added since, they are deleted. If a MachineConfig
was edited, the cluster does not have its earlier contents: the command names it and who changed it.

Exit status: 0 the pool returns, 1 failure, 3 the way back is not known.";

/// Finds the way back, asks, and carries it out.
pub(super) fn run(args: &UndoArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.writer().await?;
        let pool = super::pool(&client, &args.pool).await?;
        let configs = super::history::configs(&client).await?;
        let images = live::manifests(&client).await?.images.unwrap_or_default();
        let found = history::undo(&pool, &configs, &images, args.to.as_deref());
        let (target, undo) = found.map_err(|error| {
            let hint = format!("`mco rollout history {}` lists the revisions", args.pool);
            error_with_hint(error.to_string(), hint)
        })?;
        match undo {
            Undo::Nothing => {
                writeln!(screen, "pool {} has {target} already", args.pool)?;
                Ok(ExitCode::SUCCESS)
            }
            Undo::Delete(names) => delete(args, &client, &target, &names, screen).await,
            Undo::Edited(causes) => {
                explain(args, &target, &causes, screen)?;
                Ok(ExitCode::from(3))
            }
        }
    })
}

async fn delete(
    args: &UndoArgs,
    client: &Client,
    target: &str,
    names: &[String],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let listed = names.join(", ");
    writeln!(screen, "pool {} renders to {target} without MachineConfig {listed}", args.pool)?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    screen.flush()?;
    if !args.yes && !print::confirm(&format!("delete {listed}?"))? {
        return Err(error_with_hint("nothing was deleted", "add --yes to delete without asking"));
    }
    let api = kube::Api::<MachineConfig>::all(client.clone());
    for name in names {
        api.delete(name, &DeleteParams::default()).await.map_err(remote::call_error)?;
        writeln!(screen, "machineconfig.{} \"{name}\" deleted", mco_api::GROUP)?;
    }
    print::note(&format!("follow the pool with `mco rollout status {}`", args.pool));
    Ok(ExitCode::SUCCESS)
}

fn explain(
    args: &UndoArgs,
    target: &str,
    causes: &[Cause],
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let pool = &args.pool;
    writeln!(screen, "pool {pool} was at {target}; to return, apply the earlier version of:")?;
    for cause in causes {
        let at = cause.at.as_ref().map(|Time(time)| format!(" at {time:.0}"));
        let verb = if cause.created { "created" } else { "changed" };
        let at = at.unwrap_or_default();
        writeln!(screen, "  MachineConfig {}, {verb} by {}{at}", cause.config, cause.by)?;
    }
    if causes.is_empty() {
        writeln!(screen, "  a MachineConfig that was deleted since")?;
    }
    print::note(&format!("`mco diff {target} {pool}` shows the difference"));
    Ok(())
}
