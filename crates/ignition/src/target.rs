//! The versions of the specification that a client can ask for.

use std::{fmt, str::FromStr};

use crate::spec::Spec;

/// A version that a config can be asked for in.
///
/// Not every one can be produced: there is no way down to 3.0, though clients may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// 2.2.0
    V2_2,
    /// One of the 3.x versions.
    V3(Spec),
}

/// A version that is none of those a config can be asked for in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown Ignition version {0:?}; known are 2.2.0, 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0"
)]
pub struct UnknownTarget(String);

impl Target {
    /// Every target, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V2_2,
        Self::V3(Spec::V3_0),
        Self::V3(Spec::V3_1),
        Self::V3(Spec::V3_2),
        Self::V3(Spec::V3_3),
        Self::V3(Spec::V3_4),
        Self::V3(Spec::V3_5),
    ];

    /// The version as configs write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2_2 => "2.2.0",
            Self::V3(spec) => spec.as_str(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    /// Takes the full version or its first two parts.
    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        let matches = |target: &Self| {
            let full = target.as_str();
            full == text || full.strip_suffix(".0") == Some(text)
        };
        Self::ALL.into_iter().find(matches).ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_with_or_without_its_patch_part() {
        for target in Target::ALL {
            assert_eq!(target.as_str().parse(), Ok(target));
        }
        assert_eq!("3.2".parse(), Ok(Target::V3(Spec::V3_2)));
        for wrong in ["", "3", "3.6.0", "2.3.0", "3.2.1", " 3.2.0"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong:?}");
        }
    }
}
