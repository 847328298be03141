//! Every decision, as pure functions over plain values.
//!
//! Nothing here reads a file, a clock, the environment or the network; what a decision needs is an
//! argument, and what it comes to is a value.

pub mod adopt;
pub mod certs;
pub mod check;
pub mod diff;
pub mod drain;
pub mod drift;
#[cfg(test)]
mod fixture;
pub mod goyaml;
pub mod machine;
pub mod membership;
pub mod plan;
pub mod progress;
pub mod prune;
pub mod render;
pub mod rollout;
pub mod roster;
pub mod status;
