//! What tests of several crates share. Nothing ships it.

pub mod api;
pub mod daemons;
pub mod fleet;
pub mod lab;
pub mod oracle;
pub mod pki;
pub mod sim;
