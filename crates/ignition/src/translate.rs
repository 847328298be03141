//! Down from the newest version to the one a client asks for.
//!
//! There is one set of types for all of 3.x, so a step down changes little: it refuses what the older
//! version cannot say, and checks what is left by the older version's rules. The way is 3.5, 3.4,
//! 3.3, 3.2 and then either 3.1 or 2.2; nothing leads to 3.0.
//!
//! What is lost without a word in the reference, and would change what the machine does, is refused
//! here: the crypto card of a volume below 3.5, and the advertisement of a Tang server below 3.4.

mod down;
mod to_v2;

use crate::{
    config::Config,
    object::Field as _,
    parse::{Document, ReadError, read},
    report::{Path, Report},
    spec::Spec,
    target::Target,
    v2, validate,
};

/// Why a config cannot be had in the version asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is of the 2.x specification, which is not served as it is.
    #[error("parsing Ignition config failed with error: unsupported config version\nReport: ")]
    SpecTwo,
    /// It breaks the rules of the newest version.
    #[error("parsing Ignition config failed with error: config is not valid\nReport: {0}")]
    Invalid(Report),
    /// Nothing leads to this version.
    #[error(
        "conversion for source version 3.5.0 to target version {0} is not supported the requested conversion is not supported"
    )]
    NoWay(Target),
    /// The older version cannot say this.
    #[error("{loss}")]
    Loss {
        /// What it cannot say.
        loss: Loss,
        /// Where the config says it.
        path: Path,
    },
    /// The older version could say it, but does not allow it.
    #[error("Converted spec has unexpected fatal error:\n{0}")]
    Outcome(Report),
}

/// What an older version cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The crypto card that unlocks a volume.
    #[error("invalid input config: 'Cex' type is not supported in spec v3.4")]
    Cex,
    /// Something that came with 3.4.
    #[error("Invalid input config: {0} not supported in spec v3.3")]
    Since3_4(&'static str),
    /// Something that came later than the version named.
    #[error("{what} not supported on {version}")]
    On {
        /// What, with its verb.
        what: &'static str,
        /// The version.
        version: &'static str,
    },
}

/// Writes `config` in the version asked for, as the body of an answer.
pub fn convert(mut config: Config, to: Target) -> Result<Vec<u8>, ConvertError> {
    let report = validate::by(Spec::V3_5, &config);
    if report.is_fatal() {
        return Err(ConvertError::Invalid(report));
    }
    let last = match to {
        Target::V2_2 => Spec::V3_2,
        Target::V3(Spec::V3_0) => return Err(ConvertError::NoWay(to)),
        Target::V3(spec) => spec,
    };
    for spec in [Spec::V3_4, Spec::V3_3, Spec::V3_2, Spec::V3_1] {
        if spec >= last {
            down::step(&mut config, spec)?;
        }
    }
    if to == Target::V2_2 {
        return Ok(to_v2::translate(config)?.tree(v2::MARKER).to_json());
    }
    Ok(config.tree(last).to_json())
}

/// Reads the stored config `raw` and writes it in the version asked for, as the server does.
///
/// Compat: a config of the 2.x specification is refused, because rendering has long translated it.
pub fn convert_raw(raw: &[u8], to: Target) -> Result<Vec<u8>, ConvertError> {
    match read(raw)? {
        Document::V3(document) => convert(document.config, to),
        Document::V2(_) => Err(ConvertError::SpecTwo),
    }
}

#[cfg(test)]
mod tests;
