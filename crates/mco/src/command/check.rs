//! `mco check`: everything that is wrong, at once.

use std::{io::Write as _, process::ExitCode};

use crate::{
    check,
    fault::{Advice, Fault},
    load::{Sources, manifests::Manifests},
    print::{self, Screen},
};

/// Check manifests for everything that would degrade a pool or that a node would refuse
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    sources: Sources,
    /// How to print
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  mco check -f manifests/
  mco check -f 99-worker-custom.yaml -o json
  kubectl get mc,mcp -o yaml | mco check -f -

Exit status: 0 no errors (there may be warnings), 1 errors. Nothing is sent anywhere, and no secret
is printed.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// Prints every fault; fails when one of them is an error.
pub(crate) fn run(
    args: &CheckArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let manifests = Manifests::new(args.sources.load()?);
    if manifests.configs.is_empty() && manifests.faults.is_empty() {
        return Err(Advice::error(
            "the input holds no MachineConfig",
            "name the files or directories that have them; -v says what was left aside",
        ));
    }
    manifests.tell(verbose);
    let faults = check::all(&manifests);
    let errors = faults.iter().filter(|fault| fault.is_error()).count();
    let warnings = faults.len() - errors;
    match args.output {
        Output::Text => {
            for fault in &faults {
                print::fault(screen, fault)?;
            }
            screen.flush()?;
            let configs = counted(manifests.configs.len(), "MachineConfig");
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
