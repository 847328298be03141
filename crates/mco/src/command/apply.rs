//! `mco apply`: creates or updates the objects of manifests in a cluster.

use std::{io::Write as _, process::ExitCode};

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use mco_api::MachineConfigPool;
use mco_cluster::{CallError, error};
use mco_core::lint::Object;
use serde_json::{Value, json};

use super::rollout::follow::{self, Goal, TargetChange};
use crate::{
    duration::Timeout,
    error::error_with_hint,
    load::{ChangeSources, Loaded},
    plan::{self, PoolForecast, Times},
    print::{self, Screen},
    remote::{
        self, Access, Connection,
        kinds::{Kind, Kinds},
    },
};

/// Field manager of the applied fields.
pub(crate) const MANAGER: &str = "mco";

/// Create or update the objects of manifests
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a flag of the command line")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    sources: ChangeSources,
    /// Namespace of objects without one; that of the context if omitted
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Take over fields of other field managers
    #[arg(long)]
    force_conflicts: bool,
    /// Show the effect on each node, and change nothing
    #[arg(long, conflicts_with_all = ["yes", "follow", "dry_run"])]
    plan: bool,
    /// Apply without asking; a terminal is shown the plan and asked otherwise
    #[arg(long, short)]
    yes: bool,
    /// Follow the pools until each of their nodes is done
    #[arg(long)]
    follow: bool,
    /// With --follow: time after which the command fails, such as 30m; no limit if omitted
    #[arg(long, value_name = "TIME", requires = "follow")]
    timeout: Option<Timeout>,
    /// Have the API server check the objects, and change nothing
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Output format: of the objects as the API server has them, or of the plan with --plan
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco apply -f examples/99-worker-custom.yaml
  mco apply -f examples/99-worker-custom.yaml --plan      the effect on each node, without applying
  mco apply -f examples/99-worker-custom.yaml --follow    until all nodes are done
  mco apply -f manifests/ -R
  mco apply -k deploy/
  mco apply -f https://example.com/manifests.yaml         a file of at most 1 MiB
  mco apply -f pool.yaml --force-conflicts

Fields that the manifests do not set stay unchanged (server-side apply, field manager `mco`). Nothing is
asked if the input or the output is not a terminal.

Exit status: 0 applied, with --follow on all nodes; 1 failure, the answer no, or --timeout; 4 with --plan
if a running node refuses the change; 130 with --follow if stopped by Ctrl-C.";

/// The form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A line for each object
    #[default]
    Text,
    /// `KIND/NAME` of each object
    Name,
    Json,
}

/// The result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Configured,
    Unchanged,
}

/// Shows the plan, asks, applies every object in the order of files and lines, and follows the pools, as
/// far as the flags say so.
pub(crate) fn run(args: &ApplyArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    if args.sources.is_empty() {
        return Err(error_with_hint("no manifests", "name them with -f PATH or -k DIR"));
    }
    let change = args.sources.load()?;
    if change.objects.is_empty() {
        let message = "the manifests have no object";
        return Err(error_with_hint(message, "nothing is applied; is the input of `-f -` empty?"));
    }
    let asks = !args.yes && !args.dry_run && print::can_ask();
    remote::block_on(async {
        let access = Access::of_dry_run(args.plan || args.dry_run);
        let client = args.connection.client_for(access).await?;
        let is_planned = (args.plan || args.follow || asks) && change.objects.iter().any(has_plan);
        let forecasts = if is_planned {
            let input = plan::live::input(&client, &change, &[]).await?;
            plan::forecast(&input, &Times::DEFAULT)?
        } else {
            Vec::new()
        };
        if args.plan || asks {
            if args.plan && args.output == Output::Json {
                super::plan::print_json(&forecasts, screen)?;
            } else {
                super::plan::print(&forecasts, false, screen)?;
            }
            screen.flush()?;
        }
        if args.plan {
            let refused = super::plan::is_refused(&forecasts);
            return Ok(if refused { ExitCode::from(4) } else { ExitCode::SUCCESS });
        }
        if asks && !print::confirm(&question(&change))? {
            return Err(error_with_hint("nothing was applied", "answer y, or add --yes"));
        }
        let goals = if args.follow { goals(&client, &forecasts).await? } else { Vec::new() };
        apply_all(args, &client, &change, screen).await?;
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        screen.flush()?;
        note_unfollowed(&forecasts);
        let output = match args.output {
            Output::Json => follow::Output::Json,
            Output::Text | Output::Name => follow::Output::Text,
        };
        follow::follow(&client, &goals, args.timeout, true, output, screen).await
    })
}

/// Names the pools that a change does not update now.
fn note_unfollowed(forecasts: &[PoolForecast]) {
    for paused in forecasts.iter().filter(|it| it.is_change() && it.paused) {
        print::note(&format!(
            "pool {0} is paused, and starts with `mco rollout resume {0}`",
            paused.pool
        ));
    }
    if !forecasts.iter().any(PoolForecast::is_change) {
        print::note("no pool gets another config");
    }
}

/// Returns the pools that a change updates, with their configs before it.
async fn goals(client: &Client, forecasts: &[PoolForecast]) -> anyhow::Result<Vec<Goal>> {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let pools = pools.list(&ListParams::default()).await.map_err(remote::call_error)?.items;
    let present = |name: &str| {
        let pool = pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name));
        pool.map(|pool| pool.spec.configuration.rendered.name.clone()).unwrap_or_default()
    };
    let changed = forecasts.iter().filter(|forecast| forecast.is_change() && !forecast.paused);
    let goal = |it: &PoolForecast| Goal {
        pool: it.pool.clone(),
        change: Some(TargetChange { from: present(&it.pool), to: it.to.clone() }),
    };
    Ok(changed.map(goal).collect())
}

/// Returns true if nodes may depend on an object.
fn has_plan(object: &Object) -> bool {
    ["machineconfiguration.openshift.io/", "operator.openshift.io/", "config.openshift.io/"]
        .iter()
        .any(|group| object.api_version.starts_with(group))
}

fn question(change: &Loaded) -> String {
    let labels: Vec<String> = change.objects.iter().map(Object::label).collect();
    match labels.as_slice() {
        [only] => format!("apply {only}?"),
        labels => format!("apply {} objects?", labels.len()),
    }
}

async fn apply_all(
    args: &ApplyArgs,
    client: &Client,
    change: &Loaded,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let mut kinds = Kinds::fetch(client).await?;
    let mut applied = Vec::new();
    for object in &change.objects {
        if kinds.of(&object.api_version, &object.kind).is_err() {
            // An earlier object may have defined the kind.
            kinds = Kinds::fetch(client).await?;
        }
        let kind = kinds.of(&object.api_version, &object.kind)?.clone();
        let (outcome, mut stored) = apply(args, client, &kind, object).await?;
        let word = match outcome {
            Outcome::Created => "created",
            Outcome::Configured => "configured",
            Outcome::Unchanged => "unchanged",
        };
        let suffix = if args.dry_run { " (server dry run)" } else { "" };
        let label = kind.label(&object.name);
        match args.output {
            Output::Text => writeln!(screen, "{label} {word}{suffix}")?,
            Output::Name => writeln!(screen, "{label}")?,
            Output::Json => {
                kind.mark(&mut stored);
                applied.push(stored);
            }
        }
    }
    let document = match applied.as_slice() {
        [] => return Ok(()),
        // A roll-out that is followed has a document of its own.
        _ if args.follow => return Ok(()),
        [only] => only.clone(),
        all => json!({"apiVersion": "v1", "kind": "List", "items": all}),
    };
    writeln!(screen, "{}", serde_json::to_string_pretty(&document)?)?;
    Ok(())
}

async fn apply(
    args: &ApplyArgs,
    client: &Client,
    kind: &Kind,
    object: &Object,
) -> anyhow::Result<(Outcome, Value)> {
    let value: Value = serde_json::from_str(&object.root.to_json())?;
    let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
    let given = args.namespace.as_deref().unwrap_or(client.default_namespace());
    let api = api(client, kind, namespace.unwrap_or(given));
    let name = object.name.as_str();
    let before = api.get_metadata_opt(name).await.map_err(remote::call_error)?;
    let mut params = PatchParams::apply(MANAGER);
    params.force = args.force_conflicts;
    params.dry_run = args.dry_run;
    let after = api.patch(name, &params, &Patch::Apply(&value)).await;
    let after = after.map_err(|error| apply_error(kind, name, error))?;
    let generation = |it: &kube::api::ObjectMeta| it.generation;
    let stored = serde_json::to_value(&after)?;
    let outcome = match before {
        None => Outcome::Created,
        Some(before) if before.metadata.resource_version == after.metadata.resource_version => {
            Outcome::Unchanged
        }
        // A dry run of an unchanged object may get another version.
        Some(before)
            if args.dry_run
                && generation(&before.metadata).is_some()
                && generation(&before.metadata) == generation(&after.metadata)
                && before.metadata.labels == after.metadata.labels
                && before.metadata.annotations == after.metadata.annotations =>
        {
            Outcome::Unchanged
        }
        Some(_) => Outcome::Configured,
    };
    Ok((outcome, stored))
}

/// Returns the API of a kind.
pub(crate) fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    let resource = kind.resource();
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

fn apply_error(kind: &Kind, name: &str, error: kube::Error) -> anyhow::Error {
    let label = kind.label(name);
    let error = CallError::from(error);
    if error.rejection() == Some(error::Rejection::Conflict) {
        return error_with_hint(
            format!("failed to apply {label}: {error}"),
            "another field manager owns these fields; add --force-conflicts to take them over",
        );
    }
    anyhow::Error::new(error).context(format!("failed to apply {label}"))
}
