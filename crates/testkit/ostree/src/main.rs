//! `rpm-ostree`, `bootc` and `rpm` of the test machine with ostree deployments, in one program that
//! is called by their names.
//!
//! Thin: libostree does the work, and these programs accept the commands that `mco` and the
//! reference use, check them as the real ones do, and print the same JSON. Every other command or
//! option is an error. An image is a commit of the repository at `/run/registry`, and so is a
//! package.

#![expect(clippy::disallowed_methods, reason = "no part of it ships")]

mod arguments;
mod bootc;
mod layers;
mod power;
mod registry;
mod rpm;
mod rpm_ostree;
mod status;
mod sysroot;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args();
    let path = words.next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let done = match name {
        "rpm-ostree" => rpm_ostree::run(&words),
        "bootc" => bootc::run(&words),
        "rpm" => rpm::run(&words),
        _ => Err(anyhow::anyhow!("this program is called rpm-ostree, bootc or rpm, not {name}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
