//! What tests of several crates share. Nothing ships it.

pub mod oracle;
pub mod sim;
