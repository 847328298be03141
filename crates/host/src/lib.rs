//! The machine: a directory tree that is changed safely, the services around it, and the files a
//! person hands us.

pub mod account;
mod host;
pub mod input;
pub mod original;
mod root;
mod simulated;
mod system;
mod systemd;
pub mod unit;

pub use host::{Host, HostError, KEYS};
pub use root::{Owner, Root, RootError, Stat};
pub use simulated::{Glimpse, Journal, SimulatedSystem};
pub use system::{HostFacts, System, SystemError};
pub use systemd::SystemdSystem;
