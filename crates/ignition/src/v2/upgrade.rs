//! From 2.2 to the newest version.
//!
//! 3.x has no filesystem names: a file stands on a path, and only the filesystem `root` has a known
//! one. It has no sectors either, so partitions cannot be taken over.

mod check;
mod translate;

use super::{Config, cleanup};
use crate::{config, report::Report, spec::Spec, validate};

/// Why a config of the 2.x specification cannot be taken over into the newest version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// It has a user that machines of a cluster do not have.
    #[error("unexpected user with name: {0}. Only core user is supported")]
    OtherUser(String),
    /// It says something that 3.x cannot say.
    #[error(
        "failed to convert Ignition config spec v2 to v3: unable to convert Ignition spec v2 config to v3: {0}"
    )]
    Untranslatable(Untranslatable),
}

/// What 3.x cannot say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// Network units.
    #[error("config includes deprecated networkd section - use Files instead")]
    Networkd,
    /// Partitions, which 2.2 measures in sectors.
    #[error("Invalid input config:\n{0}")]
    Deprecated(Report),
    /// A filesystem other than `root`.
    #[error(
        "Config defined filesystem {0:?} but no mapping was defined.Please specify a path to be used as the filesystem mountpoint."
    )]
    Filesystem(String),
    /// Two entries for one path.
    #[error(
        "Config has conflicting inodes: {old:?} and {new:?}.  All files, directories and links must specify a unique `path`."
    )]
    SamePath {
        /// The entry that came first.
        old: String,
        /// The entry in conflict with it.
        new: String,
    },
    /// An entry below a link that the config makes itself.
    #[error(
        "{entry} uses link defined in config {link:?}. Please use a link not defined in Storage:Links"
    )]
    OwnLink {
        /// The entry.
        entry: String,
        /// The link.
        link: String,
    },
    /// Two drop-ins of one name.
    #[error(
        "Config has duplicate dropin name {name:?} in unit {unit:?}.  All dropins must specify a unique `name`."
    )]
    SameDropin {
        /// The unit.
        unit: String,
        /// The drop-in.
        name: String,
    },
    /// What comes out breaks the rules of 3.0.
    #[error("{0}")]
    Invalid(Report),
}

impl Config {
    /// The config as the newest version has it.
    pub fn upgrade(mut self) -> Result<config::Config, UpgradeError> {
        cleanup::clean(&mut self)?;
        self.translate().map_err(UpgradeError::Untranslatable)
    }

    fn translate(self) -> Result<config::Config, Untranslatable> {
        check::check(&self)?;
        let mut config = translate::config(self);
        let report = validate::by(Spec::V3_0, &config);
        if report.is_fatal() {
            return Err(Untranslatable::Invalid(report));
        }
        config.ignition.version = Spec::V3_5.to_string();
        Ok(config)
    }
}
