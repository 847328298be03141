//! `oracle DIR`: runs the checks on all recordings in DIR and prints one line per suite.

use std::{env, io, io::Write as _, path::PathBuf, process::ExitCode};

use mco_testkit::oracle;

fn main() -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let folder = env::args_os().nth(1).map_or_else(oracle::corpus, PathBuf::from);
    if !folder.is_dir() {
        writeln!(out, "oracle: skipped: {} does not exist", folder.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (outcomes, unknown) = oracle::run_all(&folder)?;
    for outcome in &outcomes {
        writeln!(out, "{outcome}")?;
    }
    if !unknown.is_empty() {
        writeln!(out, "oracle: suites without a check: {}", unknown.join(", "))?;
    }
    let agreed = !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.failed.is_empty());
    Ok(if agreed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
