//! `mco doctor`: prerequisites and health of every part, with the fix for each problem.

pub(crate) mod gather;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use mco_core::doctor::{self, Finding, Severity};
use serde_json::json;

use crate::{
    print::{self, Screen},
    remote::{self, Connection, installation},
};

/// Check the prerequisites and the health of every part; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Fail if there are warnings
    #[arg(long)]
    strict: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco doctor                 before an installation, after it, and any time
  mco doctor --strict        fail on warnings, for scripts
  mco doctor -o json

Exit status: 0 no errors (warnings are possible), 1 warnings and --strict is given, 2 errors, or the
cluster is unreachable. docs/troubleshooting.md explains the findings.";

/// Output of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A line for each finding, and one for its fix
    Text,
    /// An object with all findings
    Json,
}

/// Examines the cluster and prints the findings.
pub(crate) fn run(args: &DoctorArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let findings = remote::block_on(async {
        let client = installation::enter_if_found(args.connection.client().await?).await;
        Ok(doctor::examine(&gather::facts(&client).await))
    })?;
    let (errors, warnings) =
        (count(&findings, Severity::Error), count(&findings, Severity::Warning));
    match args.output {
        Output::Text => {
            for finding in &findings {
                write_finding(screen, finding)?;
            }
            screen.flush()?;
            let plural = |count: usize| if count == 1 { "" } else { "s" };
            print::note(&format!(
                "{errors} error{}, {warnings} warning{}",
                plural(errors),
                plural(warnings)
            ));
        }
        Output::Json => {
            writeln!(screen, "{}", serde_json::to_string_pretty(&document(&findings))?)?;
        }
    }
    Ok(match (errors, warnings) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) if args.strict => ExitCode::from(1),
        (0, _) => ExitCode::SUCCESS,
        (_, _) => ExitCode::from(2),
    })
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// Returns the findings as one object.
pub(crate) fn document(findings: &[Finding]) -> serde_json::Value {
    let errors = count(findings, Severity::Error);
    json!({"healthy": errors == 0, "errors": errors,
        "warnings": count(findings, Severity::Warning), "findings": findings})
}

fn write_finding(screen: &mut Screen<'_>, finding: &Finding) -> io::Result<()> {
    match finding.severity {
        Severity::Ok => screen.paint(print::GREEN, "ok     ")?,
        Severity::Warning => screen.paint(print::WARNING, "warning")?,
        Severity::Error => screen.paint(print::ERROR, "error  ")?,
    }
    write!(screen, "  {:<13}  ", finding.part.to_string())?;
    writeln!(screen, "{}", print::visible(&finding.text))?;
    if let Some(fix) = &finding.fix {
        writeln!(screen, "         {:<13}  fix: {}", "", print::visible(fix))?;
    }
    Ok(())
}
