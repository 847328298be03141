//! `mco plan`: what a change does to every node, before it does it.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use crate::{
    plan::{
        self, Given, PoolForecast, Times,
        input::{Input, Places},
        show::{self, Detail},
    },
    print::Screen,
};

/// Foresee what a change does: on disk, to each node, in which order, and what stands in its way
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// The present manifests first, then those that change them, as `apply` would; - for standard
    /// input
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Read directories below the given ones too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A MachineConfig that the change takes away; may be repeated
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Pool to look at; all pools when left out
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// File with the `MachineConfiguration`, which has the node disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// File with Nodes, to foresee order and waves
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// File with Pods, to foresee drains
    #[arg(long, value_name = "FILE")]
    pods: Option<PathBuf>,
    /// File with `PodDisruptionBudgets`
    #[arg(long, value_name = "FILE")]
    pdbs: Option<PathBuf>,
    /// How long a step takes, such as reboot=10m; may be repeated. Assumed: drain=2m, files=5s,
    /// image=3m, service=5s, reboot=5m
    #[arg(long, value_name = "STEP=TIME")]
    time: Vec<Given>,
    /// List every step
    #[arg(long)]
    steps: bool,
    /// Exit with 3 when the change leads to this; may be repeated
    #[arg(long, value_enum, value_name = "WHAT")]
    fail_on: Vec<Limit>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  mco plan -f manifests/ -f 99-worker-new.yaml
  mco plan -f manifests/ --without 99-worker-custom
  kubectl get mc,mcp,controllerconfig,nodes,pods,pdb,machineconfiguration -A -o yaml > cluster.yaml
  mco plan -f cluster.yaml -f change.yaml
  mco plan -f cluster.yaml -f change.yaml --fail-on reboot --fail-on blocked -o json

Nodes, Pods, PodDisruptionBudgets and the MachineConfiguration count wherever they stand. Nothing is
sent anywhere, and no contents are printed.

Exit status: 0 the change can be made, 1 the input cannot be used, 2 the command line is wrong, 3 the
change leads to something named with --fail-on, 4 a running node cannot take it.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// What a change may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Limit {
    /// Any pool gets another config
    Change,
    /// A service is reloaded or restarted
    Service,
    /// Nodes are drained
    Drain,
    /// Nodes reboot
    Reboot,
    /// A drain can never finish
    Blocked,
}

impl Limit {
    fn is_hit(self, forecast: &PoolForecast) -> bool {
        let effect = &forecast.effect;
        let any = |what: fn(&plan::NodeForecast) -> bool| forecast.nodes.iter().any(what);
        let is_service = |action: &String| action != "drain" && action != "reboot";
        match self {
            Self::Change => forecast.is_change(),
            Self::Service => effect.actions.iter().any(is_service),
            Self::Drain => effect.drain || any(|node| node.drain),
            Self::Reboot => effect.reboot || any(|node| node.reboot),
            Self::Blocked => forecast.blocked().next().is_some(),
        }
    }
}

/// Prints the forecast of every pool.
pub(crate) fn run(
    args: &PlanArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let besides = [&args.policy, &args.nodes, &args.pods, &args.pdbs];
    let input = Input::read(&Places {
        paths: &args.paths,
        recursive: args.recursive,
        besides: besides.into_iter().flatten().collect(),
        without: &args.without,
    })?;
    input.after.tell(verbose);
    if let Some(name) = &args.pool {
        input.after.pool(Some(name))?;
    }
    let mut forecasts = plan::forecast(&input, &Times::DEFAULT.with(&args.time))?;
    forecasts.retain(|forecast| args.pool.as_ref().is_none_or(|name| forecast.pool == *name));
    match args.output {
        Output::Text => {
            let detail = if args.steps { Detail::Steps } else { Detail::Summary };
            for (number, forecast) in forecasts.iter().enumerate() {
                if number > 0 {
                    writeln!(screen)?;
                }
                show::pool(forecast, detail, screen)?;
            }
        }
        Output::Json => {
            let document = serde_json::json!({ "pools": forecasts });
            serde_json::to_writer_pretty(&mut *screen, &document)?;
            writeln!(screen)?;
        }
    }
    let refused = |forecast: &PoolForecast| {
        let nodes = forecast.nodes.iter().any(|node| node.refusal.is_some());
        forecast.is_change() && (forecast.effect.refusal.is_some() || nodes)
    };
    if forecasts.iter().any(refused) {
        return Ok(ExitCode::from(4));
    }
    let hit = |limit: &Limit| forecasts.iter().any(|f| f.is_change() && limit.is_hit(f));
    Ok(if args.fail_on.iter().any(hit) { ExitCode::from(3) } else { ExitCode::SUCCESS })
}
