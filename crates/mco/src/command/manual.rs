//! `mco manual`: writes the manual pages.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;

use crate::{args, print::Screen};

/// Write a manual page for each command
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManualArgs {
    /// Folder of the pages
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  mco manual /usr/local/share/man/man1
  man mco-plan";

/// Writes the pages, over those of another version.
#[expect(clippy::disallowed_methods, reason = "the user names the folder")]
pub(crate) fn run(args: &ManualArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(args::definition("mco"), &args.folder))
        .with_context(|| format!("failed to write manual pages to {}", args.folder.display()))?;
    writeln!(screen, "manual pages written to {}", args.folder.display())?;
    Ok(ExitCode::SUCCESS)
}
