//! Detection of changes that a running node cannot apply.
//!
//! Compat: order and wording of the checks are the reference's
//! (pkg/controller/common/reconcile.go).

use mco_api::{MachineConfig, machine_configuration::StorageOverride};
use mco_ignition::{CheckError, ReadError, config::User};

use crate::machine::{
    Machine, UnreadableConfig, is_one_field,
    paths::{self, PathConflict},
};

/// The only user that configs may manage.
pub const CORE_USER: &str = "core";

/// A file that makes the daemon apply its config again, regardless of the state of the disk.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// A change that a running node cannot apply.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// One of the two configs cannot be parsed.
    #[error(
        "parsing {side} Ignition config from machineconfig {config:?} failed: {}{source}",
        prefix(.source)
    )]
    Unreadable {
        /// The config that failed, old or new.
        side: Side,
        /// Name of the config.
        config: String,
        /// The parse error.
        source: Box<UnreadableConfig>,
    },
    /// The new config is invalid.
    #[error("validating new Ignition config from machineconfig {config:?} failed: {source}")]
    Invalid {
        /// Name of the new config.
        config: String,
        /// The first violation found.
        source: CheckError,
    },
    /// The new config has a path that no machine can have.
    #[error("machineconfig {config:?} cannot be applied: {source}")]
    Path {
        /// Name of the new config.
        config: String,
        /// The first such path.
        source: Box<PathConflict>,
    },
    /// A section changed that can only be set at installation.
    #[error("new machineconfig {from:?} is not reconcilable against {to:?}: {cause}")]
    Section {
        /// Name of the old config.
        from: String,
        /// Name of the new config.
        to: String,
        /// The difference.
        cause: Cause,
    },
    /// The kernel's FIPS mode differs from that of the config.
    #[error("detected change to FIPS flag; refusing to modify FIPS on a running cluster")]
    KernelFips,
}

/// One of two configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The config that the node has.
    Old,
    /// The config that the node is to have.
    New,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Old => "old",
            Self::New => "new",
        })
    }
}

fn prefix(source: &UnreadableConfig) -> &'static str {
    match source {
        UnreadableConfig::Read(_) => "failed to parse Ignition config: ",
        UnreadableConfig::Upgrade(_) => "",
    }
}

/// Parses the old and the new config of a node, old first.
///
/// Both are rendered configs and must have an Ignition part; a config without one is refused.
pub fn read(from: &MachineConfig, to: &MachineConfig) -> Result<(Machine, Machine), Obstacle> {
    let read = |side, config: &MachineConfig| {
        let machine = match config.spec.config {
            Some(_) => Machine::read(config),
            None => Err(ReadError::Empty.into()),
        };
        machine.map_err(|source| {
            let config = config.metadata.name.clone().unwrap_or_default();
            Obstacle::Unreadable { side, config, source: Box::new(source) }
        })
    };
    Ok((read(Side::Old, from)?, read(Side::New, to)?))
}

/// A difference that a running node cannot apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Groups differ.
    #[error("invalid passwd change(s): ignition Passwd Groups section contains changes")]
    Groups,
    /// Another user than `core` differs.
    #[error(
        "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user"
    )]
    OtherUser,
    /// The user has neither SSH keys nor a password.
    #[error(
        "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be core and have 1 or more sshKeys"
    )]
    EmptyUser,
    /// A user field other than SSH keys and password differs.
    #[error("invalid passwd change(s): SSH keys and password hash are not reconcilable")]
    UserFields,
    /// The password hash has more than one field or line.
    #[error("invalid passwd change(s): password hash contains a colon or a line break")]
    PasswordHash,
    /// A section of the Ignition config differs.
    #[error("ignition {0} section contains changes")]
    Ignition(&'static str),
    /// A file has an append section.
    #[error("ignition file {0} includes append")]
    Append(String),
    /// The new config contains the force file.
    #[error("cannot create {FORCE_FILE} via Ignition")]
    ForceFile,
    /// FIPS mode differs.
    #[error("detected change to FIPS flag; refusing to modify FIPS on a running cluster")]
    Fips,
}

/// Refuses the first change that a running node cannot apply, except those in `overrides`.
pub fn check(
    from: &Machine,
    to: &Machine,
    overrides: &[StorageOverride],
    kernel_fips: Option<bool>,
) -> Result<(), Obstacle> {
    mco_ignition::check(&to.config)
        .map_err(|source| Obstacle::Invalid { config: to.name.clone(), source })?;
    if let Some(source) = paths::conflicts(&to.config).into_iter().next() {
        let (config, source) = (to.name.clone(), Box::new(source));
        return Err(Obstacle::Path { config, source });
    }
    match cause(from, to, overrides) {
        Some(cause) => {
            Err(Obstacle::Section { from: from.name.clone(), to: to.name.clone(), cause })
        }
        None if kernel_fips.is_some_and(|fips| fips != to.spec.fips) => Err(Obstacle::KernelFips),
        None => Ok(()),
    }
}

fn cause(from: &Machine, to: &Machine, overrides: &[StorageOverride]) -> Option<Cause> {
    users(from, to)
        .or_else(|| {
            let differs = from.config.kernel_arguments != to.config.kernel_arguments;
            differs.then_some(Cause::Ignition("kargs"))
        })
        .or_else(|| storage(from, to, overrides))
        .or_else(|| files(to))
        .or_else(|| (from.spec.fips != to.spec.fips).then_some(Cause::Fips))
}

fn users(from: &Machine, to: &Machine) -> Option<Cause> {
    let (old, new) = (&from.config.passwd, &to.config.passwd);
    if old.groups != new.groups {
        return Some(Cause::Groups);
    }
    if old.users == new.users {
        return None;
    }
    if new.users.iter().any(|user| user.name != CORE_USER) {
        return Some(Cause::OtherUser);
    }
    // Compat: only the last entry is checked. Removing the user is allowed; the account stays as it
    // is.
    let last = new.users.last()?;
    if last.password_hash.is_none() && last.ssh_authorized_keys.is_empty() {
        return Some(Cause::EmptyUser);
    }
    if !new.users.iter().all(|user| user.password_hash.as_deref().is_none_or(is_one_field)) {
        return Some(Cause::PasswordHash);
    }
    let settable = User {
        name: last.name.clone(),
        password_hash: last.password_hash.clone(),
        ssh_authorized_keys: last.ssh_authorized_keys.clone(),
        ..User::default()
    };
    (*last != settable).then_some(Cause::UserFields)
}

fn storage(from: &Machine, to: &Machine, overrides: &[StorageOverride]) -> Option<Cause> {
    let (old, new) = (&from.config.storage, &to.config.storage);
    let tolerated = |section: StorageOverride| overrides.contains(&section);
    let sections = [
        ("disks", old.disks != new.disks && !tolerated(StorageOverride::Disks)),
        (
            "filesystems",
            old.filesystems != new.filesystems && !tolerated(StorageOverride::FileSystems),
        ),
        ("raid", old.raid != new.raid && !tolerated(StorageOverride::Raid)),
        ("directories", old.directories != new.directories),
        // Links may be removed: older releases had some, and leaving them on disk is harmless.
        ("links", old.links != new.links && !new.links.is_empty()),
    ];
    sections.into_iter().find_map(|(name, differs)| differs.then_some(Cause::Ignition(name)))
}

fn files(to: &Machine) -> Option<Cause> {
    to.config.storage.files.iter().find_map(|file| {
        if !file.append.is_empty() {
            Some(Cause::Append(file.path.clone()))
        } else if file.path == FORCE_FILE {
            Some(Cause::ForceFile)
        } else {
            None
        }
    })
}
