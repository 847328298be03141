//! What tests of several crates share. Nothing ships it.

pub mod api;
pub mod daemons;
pub mod fleet;
pub mod lab;
pub mod nodes;
pub mod objects;
pub mod oracle;
pub mod pki;
pub mod sim;
pub mod watching;

/// How long tests wait for what is sure to come: only what is broken takes this long, on the slowest
/// machine too.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_mins(5);
