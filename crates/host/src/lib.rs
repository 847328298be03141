//! The machine: a directory tree that is changed atomically, the services around it, and the files
//! that a user names on the command line.

pub mod account;
pub mod fault;
mod host;
pub mod input;
mod kubelet;
pub mod log;
mod offline;
pub mod original;
pub mod os;
mod package;
pub mod process;
mod root;
mod simulated;
pub mod snapshot;
mod system;
mod systemd;
mod tpm;
pub mod unit;

pub use host::{Host, HostError, KEYS, LEAKED_LINKS, SSH};
pub use kubelet::{
    credential_files as kubelet_credential_files, credentials as kubelet_credentials,
};
pub use offline::OfflineSystem;
pub use root::{Attribute, Durable, FileVersion, Lock, Owner, Root, RootError, Stat};
pub use simulated::{BootState, CallLog, SimulatedSystem};
pub use system::{CheckResult, HostFacts, MachineRole, Packaged, Restored, System, SystemError};
pub use systemd::{CHECKS, SystemdSystem};
