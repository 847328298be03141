//! `mco host plan`: prints the steps of an apply.

use std::{io::Write as _, process::ExitCode};

use mco_core::plan::Force;

use super::{MachineArgs, target};
use crate::{load::Sources, print::Screen};

/// Print the steps of an apply
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    sources: Sources,
    /// Pool to render, if the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Plan to write all files again
    #[arg(long)]
    force: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

pub(super) fn run(
    args: &PlanArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.machine.root)?;
    let to = target::render(&args.sources, args.pool.as_deref(), verbose)?;
    let force = if args.force { Force::Yes } else { Force::No };
    let transition = target::plan(&host, to, force)?;
    match (args.output, &transition.plan) {
        (Output::Json, plan) => {
            serde_json::to_writer_pretty(&mut *screen, plan)?;
            writeln!(screen)?;
        }
        (Output::Text, Some(plan)) => write!(screen, "{plan}")?,
        (Output::Text, None) => {
            let name = transition.to.object.metadata.name.clone().unwrap_or_default();
            writeln!(screen, "nothing to do: the machine already has {name}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
