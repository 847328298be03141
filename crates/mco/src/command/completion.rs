//! `mco completion`: prints the completion script of a shell.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::{args, print::Screen};

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// Shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  mco completion bash > /etc/bash_completion.d/mco
  mco completion zsh > /usr/local/share/zsh/site-functions/_mco
  mco completion fish > ~/.config/fish/completions/mco.fish";

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs, screen: &mut Screen<'_>) -> ExitCode {
    // Shells complete the name of the program, without its folder.
    clap_complete::generate(args.shell, &mut args::definition("mco"), "mco", screen);
    ExitCode::SUCCESS
}
