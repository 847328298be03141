//! The commands, one file each. All but the processes work offline on files.

pub(crate) mod apiserver;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod controller;
pub(crate) mod convert;
pub(crate) mod crds;
pub(crate) mod daemon;
pub(crate) mod diff;
pub(crate) mod operator;
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
        Command::Controller(args) => controller::run(args, verbose),
        Command::Operator(args) => operator::run(args, verbose),
        Command::Apiserver(args) => apiserver::run(args, screen),
        Command::Daemon(args) => daemon::run(args, verbose),
    }
}
