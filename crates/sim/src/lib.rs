//! A fleet of nodes in virtual time, run by the decisions of `mco-core`.
//!
//! What is real: who is told next (`rollout`), which pool a node belongs to (`membership`), what a
//! change takes (`plan`), what a drain evicts and when it tries again (`drain`). What is a model: the
//! API server with its late watches, the machines, the daemons' steps, pods that move. Everything
//! follows from the setup and its seed: the same setup gives the same report.
//!
//! At every step the rules of [`Rule`] are checked; the first one that is broken ends the run.

mod chance;
mod controller;
mod daemon;
mod drain;
mod fault;
mod queue;
mod report;
mod setup;
mod world;

pub use self::{
    chance::Chance,
    fault::{BadFaults, Fault, Faults},
    report::{Entry, PoolOutcome, Report, Rule, Violation, clock},
    setup::{Action, Budget, Bug, Chooser, Flaw, Pace, Setup},
    world::run,
};

/// Virtual time, in milliseconds since the start.
pub type Millis = u64;
