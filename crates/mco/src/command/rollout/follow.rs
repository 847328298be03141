//! `mco rollout status`: follows a pool until its update is complete.

use std::{collections::BTreeSet, io::Write as _, process::ExitCode, str::FromStr, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use mco_cluster::Shutdown;
use mco_core::progress::{NodeProgress, Phase, Progress};

use crate::{
    error::error_with_hint,
    print::Screen,
    remote::{self, Connection},
    up::display::{self, ClusterWatch},
};

/// Follow a pool until each of its nodes runs its config
#[derive(Debug, clap::Args)]
#[command(after_help = DETAILS)]
pub(super) struct StatusArgs {
    /// Name of the pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Print the status once: --watch=false
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    watch: bool,
    /// Time after which the command fails, such as 30m; no limit if omitted
    #[arg(long, value_name = "TIME")]
    timeout: Option<Timeout>,
    /// Output format; JSON is printed once, at the end
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const DETAILS: &str = "\
Exit status: 0 all nodes are done, 2 with --watch=false if some are not, 1 failure or --timeout.";

/// The form of the progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// A line for each change
    #[default]
    Text,
    Json,
}

/// A duration such as `90s`, `30m` or `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Duration);

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let factor = match text.strip_prefix(digits) {
            Some("s" | "") => Some(1),
            Some("m") => Some(60),
            Some("h") => Some(3600),
            Some(_) | None => None,
        };
        let number: Option<u64> = digits.parse().ok();
        let seconds = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
        let seconds = seconds.ok_or("a number with the unit s, m or h is expected, such as 30m")?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

/// Prints the progress of the pool.
pub(super) fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        super::pool(&client, &args.pool).await?;
        let goal = Goal { pool: args.pool.clone(), config: None };
        let timeout = args.timeout.filter(|_| args.watch);
        follow(&client, &[goal], timeout, args.watch, args.output, screen).await
    })
}

/// A pool to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) pool: String,
    /// Config that the pool is to have; the present one if omitted.
    pub(crate) config: Option<String>,
}

impl Goal {
    /// Returns true if all nodes of the pool run the config.
    fn is_reached(&self, progress: &Progress) -> bool {
        let pool = progress.pools.iter().find(|pool| pool.name == self.pool);
        pool.is_some_and(|pool| {
            let is_target = self.config.as_ref().is_none_or(|config| *config == pool.target);
            is_target && !pool.target.is_empty() && pool.done == pool.machines
        })
    }
}

/// Prints every change of the pools until each has reached its goal. With `watch` false, prints the
/// progress once.
pub(crate) async fn follow(
    client: &Client,
    goals: &[Goal],
    timeout: Option<Timeout>,
    watch: bool,
    output: Output,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_signals()?;
    let cluster = ClusterWatch::start(client, &shutdown);
    let until_done = async {
        let mut shown = BTreeSet::new();
        loop {
            let progress = cluster.view().await.progress;
            let mut lines = lines(&progress, goals);
            lines.extend(cluster.outage());
            let is_new = |line: &&String| output == Output::Text && !shown.contains(*line);
            for line in lines.iter().filter(is_new) {
                writeln!(screen, "{}", display::terminal().sentence(line))?;
            }
            screen.flush()?;
            shown = lines.into_iter().collect();
            let done = goals.iter().all(|goal| goal.is_reached(&progress));
            if (done || !watch) && output == Output::Json {
                let part: Vec<Progress> =
                    goals.iter().filter_map(|goal| progress.about(&goal.pool)).collect();
                let text = match part.as_slice() {
                    [only] => serde_json::to_string_pretty(only)?,
                    all => serde_json::to_string_pretty(all)?,
                };
                writeln!(screen, "{text}")?;
            }
            if done || !watch {
                let code = if done { ExitCode::SUCCESS } else { ExitCode::from(2) };
                return Ok::<_, anyhow::Error>(code);
            }
            tokio::select! {
                () = shutdown.requested() => return Ok(ExitCode::from(2)),
                () = cluster.changed() => {}
            }
        }
    };
    let result = match timeout {
        None => until_done.await,
        Some(Timeout(limit)) => match tokio::time::timeout(limit, until_done).await {
            Ok(result) => result,
            Err(_) => Err(error_with_hint(
                format!("the update is not complete after {} s", limit.as_secs()),
                "`mco status` shows what each node waits for",
            )),
        },
    };
    shutdown.request();
    result
}

/// Returns a line for each pool and for each of its nodes that is not done.
fn lines(progress: &Progress, goals: &[Goal]) -> Vec<String> {
    let mut lines = Vec::new();
    for goal in goals {
        let Some(part) = progress.about(&goal.pool) else { continue };
        for pool in &part.pools {
            let wanted = goal.config.as_ref().filter(|config| **config != pool.target);
            lines.push(match wanted {
                Some(config) => {
                    format!("pool {}: waiting for the controller to render {config}", pool.name)
                }
                None => format!(
                    "pool {}: {} of {} nodes run {}",
                    pool.name, pool.done, pool.machines, pool.target
                ),
            });
        }
        lines.extend(part.nodes.iter().filter(|it| it.is_updating() && !it.stuck).map(node_line));
        lines.extend(part.sentences());
    }
    lines
}

fn node_line(node: &NodeProgress) -> String {
    let NodeProgress { name, phase, .. } = node;
    let since = match &node.since {
        Some(Time(since)) => format!(" since {since:.0}"),
        None => String::new(),
    };
    match &node.waits_for {
        Some(cause) if *phase != Phase::Done => {
            format!("node {name}: {phase}{since}, waiting for {cause}")
        }
        _ => format!("node {name}: {phase}{since}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit() {
        let parse = |text: &str| text.parse::<Timeout>().ok().map(|it| it.0.as_secs());
        assert_eq!(parse("90"), Some(90));
        assert_eq!(parse("90s"), Some(90));
        assert_eq!(parse("30m"), Some(1800));
        assert_eq!(parse("2h"), Some(7200));
        for bad in ["", "m", "1d", "-1s", "1 m"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
