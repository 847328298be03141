//! `mco rollout status`: follows a pool until its update is complete.

use std::{collections::BTreeSet, io::Write as _, process::ExitCode};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use mco_cluster::Shutdown;
use mco_core::progress::{NodeProgress, Phase, PoolProgress, Progress};

use crate::{
    duration::Timeout,
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Connection},
    up::{display::ClusterWatch, terminal::Terminal},
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
Exit status: 0 all nodes are done, 2 with --watch=false if some are not, 1 failure or --timeout, 130
stopped by Ctrl-C.";

/// Exit status of a command that the user stops before its end, as that of a shell.
const INTERRUPTED: u8 = 130;

/// The form of the progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// A line for each change
    #[default]
    Text,
    Json,
}

/// Prints the progress of the pool.
pub(super) fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        super::pool(&client, &args.pool).await?;
        let goal = Goal { pool: args.pool.clone(), change: None };
        let timeout = args.timeout.filter(|_| args.watch);
        follow(&client, &[goal], timeout, args.watch, args.output, screen).await
    })
}

/// A pool to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) pool: String,
    /// The change to wait for; the present config of the pool if there is none.
    pub(crate) change: Option<TargetChange>,
}

/// A change of the config of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetChange {
    /// Config of the pool before the change.
    pub(crate) from: String,
    /// Config that the pool renders to with the change.
    pub(crate) to: String,
}

impl Goal {
    /// Returns true if all nodes of the pool run its config, and the controller has rendered the change.
    fn is_reached(&self, progress: &Progress) -> bool {
        let pool = progress.pools.iter().find(|pool| pool.name == self.pool);
        pool.is_some_and(|pool| {
            self.is_rendered(&pool.target) && !pool.target.is_empty() && pool.done == pool.machines
        })
    }

    /// Returns true if the pool has the config of the change, or that of another change made since.
    fn is_rendered(&self, target: &str) -> bool {
        let change = self.change.as_ref();
        change.is_none_or(|change| target == change.to || target != change.from)
    }

    /// Returns the line about a pool.
    fn line(&self, pool: &PoolProgress) -> String {
        let PoolProgress { name, target, done, machines, .. } = pool;
        match &self.change {
            Some(change) if !self.is_rendered(target) => {
                format!("pool {name}: waiting for the controller to render {}", change.to)
            }
            Some(change) if *target != change.to => format!(
                "pool {name}: {done} of {machines} nodes run {target}; {} was planned, and another \
                 change was made since",
                change.to
            ),
            _ => format!("pool {name}: {done} of {machines} nodes run {target}"),
        }
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
            let is_new = |line: &&String| output == Output::Text && !shown.contains(&key(line));
            for line in lines.iter().filter(is_new) {
                writeln!(screen, "{}", Terminal::of_stdout().sentence(line))?;
            }
            screen.flush()?;
            shown = lines.iter().map(|line| key(line)).collect();
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
                () = shutdown.requested() => {
                    let pool = goals.first().map(|goal| goal.pool.as_str()).unwrap_or_default();
                    print::note(&format!(
                        "the update continues; `mco rollout status {pool}` follows it again"
                    ));
                    return Ok(ExitCode::from(INTERRUPTED));
                }
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

/// Returns a line without times: a start that is reported late is no change of its own.
fn key(line: &str) -> String {
    let mut parts = line.split(SINCE);
    let mut key = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find('Z').map_or(0, |end| end + 1);
        let is_time = part.get(..end).is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok());
        match part.get(end..).filter(|_| is_time) {
            Some(rest) => key.push_str(rest),
            None => key.extend([SINCE, part]),
        }
    }
    key
}

/// Words before a time.
const SINCE: &str = " since ";

/// Returns a line for each pool and for each of its nodes that is not done.
fn lines(progress: &Progress, goals: &[Goal]) -> Vec<String> {
    let mut lines = Vec::new();
    for goal in goals {
        let Some(part) = progress.about(&goal.pool) else { continue };
        lines.extend(part.pools.iter().map(|pool| goal.line(pool)));
        lines.extend(part.nodes.iter().filter(|it| it.is_updating() && !it.stuck).map(node_line));
        lines.extend(part.sentences());
    }
    lines
}

fn node_line(node: &NodeProgress) -> String {
    let NodeProgress { name, phase, .. } = node;
    let since = match &node.since {
        Some(Time(since)) => format!("{SINCE}{since:.0}"),
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
    use mco_core::progress::TimeLeft;

    use super::*;

    fn pool(target: &str, done: usize) -> PoolProgress {
        PoolProgress {
            name: "worker".to_owned(),
            target: target.to_owned(),
            paused: false,
            machines: 2,
            done,
            ready: done,
            degraded: 0,
            updating: 0,
            left: None::<TimeLeft>,
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_line_with_another_time_is_the_same() {
        let line = "node a is waiting since 2026-11-18T08:39:58Z for a slot; since then, Zoe waits";
        assert_eq!(key(line), "node a is waiting for a slot; since then, Zoe waits");
        assert_eq!(key("node a: Draining"), "node a: Draining");
    }

    #[test]
    fn a_change_is_followed_until_its_config_or_a_later_one_is_everywhere() {
        let change = TargetChange { from: "old".to_owned(), to: "new".to_owned() };
        let change = Goal { pool: "worker".to_owned(), change: Some(change) };
        let present = Goal { pool: "worker".to_owned(), change: None };
        let rows = [
            (&change, "old", 2, false, "waiting for the controller to render new"),
            (&change, "new", 1, false, "1 of 2 nodes run new"),
            (&change, "new", 2, true, "2 of 2 nodes run new"),
            (
                &change,
                "other",
                2,
                true,
                "2 of 2 nodes run other; new was planned, and another change was made since",
            ),
            (&present, "old", 2, true, "2 of 2 nodes run old"),
            (&present, "old", 0, false, "0 of 2 nodes run old"),
        ];
        for (goal, target, done, is_reached, line) in rows {
            let pool = pool(target, done);
            assert_eq!(goal.line(&pool), format!("pool worker: {line}"));
            let progress = Progress { pools: vec![pool], nodes: Vec::new() };
            assert_eq!(goal.is_reached(&progress), is_reached, "{target} {done}");
        }
        assert!(!present.is_reached(&Progress::default()), "the pool is gone");
    }
}
