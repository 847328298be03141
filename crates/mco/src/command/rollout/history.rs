//! `mco rollout history`: the rendered configs of a pool.

use std::{io::Write as _, process::ExitCode};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, api::ListParams};
use mco_api::MachineConfig;
use mco_cluster::Api;
use mco_core::history::{self, Cause, Revision};

use crate::{
    duration::HumanDuration,
    print::Screen,
    remote::{self, Connection, table},
    up::terminal::Terminal,
};

/// Show the rendered configs of a pool: what changed, when, by whom and how long it took
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HistoryArgs {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco rollout history worker
  mco rollout history worker -o json

TOOK is the time from the creation of the config until all nodes had it and were Done. The cluster
records it for the last roll-out only; drift that was repaired later counts.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

/// Maximum number of changes in a line of the table.
const NAMED: usize = 3;

/// Prints the revisions, oldest first.
pub(super) fn run(args: &HistoryArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let pool = super::pool(&client, &args.pool).await?;
        let revisions = history::of(&pool, &configs(&client).await?);
        match args.output {
            Output::Json => writeln!(screen, "{}", serde_json::to_string_pretty(&revisions)?)?,
            Output::Table => {
                table::write(screen, &Terminal::of_stdout().table(lines(&revisions), &["TOOK"]))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Fetches all MachineConfigs.
pub(super) async fn configs(client: &Client) -> anyhow::Result<Vec<MachineConfig>> {
    let api = Api::<MachineConfig>::all(client.clone());
    Ok(api.list(&ListParams::default()).await.map_err(remote::call_error)?.items)
}

fn lines(revisions: &[Revision]) -> Vec<Vec<String>> {
    let titles = ["REVISION", "CONFIG", "CREATED", "TOOK", "CHANGES", "BY"];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    for revision in revisions {
        let mark = if revision.current { " (current)" } else { "" };
        let created = revision.created.as_ref().map(|Time(time)| format!("{time:.0}"));
        let took = revision.took.map(HumanDuration);
        lines.push(vec![
            format!("{}{mark}", revision.number),
            revision.config.clone(),
            created.unwrap_or_default(),
            took.map_or_else(|| "<unknown>".to_owned(), |took| took.to_string()),
            shortened(&revision.changes),
            shortened(&revision.causes.iter().map(cause).collect::<Vec<_>>()),
        ]);
    }
    lines
}

fn cause(cause: &Cause) -> String {
    let verb = if cause.created { "created" } else { "changed" };
    format!("{} {verb} {}", cause.by, cause.config)
}

fn shortened(texts: &[String]) -> String {
    let shown: Vec<&str> = texts.iter().take(NAMED).map(String::as_str).collect();
    match texts.len().saturating_sub(NAMED) {
        0 if shown.is_empty() => "<none>".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
