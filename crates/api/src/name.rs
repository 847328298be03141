//! Object names as types that cannot hold an invalid name.
//!
//! The API server validates names when an object is created; these types validate names from other
//! sources: annotations, command lines, file names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length of an object name in Kubernetes (RFC 1123 subdomain).
const MAX_LENGTH: usize = 253;

/// Prefix of the name of every rendered config.
pub const RENDERED_PREFIX: &str = "rendered-";

/// A text that is not a valid object name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what} name: {fault}")]
pub struct NameError {
    /// Kind of object that the name is for.
    what: &'static str,
    /// Rejected text, shortened.
    text: String,
    /// Rule that the text breaks.
    fault: NameFault,
}

/// Rules for object names that a text can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text exceeds the maximum length.
    #[error("it is longer than {MAX_LENGTH} characters")]
    TooLong,
    /// The text has a character outside the allowed set.
    #[error("only lower-case letters, digits, '-' and '.' are allowed")]
    Character,
    /// A part between dots starts or ends with a character other than a letter or digit.
    #[error("each part must start and end with a letter or digit")]
    Edge,
}

/// Validates `text` against the rule for object names (RFC 1123 subdomain).
pub fn check(text: &str) -> Result<(), NameFault> {
    if text.is_empty() {
        return Err(NameFault::Empty);
    }
    if text.len() > MAX_LENGTH {
        return Err(NameFault::TooLong);
    }
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !text.bytes().all(|c| plain(c) || c == b'-' || c == b'.') {
        return Err(NameFault::Character);
    }
    let edged = |part: &str| {
        part.bytes().next().is_some_and(plain) && part.bytes().next_back().is_some_and(plain)
    };
    if text.split('.').all(edged) { Ok(()) } else { Err(NameFault::Edge) }
}

/// Declares a validated string type; all names follow the same rule and differ only in meaning.
macro_rules! object_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                match check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(fault) => {
                        let text = text.chars().take(80).collect();
                        Err(NameError { what: $what, text, fault })
                    }
                }
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

object_name!(
    /// Name of a MachineConfigPool.
    PoolName,
    "pool"
);
object_name!(
    /// Name of a Node.
    NodeName,
    "node"
);
object_name!(
    /// Name of the MachineConfig that a node runs or is to run.
    ///
    /// The controller uses names of the form `rendered-<pool>-<hash>`. Any object name is accepted,
    /// because an administrator may assign a config of their own to a node.
    RenderedName,
    "config"
);

impl PoolName {
    /// Returns true if the pool ships with the cluster and was not created by an administrator.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        matches!(self.as_str(), "master" | "worker" | "arbiter")
    }
}

impl RenderedName {
    /// Returns the name of the rendered config of `pool` whose content hashes to `digest`.
    pub fn for_pool(pool: &PoolName, digest: [u8; 16]) -> Result<Self, NameError> {
        let digest = u128::from_be_bytes(digest);
        Self::try_from(format!("{RENDERED_PREFIX}{pool}-{digest:032x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_follow_rfc_1123() {
        let long = "a".repeat(254);
        let longest = "a".repeat(253);
        let cases = [
            ("worker", Ok(())),
            ("node-1.example.com", Ok(())),
            ("0", Ok(())),
            (longest.as_str(), Ok(())),
            (long.as_str(), Err(NameFault::TooLong)),
            ("", Err(NameFault::Empty)),
            ("Worker", Err(NameFault::Character)),
            ("a b", Err(NameFault::Character)),
            ("a/b", Err(NameFault::Character)),
            ("ä", Err(NameFault::Character)),
            ("-a", Err(NameFault::Edge)),
            ("a-", Err(NameFault::Edge)),
            ("a..b", Err(NameFault::Edge)),
            (".", Err(NameFault::Edge)),
        ];
        for (text, expected) in cases {
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn an_error_names_the_kind_of_object_and_the_broken_rule() {
        let refused = "Worker_1".parse::<NodeName>().expect_err("upper case");
        assert_eq!(
            refused.to_string(),
            "\"Worker_1\" is not a valid node name: \
             only lower-case letters, digits, '-' and '.' are allowed"
        );
    }

    #[test]
    fn names_are_plain_strings_on_the_wire() {
        let name: PoolName = serde_json::from_str("\"infra\"").expect("valid");
        assert_eq!(serde_json::to_string(&name).expect("text"), "\"infra\"");
        assert!(serde_json::from_str::<PoolName>("\"In Fra\"").is_err());
    }

    #[test]
    fn a_rendered_name_carries_pool_and_hash() {
        let pool = "worker".parse().expect("valid");
        let name = RenderedName::for_pool(&pool, [0x0f; 16]).expect("short");
        assert_eq!(name.as_str(), "rendered-worker-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f");

        let long = "a".repeat(250).parse().expect("valid");
        assert!(RenderedName::for_pool(&long, [0; 16]).is_err());
    }

    #[test]
    fn only_three_pools_ship_with_a_cluster() {
        let built_in = |name: &str| name.parse::<PoolName>().expect("valid").is_built_in();
        assert!(built_in("master") && built_in("worker") && built_in("arbiter"));
        assert!(!built_in("infra"));
    }
}
