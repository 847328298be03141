//! Conversion from 2.2 to the newest version.
//!
//! 3.x has no filesystem names: a file has a path, and only the path of the filesystem `root` is
//! known. 3.x has no sectors either, so partitions cannot be converted.

mod check;
mod translate;

use super::{Config, cleanup};
use crate::{config, report::Report, spec::Spec, validate};

/// A config of the 2.x specification that cannot be converted to the newest version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// The config has a user other than `core`.
    #[error("unexpected user with name: {0}. Only core user is supported")]
    OtherUser(String),
    /// The config has a feature that 3.x does not support.
    #[error(
        "failed to convert Ignition config spec v2 to v3: unable to convert Ignition spec v2 config to v3: {0}"
    )]
    Untranslatable(Untranslatable),
}

/// A feature of 2.x that 3.x does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// Units of systemd-networkd.
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
        /// Kind and path of the first entry.
        old: String,
        /// Kind and path of the conflicting entry.
        new: String,
    },
    /// An entry below a link that is defined in the config.
    #[error(
        "{entry} uses link defined in config {link:?}. Please use a link not defined in Storage:Links"
    )]
    OwnLink {
        /// Kind and path of the entry.
        entry: String,
        /// Path of the link.
        link: String,
    },
    /// Two drop-ins with the same name.
    #[error(
        "Config has duplicate dropin name {name:?} in unit {unit:?}.  All dropins must specify a unique `name`."
    )]
    SameDropin {
        /// Name of the unit.
        unit: String,
        /// Name of the drop-in.
        name: String,
    },
    /// The converted config breaks the rules of 3.0.
    #[error("{0}")]
    Invalid(Report),
}

impl Config {
    /// Converts the config to the newest version.
    pub fn upgrade(mut self) -> Result<config::Config, UpgradeError> {
        cleanup::clean(&mut self)?;
        self.translate().map_err(UpgradeError::Untranslatable)
    }

    fn translate(self) -> Result<config::Config, Untranslatable> {
        check::check(&self)?;
        let mut config = translate::config(self);
        let report = validate::validate_for(Spec::V3_0, &config);
        if report.is_fatal() {
            return Err(Untranslatable::Invalid(report));
        }
        config.ignition.version = Spec::V3_5.to_string();
        Ok(config)
    }
}
