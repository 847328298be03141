//! `mco version`: versions of the client, of the cluster and of Kubernetes.

use std::{collections::BTreeMap, io::Write as _, process::ExitCode};

use mco_cluster::report;
use mco_core::doctor::{Facts, version::ClusterVersions};
use serde_json::json;

use super::doctor::gather;
use crate::{
    print::Screen,
    process,
    remote::{self, Connection, installation},
};

/// Show the versions of the client, of the cluster and of Kubernetes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VersionArgs {
    /// Show only the version of this program
    #[arg(long)]
    client: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco version                 versions of client and cluster, and the skew between them
  mco version --client        the version of this program
  mco version -o json

Exit status: 0 the versions are known, 1 the cluster is unreachable.";

/// Output of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A line for each part
    Text,
    /// An object
    Json,
}

/// Prints the versions. The client's comes first, so that it is shown without a cluster, too.
pub(crate) fn run(args: &VersionArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let build = process::build();
    if args.output == Output::Text {
        writeln!(screen, "client      {} ({})", build.version, build.hash)?;
    }
    if args.client {
        if args.output == Output::Json {
            write_json(screen, None)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let versions = remote::block_on(async {
        let client = installation::enter_if_found(args.connection.client().await?).await;
        let facts = gather::versions(&client).await;
        of(&facts).map_err(|why| anyhow::anyhow!("the API server does not answer: {why}"))
    });
    match (versions, args.output) {
        (Ok(versions), Output::Text) => {
            write_text(screen, &versions)?;
            writeln!(screen, "skew        {}", versions.skew(&build.version))?;
        }
        (Ok(versions), Output::Json) => write_json(screen, Some(Ok(&versions)))?,
        (Err(error), Output::Text) => return Err(error),
        (Err(error), Output::Json) => {
            write_json(screen, Some(Err(&report::chain(error.as_ref()))))?;
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the versions in the cluster, or the reason for which there are none.
pub(crate) fn of(facts: &Facts) -> Result<ClusterVersions, String> {
    let kubernetes = facts.kubernetes.as_ref().map_err(Clone::clone)?;
    Ok(ClusterVersions::of(
        Some(kubernetes),
        facts.operator.found(),
        facts.controller_config.found(),
        facts.pods.found().map(Vec::as_slice).unwrap_or_default(),
        facts.nodes.found().map(Vec::as_slice).unwrap_or_default(),
    ))
}

fn write_json(
    screen: &mut Screen<'_>,
    cluster: Option<Result<&ClusterVersions, &str>>,
) -> anyhow::Result<()> {
    let build = process::build();
    let client = json!({"version": build.version, "hash": build.hash});
    let shown = match cluster {
        None => json!({"client": client}),
        Some(Ok(versions)) => json!({"client": client, "cluster": versions,
            "skew": versions.skew(&build.version)}),
        Some(Err(error)) => json!({"client": client, "cluster": null, "error": error}),
    };
    writeln!(screen, "{}", serde_json::to_string_pretty(&shown)?)?;
    Ok(())
}

fn write_text(screen: &mut Screen<'_>, versions: &ClusterVersions) -> anyhow::Result<()> {
    let ClusterVersions { release, operator, images, kubernetes, kubelets } = versions;
    let unknown = || "unknown".to_owned();
    writeln!(screen, "release     {}", release.clone().unwrap_or_else(unknown))?;
    writeln!(screen, "operator    {}", operator.clone().unwrap_or_else(unknown))?;
    for (process, images) in images {
        let name = process.trim_start_matches("machine-config-");
        writeln!(screen, "{name:<11} {}", counts(images, "pod"))?;
    }
    writeln!(screen, "Kubernetes  {}", kubernetes.clone().unwrap_or_else(unknown))?;
    if !kubelets.is_empty() {
        writeln!(screen, "kubelets    {}", counts(kubelets, "node"))?;
    }
    Ok(())
}

fn counts(all: &BTreeMap<String, usize>, noun: &str) -> String {
    let text = |(value, count): (&String, &usize)| {
        let plural = if *count == 1 { "" } else { "s" };
        format!("{value} ({count} {noun}{plural})")
    };
    crate::print::visible(&all.iter().map(text).collect::<Vec<_>>().join(", "))
}
