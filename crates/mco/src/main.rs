//! `mco`: the Machine Config Operator in one binary. It runs the processes of a cluster, and
//! renders, checks, compares and explains configs offline.

mod args;
mod command;
mod decoded;
mod diff;
mod duration;
mod error;
mod jsonpath;
mod live;
mod load;
mod plan;
mod print;
mod process;
mod reference;
mod remote;
mod simulate;
mod target;
mod up;

use std::{
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use crate::{args::Args, print::Screen};

fn main() -> ExitCode {
    if let Some(first) = std::env::args_os().next() {
        print::set_program(&first);
    }
    let args = Args::read(std::env::args_os());
    print::set_quiet(args.quiet);
    if args.parent.is_some_and(|parent| !up::processes::end_with_parent(parent)) {
        return ExitCode::FAILURE;
    }
    let mut stdout = BufWriter::new(io::stdout().lock());
    let mut screen = Screen::stdout(&mut stdout);
    let done = command::run(&args, &mut screen);
    // Flushed first, so that the output before a failure precedes the error message.
    let flushed = screen.flush().map_err(anyhow::Error::from);
    match done.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print::failure(&error);
            args.command.failure_code()
        }
    }
}

/// Returns true if the reader of the output closed the pipe, as in `mco cat … | head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
