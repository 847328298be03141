//! The node daemon: makes one machine what its config says, and says how that goes.
//!
//! Observe (annotations, disk, ledger) -> decide (pure) -> act (blocking, on record) -> report
//! (annotations, events). There are no globals, so that one process can run many daemons.

pub mod agent;
pub mod cluster;
pub mod decide;
pub mod disk;
pub mod execute;
pub mod first_boot;
pub mod ledger;
pub mod verify;
pub mod watch;

pub use agent::{Agent, Ended};
