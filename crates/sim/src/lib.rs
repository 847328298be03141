//! A simulated fleet of nodes in virtual time, driven by the decisions of `mco-core`.
//!
//! Real parts: the selection of nodes (`rollout`), the pool of a node (`membership`), every decision
//! of a daemon (`lifecycle`), the plan of a change (`plan`), the evictions and retries of a drain
//! (`drain`). Models: the API server with its delayed watches, the machines, pods that move.
//! Everything follows from the setup and its seed: the same setup gives the same report.
//!
//! Every step checks the invariants of [`Invariant`]; the first violation ends the run.

mod chance;
mod controller;
mod drain;
mod fault;
mod node;
mod queue;
mod report;
mod setup;
mod world;

pub use self::{
    chance::SeededRng,
    fault::{BadFaults, Fault, Faults},
    report::{Entry, Invariant, InvariantViolation, PoolOutcome, Report, clock},
    setup::{Budget, Bug, Chooser, Flaw, HandshakePoint, Setup, StepTimes, UserAction},
    world::run,
};

/// Virtual time, in milliseconds since the start.
pub type Millis = u64;
