//! `mco simulate`: rolls out a change over a simulated fleet in virtual time.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use mco_sim::{Faults, PoolOutcome, Report, clock};
use serde_json::json;

use crate::{
    error::error_with_hint,
    load::Sources,
    print::{self, BOLD, GREEN, RED, Screen},
    simulate::{self, SimulationOptions},
};

/// Roll out a change over a simulated fleet in virtual time, with the controller's own decisions
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    sources: Sources,
    /// File or directory with the changed manifests; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    change: Vec<PathBuf>,
    /// Number of generated workers that replace the nodes and pods of the input
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: Option<u32>,
    /// Faults to inject with their probability: NAME[=PERCENT%],…, or all
    #[arg(long, value_name = "SPEC", default_value = "none")]
    faults: String,
    /// Seed of the random numbers; the same seed gives the same run
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  kubectl get mc,mcp,nodes,pods,pdb -A -o yaml > cluster.yaml
  mco simulate -f cluster.yaml --change 99-worker-custom.yaml
  mco simulate -f cluster.yaml --change new/ --faults lost-machine=2%,daemon-crash=10% --seed 7
  mco simulate -f manifests/ --change new.yaml --nodes 10000 -o json

Faults (probability 5% unless given), which stop after 24 hours:
  controller-restart, leader-change, stale-cache, conflict, daemon-crash, slow-apply,
  failed-apply, lost-machine, late-ready, old-boot, blip

The order of the nodes, the steps of an update and the evictions of a drain are decided by the code of
the controller and the daemon. Durations are assumed: 20 s to apply, 4 min to reboot, 30 s for a pod to
terminate.

Exit status: 0 all nodes are updated, 1 some are not.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// Maximum number of printed lines of the timeline.
const MAX_TIMELINE: usize = 200;

/// Maximum number of printed nodes that are not updated.
const MAX_REMAINING: usize = 20;

/// Runs the simulation and prints its report.
pub(crate) fn run(args: &SimulateArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let faults: Faults = args.faults.parse().map_err(|error: mco_sim::BadFaults| {
        error_with_hint(
            format!("--faults: {error}"),
            "run `mco simulate --help` for the list of faults",
        )
    })?;
    let change = Sources { paths: args.change.clone(), recursive: args.sources.recursive };
    let options = SimulationOptions {
        seed: args.seed,
        nodes: args.nodes.and_then(|nodes| usize::try_from(nodes).ok()),
        faults: faults.clone(),
    };
    let setup = simulate::setup(args.sources.load()?, &change.load()?, options)?;
    if setup.script.is_empty() {
        print::note("the change does not affect the config of any pool");
    }
    let report = mco_sim::run(setup);
    match args.output {
        Output::Text => text(&report, screen)?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *screen, &document(args, &faults, &report))?;
            writeln!(screen)?;
        }
    }
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let shown = || report.timeline.iter().take(MAX_TIMELINE);
    let width = shown().map(|entry| entry.object.len()).max().unwrap_or_default();
    for entry in shown() {
        let what = print::visible(&entry.what);
        writeln!(screen, "{}  {:width$}  {what}", clock(entry.at), entry.object)?;
    }
    if report.timeline.len() > MAX_TIMELINE {
        let more = report.timeline.len() - MAX_TIMELINE;
        writeln!(screen, "… and {more} more; -o json prints all")?;
    }
    for pool in report.pools.iter().filter(|pool| pool.nodes > 0) {
        outcome(pool, screen)?;
    }
    if let Some(violation) = &report.violation {
        screen.paint(RED, format_args!("broken rule: {} ({})", violation.rule, violation.who))?;
        writeln!(screen)?;
    }
    writeln!(screen, "{} reboots, {} in total", report.reboots, clock(report.ended))?;
    Ok(())
}

fn outcome(pool: &PoolOutcome, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    screen.paint(BOLD, format_args!("pool {}", pool.name))?;
    write!(screen, ": ")?;
    let style = if pool.left.is_empty() { GREEN } else { RED };
    screen.paint(style, format_args!("{} of {} nodes", pool.updated, pool.nodes))?;
    writeln!(
        screen,
        " run {}; at most {} unavailable at a time, maxUnavailable {}",
        pool.target, pool.max_seen_unavailable, pool.max_unavailable
    )?;
    for (node, reason) in pool.left.iter().take(MAX_REMAINING) {
        writeln!(screen, "  {node}: {}", print::visible(reason))?;
    }
    if pool.left.len() > MAX_REMAINING {
        writeln!(screen, "  … and {} more", pool.left.len() - MAX_REMAINING)?;
    }
    Ok(())
}

fn document(args: &SimulateArgs, faults: &Faults, report: &Report) -> serde_json::Value {
    let pool = |pool: &PoolOutcome| {
        let left = pool.left.iter().map(|(node, why)| json!({ "node": node, "why": why }));
        json!({
            "name": pool.name,
            "config": pool.target,
            "nodes": pool.nodes,
            "updated": pool.updated,
            "mostOut": pool.max_seen_unavailable,
            "maxUnavailable": pool.max_unavailable,
            "left": left.collect::<Vec<_>>(),
        })
    };
    let entry = |entry: &mco_sim::Entry| json!({ "milliseconds": entry.at, "who": entry.object, "what": entry.what });
    json!({
        "seed": args.seed,
        "faults": faults.to_string(),
        "complete": report.is_complete(),
        "brokenRule": report.violation.as_ref().map(|violation| violation.rule.to_string()),
        "milliseconds": report.ended,
        "reboots": report.reboots,
        "pools": report.pools.iter().map(pool).collect::<Vec<_>>(),
        "timeline": report.timeline.iter().map(entry).collect::<Vec<_>>(),
    })
}
