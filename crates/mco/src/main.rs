//! `mco`: machine configuration, rendered, checked and explained.

mod args;
mod check;
mod command;
mod diff;
mod fault;
mod load;
mod machine;
mod plan;
mod print;
mod process;
mod remote;
mod simulate;
mod suggest;
mod target;
mod up;

use std::{
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use crate::{args::Args, print::Screen};

fn main() -> ExitCode {
    let args = Args::read(std::env::args_os());
    let mut stdout = BufWriter::new(io::stdout().lock());
    let mut screen = Screen::stdout(&mut stdout);
    let done = command::run(&args, &mut screen);
    // What was written before a failure belongs to the person who asked, and comes first.
    let flushed = screen.flush().map_err(anyhow::Error::from);
    match done.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print::failure(&error);
            args.command.trouble()
        }
    }
}

/// Whether the reader of our output went away, as `mco cat … | head` does: it has what it wanted.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
