//! `mco exit-codes`, which `mco help exit-codes` describes: the exit status of every command.

use std::{io::Write as _, process::ExitCode};

use crate::{args, print::Screen};

/// List the exit status of every command
#[derive(Debug, clap::Args)]
#[command(after_help = RULES)]
pub(crate) struct ExitCodesArgs {}

const RULES: &str = "\
Every command exits with 0 if it did what it was told to, with 1 if it failed, and with 2 if its
arguments are wrong. Commands whose status also tells a result have a line of their own, and exit
with 2 if they failed where 1 is a result. A process that is stopped by a signal ends its work first.
`mco exit-codes` prints the commands with such a line.";

/// Start of the line in the help of a command that describes its exit status.
const STATUS: &str = "Exit status: ";

/// Prints the rules, and the commands whose status tells a result.
pub(crate) fn run(_: &ExitCodesArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    writeln!(screen, "{}", RULES.rsplit_once('\n').map_or(RULES, |(rules, _)| rules))?;
    let mut lines = Vec::new();
    collect(&args::definition("mco"), "mco", &mut lines);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    writeln!(screen)?;
    for (name, status) in lines {
        writeln!(screen, "{name:width$}  {status}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Collects the statuses that the help of a command and of its subcommands describes.
fn collect(command: &clap::Command, name: &str, lines: &mut Vec<(String, String)>) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if let Some((_, status)) = help.split_once(STATUS) {
        let status = status.split("\n\n").next().unwrap_or_default();
        lines.push((name.to_owned(), status.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        collect(below, &format!("{name} {}", below.get_name()), lines);
    }
}
