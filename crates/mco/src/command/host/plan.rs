//! `mco host plan`: what applying would do.

use std::{io::Write as _, process::ExitCode};

use mco_core::plan::Force;

use super::{Place, target};
use crate::{load::Sources, print::Screen};

/// Print what apply would do, step by step
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    sources: Sources,
    /// Pool to render, where the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Plan to write everything again, whatever the machine has
    #[arg(long)]
    force: bool,
    /// How to print
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
    let host = target::open(&args.place.root)?;
    let to = target::render(&args.sources, args.pool.as_deref(), verbose)?;
    let force = if args.force { Force::Yes } else { Force::No };
    let way = target::way(&host, to, force)?;
    match (args.output, &way.plan) {
        (Output::Json, plan) => {
            serde_json::to_writer_pretty(&mut *screen, plan)?;
            writeln!(screen)?;
        }
        (Output::Text, Some(plan)) => write!(screen, "{plan}")?,
        (Output::Text, None) => {
            let name = way.to.metadata.name.unwrap_or_default();
            writeln!(screen, "nothing to do: the machine has {name}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
