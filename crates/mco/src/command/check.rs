//! `mco check`: reports all faults of manifests.

use mco_core::lint::{self, Fault};
use std::{io::Write as _, process::ExitCode};

use crate::{
    error::error_with_hint,
    load::{Sources, manifests::ManifestsExt as _},
    print::{self, Screen},
};

/// Check manifests for faults that would degrade a pool or that a node would refuse
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    sources: Sources,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  mco check -f manifests/
  mco check -f 99-worker-custom.yaml -o json
  kubectl get mc,mcp -o yaml | mco check -f -

Exit status: 0 no errors (warnings are possible), 1 errors. The command works offline and prints no
secrets.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// Prints every fault; fails if one of them is an error.
pub(crate) fn run(
    args: &CheckArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let manifests = args.sources.load()?.into_manifests();
    if manifests.all_configs().next().is_none() && manifests.faults.is_empty() {
        return Err(error_with_hint(
            "the input contains no MachineConfig",
            "name files or directories with MachineConfigs; -v shows the ignored objects",
        ));
    }
    manifests.print_notes(verbose);
    let faults = lint::check(&manifests);
    let errors = faults.iter().filter(|fault| fault.is_error()).count();
    let warnings = faults.len() - errors;
    match args.output {
        Output::Text => {
            for fault in &faults {
                print::fault(screen, fault)?;
            }
            screen.flush()?;
            let configs = counted(manifests.all_configs().count(), "MachineConfig");
            let pools = counted(manifests.pools.len(), "pool");
            let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
            print::note(&format!("{configs}, {pools}: {errors}, {warnings}"));
        }
        Output::Json => {
            let document = serde_json::json!({
                "errors": errors,
                "warnings": warnings,
                "faults": faults.iter().map(Fault::to_json).collect::<Vec<_>>(),
            });
            serde_json::to_writer_pretty(&mut *screen, &document)?;
            writeln!(screen)?;
        }
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
