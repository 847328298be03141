//! `mco takeover`: checks what taking over the cluster of another operator would change.

mod fetch;

use std::{io::Write as _, process::ExitCode};

use anstyle::Style;
use jiff::Timestamp;
use mco_cluster::Clock;
use mco_core::takeover::{
    AdoptedBuild,
    check::{self, Effect, Finding, Report},
};

pub(crate) use self::fetch::is_own;
use crate::{
    print::{self, BOLD, GREEN, RED, Screen},
    process,
    remote::{self, Connection},
};

/// Check what taking over the cluster of another operator would change
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TakeoverArgs {
    /// List what a takeover would change and what forbids it; nothing is changed
    #[arg(long, required = true)]
    check: bool,
    /// Build that the takeover adopts: VERSION-HASH, or auto for the build of the cluster
    #[arg(long, value_name = "BUILD", default_value = "auto")]
    adopt_build: AdoptedBuild,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco takeover --check --kubeconfig FILE
  mco takeover --check -o json

To take the cluster over, stop the other operator, then start `mco operator start` and
`mco controller start` with --take-over --adopt-build. To hand it back, stop both and start the
other operator.

Exit status: 0 nothing forbids a takeover, 1 something forbids it, 2 the check failed.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// Prints the findings. Fails if one of them forbids a takeover.
pub(crate) fn run(args: &TakeoverArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let report = remote::block_on(async {
        let client = args.connection.client().await?;
        let snapshot = Box::pin(fetch::snapshot(&client)).await?;
        let now: Timestamp = Clock::System.now();
        Ok(check::check(&snapshot, &process::build(), &args.adopt_build, now))
    })?;
    match args.output {
        Output::Text => write_text(&report, screen)?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *screen, &report)?;
            writeln!(screen)?;
        }
    }
    let is_possible = report.count(Effect::Forbids) == 0;
    Ok(if is_possible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_text(report: &Report, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    for finding in &report.findings {
        write_finding(finding, screen)?;
    }
    let (forbidding, changes) = (report.count(Effect::Forbids), report.count(Effect::Changes));
    if let Some(build) = &report.build {
        writeln!(screen, "\nBuild to adopt: {build}")?;
    }
    let text = match forbidding {
        0 => format!("Nothing forbids a takeover; changes: {changes}"),
        _ => format!("A takeover is forbidden; reasons: {forbidding}, changes: {changes}"),
    };
    writeln!(screen, "{text}")?;
    Ok(())
}

fn write_finding(finding: &Finding, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let (style, word): (Style, &str) = match finding.effect {
        Effect::Forbids => (RED, "forbids"),
        Effect::Changes => (BOLD, "changes"),
        Effect::Keeps => (GREEN, "keeps"),
    };
    screen.paint(style, format_args!("{word:<7}"))?;
    let (object, text) = (print::visible(&finding.object), print::visible(&finding.text));
    writeln!(screen, " {object}: {text}")?;
    if let Some(fix) = &finding.fix {
        writeln!(screen, "        fix: {}", print::visible(fix))?;
    }
    Ok(())
}
