//! Conversion from the newest version to the version that a client requests.
//!
//! One set of types serves all of 3.x, so a step down changes little: it rejects features that the
//! older version does not support, and validates the result by the older version's rules. The steps
//! are 3.5, 3.4, 3.3, 3.2 and then either 3.1 or 2.2; there is no step to 3.0.
//!
//! The reference silently drops two features whose loss would change the machine, and which are
//! rejected here: the crypto card of a volume below 3.5, and the advertisement of a Tang server
//! below 3.4.

mod down;
mod to_v2;

use crate::{
    config::Config,
    object::Field as _,
    parse::{Document, ReadError, read},
    report::{Path, Report},
    spec::Spec,
    target::TargetVersion,
    v2, validate,
};

/// A config that cannot be converted to the requested version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The stored config cannot be parsed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The stored config is of the 2.x specification, which is not served unchanged.
    #[error("parsing Ignition config failed with error: unsupported config version\nReport: ")]
    V2,
    /// The config breaks the rules of the newest version.
    #[error("parsing Ignition config failed with error: config is not valid\nReport: {0}")]
    Invalid(Report),
    /// No conversion to this version exists.
    #[error(
        "conversion for source version 3.5.0 to target version {0} is not supported the requested conversion is not supported"
    )]
    UnsupportedTarget(TargetVersion),
    /// The older version does not support a feature of the config.
    #[error("{feature}")]
    Unsupported {
        /// The feature.
        feature: UnsupportedFeature,
        /// Path of the feature in the config.
        path: Path,
    },
    /// The converted config breaks the rules of the older version.
    #[error("Converted spec has unexpected fatal error:\n{0}")]
    InvalidResult(Report),
}

/// A feature that an older version does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedFeature {
    /// The crypto card that unlocks a volume.
    #[error("invalid input config: 'Cex' type is not supported in spec v3.4")]
    Cex,
    /// A feature that exists since 3.4.
    #[error("Invalid input config: {0} not supported in spec v3.3")]
    Since3_4(&'static str),
    /// A feature that is newer than `version`.
    #[error("{what} not supported on {version}")]
    On {
        /// Name of the feature, with its verb.
        what: &'static str,
        /// Version that does not support the feature.
        version: &'static str,
    },
}

/// Converts `config` to the requested version and serializes it.
pub fn convert(mut config: Config, to: TargetVersion) -> Result<Vec<u8>, ConvertError> {
    let report = validate::validate_for(Spec::V3_5, &config);
    if report.is_fatal() {
        return Err(ConvertError::Invalid(report));
    }
    let last = match to {
        TargetVersion::V2_2 => Spec::V3_2,
        TargetVersion::V3(Spec::V3_0) => return Err(ConvertError::UnsupportedTarget(to)),
        TargetVersion::V3(spec) => spec,
    };
    for spec in [Spec::V3_4, Spec::V3_3, Spec::V3_2, Spec::V3_1] {
        if spec >= last {
            down::convert_to(&mut config, spec)?;
        }
    }
    if to == TargetVersion::V2_2 {
        return Ok(to_v2::translate(config)?.tree(v2::V2_2_AS_SPEC).to_json());
    }
    Ok(config.tree(last).to_json())
}

/// Parses the stored config `raw` and serializes it in the requested version, as the server does.
///
/// Compat: a config of the 2.x specification is rejected, because rendering has already translated
/// it.
pub fn convert_raw(raw: &[u8], to: TargetVersion) -> Result<Vec<u8>, ConvertError> {
    match read(raw)? {
        Document::V3(document) => convert(document.config, to),
        Document::V2(_) => Err(ConvertError::V2),
    }
}

#[cfg(test)]
mod tests;
