//! Configs of the 2.x specification, which older clusters store and older clients request.
//!
//! They are parsed as 2.2, cleaned of duplicates that 3.x does not allow, and translated. The
//! versions 2.0 and 2.1 are parsed too; members that these versions do not have are ignored.

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

/// Value of [`Spec`] that represents version 2.2.
pub(crate) const V2_2_AS_SPEC: Spec = Spec::V3_2;

#[cfg(test)]
mod tests;
