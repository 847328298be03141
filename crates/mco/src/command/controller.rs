//! `mco controller`: runs the controller, which renders configs, rolls them out and drains nodes.

mod bootstrap;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use mco_cluster::{Health, NoteCount, client::Identity, lease};
use mco_controller::{Config, DEFAULT_LEASE_NAMESPACE, Delays, Leader, Metrics};
use mco_core::template::TemplateTree;
use mco_host::input;
use tracing::info;

use crate::process::{self, LeaderArgs, ProcessArgs, ProcessOptions, TakeoverArgs};

const IDENTITY: Identity = Identity::new("machine-config-controller");

/// Largest size of all templates together, in bytes.
const MAX_TEMPLATES_SIZE: u64 = 16 * 1024 * 1024;

/// Run the controller: render configs, roll them out, drain nodes
#[derive(Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    command: ControllerCommand,
    /// Folder with templates of base configs; those of this build if omitted
    #[arg(long, global = true, value_name = "DIR")]
    templates: Option<PathBuf>,
    /// Log level; 4 and above logs everything
    #[arg(long = "v", global = true, hide = true, default_value_t = 2)]
    verbosity: u8,
}

#[derive(Debug, clap::Subcommand)]
enum ControllerCommand {
    /// Run the controller until stopped
    Start(Box<StartArgs>),
    Bootstrap(bootstrap::BootstrapArgs),
}

#[derive(Debug, clap::Args)]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Namespace of the leader lease; that of --namespace if omitted, which by default is that in which
    /// the reference is deployed, so that it and this process never lead at the same time
    #[arg(long, value_name = "NAMESPACE")]
    resourcelock_namespace: Option<String>,
    /// Accepted for compatibility, without effect: the controller inspects no images
    #[arg(long, default_value = "/var/cache/mcc", hide = true)]
    streams_cache: PathBuf,
    /// Approve the certificate requests of new nodes that pass all checks; otherwise only if the
    /// ControllerConfig has the annotation `approve-joins`
    #[arg(long)]
    approve_joins: bool,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    takeover: TakeoverArgs,
}

impl StartArgs {
    /// Returns the namespace of the leader lease. The operator looks for the lease in its own namespace.
    fn lease_namespace(&self) -> String {
        let own = || self.process.client_options(IDENTITY).namespace;
        let namespace = self.resourcelock_namespace.clone().or_else(own);
        namespace.unwrap_or_else(|| DEFAULT_LEASE_NAMESPACE.to_owned())
    }
}

pub(crate) fn run(args: &ControllerArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let verbose = verbose || args.verbosity >= 4;
    let templates = load_templates(args.templates.as_deref())?;
    match &args.command {
        ControllerCommand::Start(start) => run_controllers(start, templates, verbose),
        ControllerCommand::Bootstrap(args) => bootstrap::run(args, &templates),
    }
}

/// Reads the templates of a folder, or returns those of this build.
fn load_templates(folder: Option<&Path>) -> anyhow::Result<TemplateTree> {
    let Some(folder) = folder else { return Ok(TemplateTree::built_in()) };
    let mut files = Vec::new();
    for (path, bytes) in input::tree(folder, MAX_TEMPLATES_SIZE)? {
        let text = String::from_utf8(bytes);
        files.push((path.clone(), text.with_context(|| format!("template {path} is not text"))?));
    }
    let tree = TemplateTree::from_files(files);
    tree.with_context(|| format!("{} is no folder of templates", folder.display()))
}

fn run_controllers(
    args: &StartArgs,
    templates: TemplateTree,
    verbose: bool,
) -> anyhow::Result<ExitCode> {
    let timings = args.leader.timings()?;
    let register = |registry: &mut _| (Metrics::register(registry), NoteCount::register(registry));
    let health = Health::default();
    let process = &args.process;
    let options = ProcessOptions {
        health: health.clone(),
        ..ProcessOptions::new(process.client_options(IDENTITY))
    };
    process::run(process, verbose, options, register, |(metrics, notes), client, shutdown| {
        let build = process::build();
        info!(build.version, build.hash, release = args.process.payload_version, "Starting");
        let leader =
            Leader { namespace: args.lease_namespace(), identity: lease::identity(), timings };
        let config = Config {
            templates: Arc::new(templates),
            delays: Delays::SHORT,
            approve_joins: args.approve_joins,
            leader: Some(leader),
            order: args.takeover.order(),
            metrics,
            notes,
            health,
            ..Config::new(build)
        };
        mco_controller::run(config, client, shutdown)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: ControllerArgs,
    }

    // covers: PROC-1
    #[test]
    fn the_lease_is_in_the_namespace_of_the_installation_unless_another_is_given() {
        let own = ["--namespace", "own"];
        let other = ["--resourcelock-namespace", "other"];
        let rows: [(&[&str], &str); 4] = [
            (&[], "openshift-machine-config-operator"),
            (&own, "own"),
            (&other, "other"),
            (&[own, other].concat(), "other"),
        ];
        for (flags, expected) in rows {
            let words = [&["mco", "start"], flags].concat();
            let ControllerCommand::Start(start) = Command::parse_from(words).args.command else {
                panic!("another command was parsed");
            };
            assert_eq!(start.lease_namespace(), expected, "{flags:?}");
        }
    }
}
