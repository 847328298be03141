//! `mco rollout undo`: returns a pool to an earlier rendered config.

use std::{io::Write as _, process::ExitCode, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_cluster::{Api, watch};
use mco_core::history::{self, Cause, Undo};
use tokio::time::timeout;

use crate::{
    command::apply::MANAGER,
    error::error_with_hint,
    live, print,
    print::Screen,
    remote::{self, Access, Connection},
};

/// Time that the controller has to render the pool.
const RENDER_LIMIT: Duration = Duration::from_secs(5);

/// Return a pool to an earlier rendered config, by changing the MachineConfigs that led away from it
#[derive(Debug, clap::Args)]
#[command(after_help = DETAILS)]
pub(super) struct UndoArgs {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Revision of `mco rollout history`, or name of a rendered config; the one before if omitted
    #[arg(long, value_name = "REVISION", visible_alias = "to-revision")]
    to: Option<String>,
    /// Change MachineConfigs without asking
    #[arg(long, short)]
    yes: bool,
    /// Print what would be changed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

const DETAILS: &str = "\
A rendered config follows from MachineConfigs, so that one of them has to change. If the pool renders to
the earlier config without the MachineConfigs that were added since, they are deleted. If one was edited
and the rendered configs determine its former contents, these are restored. If one was deleted, another
one pins the entries that it set. Each way is rendered first: it leads to the earlier config by name.
Otherwise the command names the MachineConfigs that were edited and who changed them.

Examples:
  mco rollout undo worker --dry-run
  mco rollout undo worker --yes

Exit status: 0 the pool returns, 1 failure, 3 the way back is not known.";

/// Finds the way back, asks, and carries it out.
pub(super) fn run(args: &UndoArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let access = Access::of_dry_run(args.dry_run);
        let client = args.connection.client_for(access).await?;
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
            Undo::Restore(former) => restore(args, &client, &target, &former, screen).await,
            Undo::Pin(config) => pin(args, &client, &target, &config, screen).await,
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
    ask(args, &format!("delete {listed}?"), "nothing was deleted", screen)?;
    let api = kube::Api::<MachineConfig>::all(client.clone());
    for name in names {
        api.delete(name, &DeleteParams::default()).await.map_err(remote::call_error)?;
        writeln!(screen, "machineconfig.{} \"{name}\" deleted", mco_api::GROUP)?;
    }
    rendered(client, &args.pool, target).await;
    print::note(&format!("follow the pool with `mco rollout status {}`", args.pool));
    Ok(ExitCode::SUCCESS)
}

/// Replaces the contents of a MachineConfig that was edited with those before.
async fn restore(
    args: &UndoArgs,
    client: &Client,
    target: &str,
    former: &MachineConfig,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let name = former.metadata.name.clone().unwrap_or_default();
    let pool = &args.pool;
    writeln!(
        screen,
        "pool {pool} renders to {target} with the former contents of MachineConfig {name}"
    )?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    ask(args, &format!("restore {name}?"), "nothing was changed", screen)?;
    let mut former = former.clone();
    // The version of the object is kept: a later edit is not overwritten.
    former.metadata.managed_fields = None;
    let api = kube::Api::<MachineConfig>::all(client.clone());
    let replaced = api.replace(&name, &PostParams::default(), &former).await;
    replaced.map_err(remote::call_error)?;
    writeln!(screen, "machineconfig.{} \"{name}\" restored", mco_api::GROUP)?;
    rendered(client, pool, target).await;
    print::note(&format!("follow the pool with `mco rollout status {pool}`"));
    Ok(ExitCode::SUCCESS)
}

/// Adds a MachineConfig that overrides what was changed.
async fn pin(
    args: &UndoArgs,
    client: &Client,
    target: &str,
    config: &MachineConfig,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let name = config.metadata.name.clone().unwrap_or_default();
    let pool = &args.pool;
    writeln!(screen, "pool {pool} renders to {target} with an additional MachineConfig {name}")?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    ask(args, &format!("pin pool {pool} with {name}?"), "nothing was changed", screen)?;
    let api = kube::Api::<MachineConfig>::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    let pinned = api.patch(&name, &params, &Patch::Apply(config)).await;
    pinned.map_err(remote::call_error)?;
    writeln!(screen, "machineconfig.{} \"{name}\" pins the pool", mco_api::GROUP)?;
    rendered(client, pool, target).await;
    print::note(&format!("`mco delete mc {name}` removes the pin"));
    Ok(ExitCode::SUCCESS)
}

/// Waits until the controller has given the pool the config, so that `mco rollout status` follows this
/// change and not the state before it. A controller that does not is named, and not waited for.
async fn rendered(client: &Client, pool: &str, target: &str) {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let is_rendered = async {
        let mut states = watch::object(&pools, pool, watch::Config::default());
        while let Some(state) = states.next().await {
            let found = state.ok().and_then(|state| state.object);
            if found.is_some_and(|pool| pool.spec.configuration.rendered.name == target) {
                return;
            }
        }
    };
    if timeout(RENDER_LIMIT, is_rendered).await.is_err() {
        let seconds = RENDER_LIMIT.as_secs();
        print::note(&format!(
            "the controller has not rendered {target} within {seconds} s: see `mco doctor`"
        ));
    }
}

fn ask(
    args: &UndoArgs,
    question: &str,
    refused: &str,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    screen.flush()?;
    if args.yes || print::confirm(question)? {
        return Ok(());
    }
    Err(error_with_hint(refused, "answer y, or add --yes"))
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
