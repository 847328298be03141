//! `mco exit-codes` and `mco help exit-codes`: the exit status of every command.

use std::{io::Write as _, process::ExitCode};

use crate::{
    args,
    print::{Screen, fit},
};

/// List the exit status of every command
#[derive(Debug, clap::Args)]
pub(crate) struct ExitCodesArgs {}

/// Name of the command.
const NAME: &str = "exit-codes";

const RULES: &str = "\
Every command exits with 0 if it did what it was told to, with 1 if it failed, and with 2 if
its arguments are wrong. Commands whose status also tells a result have a line of their own,
and exit with 2 if they failed where 1 is a result. A process that is stopped by a signal ends
its work first.";

/// Length of a line in the help, which is not broken again.
const COLUMNS: usize = 94;

/// Start of the line in the help of a command that describes its exit status.
const STATUS: &str = "Exit status: ";

/// Prints the rules, and the commands whose status tells a result.
pub(crate) fn run(_: &ExitCodesArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    writeln!(screen, "{}", text(&args::definition("mco")))?;
    Ok(ExitCode::SUCCESS)
}

/// Adds the list to the help of the command that prints it.
pub(crate) fn with_list(command: clap::Command) -> clap::Command {
    let list = text(&command);
    command.mut_subcommand(NAME, |it| it.after_help(list))
}

fn text(command: &clap::Command) -> String {
    let mut lines = Vec::new();
    collect(command, "mco", &mut lines);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, status): &(String, String)| {
        format!("\n{}", fit::paragraph(&format!("{name:width$}  {status}"), COLUMNS))
    };
    format!("{RULES}\n{}", lines.iter().map(line).collect::<String>())
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
