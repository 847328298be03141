//! `mco host` on a machine with a kernel, a boot loader and a disk of its own: kernel arguments, and
//! power cuts.

#![expect(clippy::panic, reason = "a panic fails the test")]

mod arguments;
mod cache;
mod check;
mod configs;
mod cuts;
mod fixture;
mod node;
mod syscalls;

use mco_testkit::vm::VmPrerequisites;

/// Panics with the error and its sources.
fn done<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}

/// Returns the prerequisites; prints a line and returns `None` if the test cannot run here.
fn prerequisites() -> Option<VmPrerequisites> {
    VmPrerequisites::find().map_err(|missing| eprintln!("skipped: {missing}")).ok()
}

/// Returns a number from the environment.
#[expect(clippy::disallowed_methods, reason = "`make soak` sets the numbers in the environment")]
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
