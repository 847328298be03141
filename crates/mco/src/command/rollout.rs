//! `mco rollout`: pauses, resumes, follows, explains and reverts the updates of a pool.

pub(crate) mod follow;
mod history;
mod undo;

use std::{io::Write as _, process::ExitCode};

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use mco_api::{MachineConfig, MachineConfigPool, label};
use mco_cluster::{Api, Clock};
use mco_core::lint::suggest;
use serde_json::json;

use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Connection},
};

/// Pause, resume, follow, explain and revert the updates of a pool
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RolloutCommand {
    Pause(PoolArgs),
    Resume(ResumeArgs),
    Status(follow::StatusArgs),
    History(history::HistoryArgs),
    Undo(undo::UndoArgs),
    Restart(RestartArgs),
}

/// Start no further node of a pool; nodes that are updating finish
#[derive(Debug, clap::Args)]
struct PoolArgs {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pool: String,
    #[command(flatten)]
    connection: Connection,
}

/// Start the nodes of a paused pool again
#[derive(Debug, clap::Args)]
struct ResumeArgs {
    #[command(flatten)]
    pool: PoolArgs,
}

/// Reboot the nodes of a pool one after the other, each drained first
#[derive(Debug, clap::Args)]
struct RestartArgs {
    #[command(flatten)]
    pool: PoolArgs,
}

const EXAMPLES: &str = "\
Examples:
  mco rollout pause worker          start no further node
  mco rollout resume worker
  mco rollout status worker         follow the pool until all of its nodes are done
  mco rollout history worker        the rendered configs, what changed, when and by whom
  mco rollout undo worker           return to the rendered config before
  mco rollout undo worker --to 3    return to revision 3 of the history
  mco rollout restart worker        drain and reboot each node in turn";

/// Path of the file whose change restarts the nodes of a pool.
const RESTART_FILE: &str = "/etc/mco-restarted-at";

/// Runs a command on one pool.
pub(crate) fn run(args: &RolloutArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    match &args.command {
        RolloutCommand::Pause(args) => set_paused(args, true, screen),
        RolloutCommand::Resume(args) => set_paused(&args.pool, false, screen),
        RolloutCommand::Status(args) => follow::run(args, screen),
        RolloutCommand::History(args) => history::run(args, screen),
        RolloutCommand::Undo(args) => undo::run(args, screen),
        RolloutCommand::Restart(args) => restart(&args.pool, screen),
    }
}

/// Fetches a pool.
pub(crate) async fn pool(client: &Client, name: &str) -> anyhow::Result<MachineConfigPool> {
    let api = Api::<MachineConfigPool>::all(client.clone());
    if let Some(pool) = api.get_opt(name).await.map_err(remote::call_error)? {
        return Ok(pool);
    }
    let pools = api.list(&kube::api::ListParams::default()).await.map_err(remote::call_error)?;
    let names: Vec<String> = pools.items.into_iter().filter_map(|it| it.metadata.name).collect();
    let hint = match suggest::closest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the pools are: {}", names.join(", ")),
    };
    Err(error_with_hint(format!("unknown pool {name:?}"), hint))
}

fn set_paused(args: &PoolArgs, paused: bool, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let PoolArgs { pool: name, connection } = args;
    remote::block_on(async {
        let client = connection.writer().await?;
        let word = if paused { "paused" } else { "resumed" };
        let label = format!("machineconfigpool.{}/{name}", mco_api::GROUP);
        if pool(&client, name).await?.spec.paused == paused {
            writeln!(screen, "{label} already {word}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let pools = kube::Api::<MachineConfigPool>::all(client);
        pools.patch(name, &PatchParams::default(), &patch).await.map_err(remote::call_error)?;
        writeln!(screen, "{label} {word}")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Changes a file of the pool's config that has no effect of its own. The pool then rolls out as after
/// any other change: a few nodes at a time, each drained and rebooted.
fn restart(args: &PoolArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let PoolArgs { pool: name, connection } = args;
    remote::block_on(async {
        let client = connection.writer().await?;
        let is_paused = pool(&client, name).await?.spec.paused;
        let config = format!("99-{name}-restarted-at");
        let now = Clock::System.now();
        let object = json!({
            "apiVersion": format!("{}/v1", mco_api::GROUP), "kind": "MachineConfig",
            "metadata": {"name": config, "labels": {(label::ROLE): name}},
            "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [{
                "path": RESTART_FILE, "mode": 0o644, "overwrite": true,
                "contents": {"source": format!("data:,{now:.0}%0A")}}]}}},
        });
        let configs = kube::Api::<MachineConfig>::all(client);
        let params = PatchParams::apply("mco").force();
        configs.patch(&config, &params, &Patch::Apply(object)).await.map_err(remote::call_error)?;
        writeln!(screen, "machineconfig.{}/{config} restarts pool {name}", mco_api::GROUP)?;
        print::note(&format!(
            "each node gets a new {RESTART_FILE}, for which it is drained and rebooted unless a node \
             disruption policy says otherwise; follow it with `mco rollout status {name}`"
        ));
        if is_paused {
            print::note(&format!(
                "pool {name} is paused, and restarts with `mco rollout resume {name}`"
            ));
        }
        Ok(ExitCode::SUCCESS)
    })
}
