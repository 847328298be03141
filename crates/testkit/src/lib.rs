//! Test support that several crates share. No part of it ships.

pub mod api;
pub mod chaos;
pub mod daemons;
pub mod fleet;
pub mod lab;
pub mod log;
pub mod node_cluster;
pub mod nodes;
pub mod object_wait;
pub mod objects;
pub mod oracle;
pub mod pki;
pub mod sim;
pub mod switch;
pub mod syscalls;
pub mod vm;

/// Timeout of every wait in tests. Long enough that only a broken program exceeds it, on the
/// slowest machine too.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_mins(5);
