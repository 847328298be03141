//! The commands, one file each.

pub(crate) mod apiserver;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod crds;
pub(crate) mod daemon;
pub(crate) mod diff;
pub(crate) mod render;
pub(crate) mod why;

use std::process::ExitCode;

use crate::{
    args::{Args, Command},
    print::Screen,
};

/// Carries out the command; the result goes to `screen`, everything else to standard error.
pub(crate) fn run(args: &Args, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let verbose = args.verbose;
    match &args.command {
        Command::Render(args) => render::run(args, verbose, screen),
        Command::Check(args) => check::run(args, verbose, screen),
        Command::Diff(args) => diff::run(args, verbose, screen),
        Command::Cat(args) => cat::run(args, verbose, screen),
        Command::Why(args) => why::run(args, verbose, screen),
        Command::Convert(args) => convert::run(args, screen),
        Command::Crds(args) => crds::run(args, screen),
        Command::Apiserver(args) => apiserver::run(args, screen),
        Command::Daemon(args) => daemon::run(args),
    }
}
