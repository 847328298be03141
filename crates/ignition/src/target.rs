//! Specification versions that a client can request.

use std::{fmt, str::FromStr};

use crate::spec::Spec;

/// A version that a client can request a config in.
///
/// Not all of them can be produced: no config can be converted to 3.0, though clients may request
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetVersion {
    /// 2.2.0
    V2_2,
    /// One of the 3.x versions.
    V3(Spec),
}

/// A version that a client cannot request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown Ignition version {0:?}; known are 2.2.0, 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0"
)]
pub struct UnknownTargetError(String);

impl TargetVersion {
    /// All targets, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V2_2,
        Self::V3(Spec::V3_0),
        Self::V3(Spec::V3_1),
        Self::V3(Spec::V3_2),
        Self::V3(Spec::V3_3),
        Self::V3(Spec::V3_4),
        Self::V3(Spec::V3_5),
    ];

    /// Returns the version as written in configs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2_2 => "2.2.0",
            Self::V3(spec) => spec.as_str(),
        }
    }
}

impl fmt::Display for TargetVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TargetVersion {
    type Err = UnknownTargetError;

    /// Parses the full version or its first two parts.
    fn from_str(text: &str) -> Result<Self, UnknownTargetError> {
        let matches = |target: &Self| {
            let full = target.as_str();
            full == text || full.strip_suffix(".0") == Some(text)
        };
        Self::ALL.into_iter().find(matches).ok_or_else(|| UnknownTargetError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_parsed_with_or_without_its_patch_part() {
        for target in TargetVersion::ALL {
            assert_eq!(target.as_str().parse(), Ok(target));
        }
        assert_eq!("3.2".parse(), Ok(TargetVersion::V3(Spec::V3_2)));
        for wrong in ["", "3", "3.6.0", "2.3.0", "3.2.1", " 3.2.0"] {
            assert!(wrong.parse::<TargetVersion>().is_err(), "{wrong:?}");
        }
    }
}
