//! `mco rollout status`: follows a pool until its update is complete.

use std::{collections::BTreeSet, io::Write as _, process::ExitCode, str::FromStr, time::Duration};

use kube::Client;
use mco_cluster::Shutdown;
use mco_core::progress::{NodeProgress, Phase, Progress};

use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Connection},
    up::display::ClusterWatch,
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
    #[command(flatten)]
    connection: Connection,
}

const DETAILS: &str = "\
Exit status: 0 all nodes are done, 2 with --watch=false if some are not, 1 failure or --timeout.";

/// A duration such as `90s`, `30m` or `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(Duration);

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
        follow(&client, &[goal], args.timeout.filter(|_| args.watch), args.watch, screen).await
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
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_signals()?;
    let cluster = ClusterWatch::start(client, &shutdown);
    let until_done = async {
        let mut shown = BTreeSet::new();
        loop {
            let progress = cluster.view().await.progress;
            let lines = lines(&progress, goals);
            for line in lines.iter().filter(|line| !shown.contains(*line)) {
                writeln!(screen, "{}", print::visible(&print::as_called(line)))?;
            }
            screen.flush()?;
            shown = lines.into_iter().collect();
            let done = goals.iter().all(|goal| goal.is_reached(&progress));
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
    match (&node.waits_for, node.phase) {
        (Some(cause), phase) if phase != Phase::Done => {
            format!("node {}: {phase}, waiting for {cause}", node.name)
        }
        (_, phase) => format!("node {}: {phase}", node.name),
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
