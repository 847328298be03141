//! `mco plan`: predicts the effect of a change on every node.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use crate::{
    load::manifests::ManifestsExt as _,
    plan::{
        self, PoolForecast, TimeOverride, Times,
        input::{Input, InputPaths},
        show::{self, Detail},
    },
    print::Screen,
};

/// Predict the effect of a change: steps on each node, order of the nodes, and obstacles
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// Current manifests first, then those that change them, as `apply` would; - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// MachineConfig that the change deletes; may be repeated
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Pool to plan; all pools if omitted
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// File with the MachineConfiguration, which contains the node disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// File with Nodes, to predict the order
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// File with Pods, to predict drains
    #[arg(long, value_name = "FILE")]
    pods: Option<PathBuf>,
    /// File with PodDisruptionBudgets
    #[arg(long, value_name = "FILE")]
    pdbs: Option<PathBuf>,
    /// Duration of a step, such as reboot=10m; may be repeated. Defaults: drain=2m, files=5s,
    /// image=3m, service=5s, reboot=5m
    #[arg(long, value_name = "STEP=TIME")]
    time: Vec<TimeOverride>,
    /// List every step
    #[arg(long)]
    steps: bool,
    /// Exit with 3 if the change has this effect; may be repeated
    #[arg(long, value_enum, value_name = "EFFECT")]
    fail_on: Vec<FailOn>,
    /// Output format
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

Nodes, Pods, PodDisruptionBudgets and the MachineConfiguration are read from every file. The command
works offline and prints no contents.

Exit status: 0 the change is possible, 1 invalid input, 2 invalid command line, 3 the change has an
effect named with --fail-on, 4 a running node refuses the change.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// An effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// A pool gets another config
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

impl FailOn {
    fn is_hit(self, forecast: &PoolForecast) -> bool {
        let effect = &forecast.effect;
        let any = |has: fn(&plan::NodeForecast) -> bool| forecast.nodes.iter().any(has);
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
    let extra = [&args.policy, &args.nodes, &args.pods, &args.pdbs];
    let input = Input::read(&InputPaths {
        paths: &args.paths,
        recursive: args.recursive,
        extra: extra.into_iter().flatten().collect(),
        without: &args.without,
    })?;
    input.after.print_notes(verbose);
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
    let hit = |effect: &FailOn| forecasts.iter().any(|f| f.is_change() && effect.is_hit(f));
    Ok(if args.fail_on.iter().any(hit) { ExitCode::from(3) } else { ExitCode::SUCCESS })
}
