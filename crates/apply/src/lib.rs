//! Carries out what `mco_core::lifecycle` decides, on one machine.
//!
//! Plain blocking code on a root directory and a `System`: there is one writer to a machine, and
//! nothing can interrupt a step. The daemon, `mco host` and the first boot share it.

mod config;
pub mod confirm;
pub mod disk;
pub mod execute;
pub mod first_boot;
pub mod force;
pub mod forget;
pub mod join;
pub mod ledger;
pub mod observe;
pub mod program;
mod report;
pub mod verify;

pub use self::config::ParsedConfig;
