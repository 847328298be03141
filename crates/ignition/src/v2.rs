//! Configs of the 2.x specification, which older clusters still store and older clients still ask for.
//!
//! They are read as 2.2, cleaned of what 2.x allowed and 3.x does not, and translated. The versions
//! 2.0 and 2.1 are read too; what they did not know yet is ignored in them.

mod cleanup;
mod config;
mod passwd;
mod read;
mod storage;
mod systemd;
mod upgrade;

pub use config::{Config, Ignition, Reference, Security, Sources, Timeouts, Tls};
pub use passwd::{Group, Passwd, User, UserCreate};
pub(crate) use read::read;
pub use storage::{
    Contents, Create, Directory, Disk, File, Filesystem, Link, Mount, Owner, Partition, Raid,
    Storage,
};
pub use systemd::{Dropin, Networkd, NetworkdUnit, Systemd, Unit};
pub use upgrade::{Untranslatable, UpgradeError};

use crate::spec::Spec;

/// What stands for version 2.2 where a version of 3.x is asked for.
pub(crate) const MARKER: Spec = Spec::V3_2;

#[cfg(test)]
mod tests;
