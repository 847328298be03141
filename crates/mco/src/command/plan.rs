//! `mco plan`: predicts the effect of a change on every node.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use crate::{
    load::{ChangeSources, manifests::ManifestsExt as _},
    plan::{
        self, PoolForecast, TimeOverride, Times,
        input::{Input, InputPaths},
        show::{self, Detail},
    },
    print::Screen,
    remote::{self, Connection},
};

/// Predict the effect of a change: steps on each node, order of the nodes, and obstacles
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// The change, compared with the cluster: a file, a directory, a URL, or - for standard input. With
    /// several -f, offline: current manifests first, then those that change them
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "PATH",
        required_unless_present_any = ["without", "kustomize"]
    )]
    paths: Vec<PathBuf>,
    /// Kustomize folder with the change, compared with the cluster
    #[arg(short = 'k', long = "kustomize", value_name = "DIR", conflicts_with = "paths")]
    kustomize: Option<PathBuf>,
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
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco plan -f 99-worker-new.yaml                    the change in the running cluster
  mco plan --without 99-worker-custom               the deletion of a MachineConfig
  mco plan -k deploy/                               a kustomize folder
  mco plan -f manifests/ -f 99-worker-new.yaml      offline, with files only
  mco plan -f manifests/ --without 99-worker-custom
  kubectl get mc,mcp,controllerconfig,nodes,pods,pdb,machineconfiguration -A -o yaml > cluster.yaml
  mco plan -f cluster.yaml -f change.yaml
  mco plan -f cluster.yaml -f change.yaml --fail-on reboot --fail-on blocked -o json

With one -f, or none, the change is compared with the running cluster: its API server checks the change
without storing it, and nodes, pods and budgets are those of the cluster. --kubeconfig, --context or --dir
make every -f part of the change. With several -f, or one and --without, the command works offline;
Nodes, Pods, PodDisruptionBudgets and the MachineConfiguration are read from every file. No contents are
printed.

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
    let input = if args.is_live() { live_input(args)? } else { offline_input(args)? };
    input.after.print_notes(verbose);
    if let Some(name) = &args.pool {
        input.after.pool(Some(name))?;
    }
    let mut forecasts = plan::forecast(&input, &Times::DEFAULT.with(&args.time))?;
    forecasts.retain(|forecast| args.pool.as_ref().is_none_or(|name| forecast.pool == *name));
    match args.output {
        Output::Text => print(&forecasts, args.steps, screen)?,
        Output::Json => print_json(&forecasts, screen)?,
    }
    if is_refused(&forecasts) {
        return Ok(ExitCode::from(4));
    }
    let hit = |effect: &FailOn| forecasts.iter().any(|f| f.is_change() && effect.is_hit(f));
    Ok(if args.fail_on.iter().any(hit) { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

impl PlanArgs {
    /// Returns true if the change is compared with a running cluster.
    fn is_live(&self) -> bool {
        let several = self.paths.len() > 1 || !(self.paths.is_empty() || self.without.is_empty());
        !several || self.connection.is_given()
    }
}

fn offline_input(args: &PlanArgs) -> anyhow::Result<Input> {
    let extra = [&args.policy, &args.nodes, &args.pods, &args.pdbs];
    Input::read(&InputPaths {
        paths: &args.paths,
        recursive: args.recursive,
        extra: extra.into_iter().flatten().collect(),
        without: &args.without,
    })
}

fn live_input(args: &PlanArgs) -> anyhow::Result<Input> {
    let change = ChangeSources {
        paths: args.paths.clone(),
        kustomize: args.kustomize.clone(),
        recursive: args.recursive,
    };
    let change = change.load()?;
    remote::block_on(async {
        let client = args.connection.client().await?;
        plan::live::input(&client, &change, &args.without).await
    })
}

/// Prints forecasts as JSON.
pub(crate) fn print_json(
    forecasts: &[PoolForecast],
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let document = serde_json::json!({ "pools": forecasts });
    serde_json::to_writer_pretty(&mut *screen, &document)?;
    writeln!(screen)?;
    Ok(())
}

/// Prints forecasts as text.
pub(crate) fn print(
    forecasts: &[PoolForecast],
    steps: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let detail = if steps { Detail::Steps } else { Detail::Summary };
    for (number, forecast) in forecasts.iter().enumerate() {
        if number > 0 {
            writeln!(screen)?;
        }
        show::pool(forecast, detail, screen)?;
    }
    Ok(())
}

/// Returns true if a running node refuses the change.
pub(crate) fn is_refused(forecasts: &[PoolForecast]) -> bool {
    forecasts.iter().any(|forecast| {
        let nodes = forecast.nodes.iter().any(|node| node.refusal.is_some());
        forecast.is_change() && (forecast.effect.refusal.is_some() || nodes)
    })
}
