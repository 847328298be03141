//! `mco must-gather`: writes what an engineer needs to understand a cluster into a directory, without
//! secrets.

mod collect;

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use mco_host::{Root, input};

use self::collect::Collector;
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Connection, installation},
};

/// Write objects and logs of the cluster into a directory, without secrets
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MustGatherArgs {
    /// Directory that does not exist or is empty
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Number of lines of each log
    #[arg(long, default_value_t = 20_000, value_name = "LINES")]
    tail: u32,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco must-gather report && tar czf report.tar.gz report

The directory has a subdirectory for each kind with a YAML file for each object, the logs of the
processes (also of their previous containers), the versions, and the findings of `mco doctor`. Secrets
have no data; contents of files, units and ConfigMaps are replaced by size and hash, apart from a few
known settings. Passwords and tokens in messages and logs are hidden as far as they can be recognised:
look at the files before you send them to others.

Exit status: 0 everything was gathered, 1 some requests failed; errors.txt names them.";

/// Gathers everything, and reports what is missing.
pub(crate) fn run(args: &MustGatherArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let dir = &args.to;
    if dir.exists() && (!dir.is_dir() || !input::is_empty(dir)?) {
        return Err(error_with_hint(
            format!("{} is not an empty directory", dir.display()),
            "name a directory that does not exist; files of another report would be mixed with these",
        ));
    }
    let failures = remote::block_on(async {
        let client = installation::enter_if_found(args.connection.client().await?).await;
        let root = Root::create(dir)
            .with_context(|| format!("failed to create directory {}", dir.display()))?;
        let mut collector = Collector::new(client, root, args.tail);
        collector.collect().await?;
        collector.finish()
    })?;
    writeln!(screen, "{}", dir.display())?;
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    print::note(&format!(
        "{failures} requests failed; {} names them",
        dir.join("errors.txt").display()
    ));
    Ok(ExitCode::FAILURE)
}
