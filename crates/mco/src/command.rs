//! The subcommands, one module each.

pub(crate) mod apiserver;
pub(crate) mod apiserver_watcher;
pub(crate) mod apply;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod controller;
pub(crate) mod convert;
pub(crate) mod crds;
pub(crate) mod daemon;
pub(crate) mod delete;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod drift;
pub(crate) mod events;
pub(crate) mod exit_codes;
pub(crate) mod get;
pub(crate) mod host;
pub(crate) mod install;
pub(crate) mod join;
pub(crate) mod kubelets;
pub(crate) mod logs;
pub(crate) mod manual;
pub(crate) mod must_gather;
pub(crate) mod node;
pub(crate) mod operator;
pub(crate) mod plan;
pub(crate) mod pointer;
pub(crate) mod render;
pub(crate) mod rollout;
pub(crate) mod server;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod takeover;
pub(crate) mod token;
pub(crate) mod uninstall;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod why;

use std::process::ExitCode;

use crate::{
    args::{Args, Command},
    print::Screen,
};

/// Runs the subcommand. The result goes to `screen`, everything else to standard error.
pub(crate) fn run(args: &Args, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let verbose = args.verbose;
    match &args.command {
        Command::Up(args) => up::run(args, verbose, screen),
        Command::Down(args) => down::run(args, screen),
        Command::Status(args) => status::run(args, screen),
        Command::Get(args) => get::run(args, screen),
        Command::Events(args) => events::run(args, screen),
        Command::Logs(args) => logs::run(args, screen),
        Command::Version(args) => version::run(args, screen),
        Command::Doctor(args) => doctor::run(args, screen),
        Command::MustGather(args) => must_gather::run(args, screen),
        Command::Apply(args) => apply::run(args, screen),
        Command::Delete(args) => delete::run(args, screen),
        Command::Rollout(args) => rollout::run(args, screen),
        Command::Drift(args) => drift::run(args, screen),
        Command::Node(args) => node::run(args, screen),
        Command::Token(args) => token::run(args, screen),
        Command::Takeover(args) => takeover::run(args, screen),
        Command::Pointer(args) => pointer::run(args, screen),
        Command::Render(args) => render::run(args, verbose, screen),
        Command::Check(args) => check::run(args, verbose, screen),
        Command::Diff(args) => diff::run(args, verbose, screen),
        Command::Plan(args) => plan::run(args, verbose, screen),
        Command::Cat(args) => cat::run(args, verbose, screen),
        Command::Why(args) => why::run(args, verbose, screen),
        Command::Simulate(args) => simulate::run(args, screen),
        Command::Convert(args) => convert::run(args, screen),
        Command::Crds(args) => crds::run(args, screen),
        Command::Controller(args) => controller::run(args, verbose),
        Command::Operator(args) => operator::run(args, verbose),
        Command::Completion(args) => Ok(completion::run(args, screen)),
        Command::Manual(args) => manual::run(args, screen),
        Command::ExitCodes(args) => exit_codes::run(args, screen),
        Command::Apiserver(args) => apiserver::run(args, verbose, screen),
        Command::ApiserverWatcher(args) => apiserver_watcher::run(args, verbose, screen),
        Command::Server(args) => server::run(args, verbose, screen),
        Command::Daemon(args) => daemon::run(args, verbose, screen),
        Command::Kubelets(args) => kubelets::run(args, verbose, screen),
        Command::Install(args) => install::run(args, screen),
        Command::Uninstall(args) => uninstall::run(args, screen),
        Command::Host(args) => host::run(args, verbose, screen),
        Command::Join(args) => join::run(args, screen),
    }
}
