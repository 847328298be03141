//! Names of the objects we pass around, as types that cannot hold a bad name.
//!
//! Kubernetes checks names when an object is created; these types check the ones that arrive by
//! other roads: annotations, command lines, file names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest object name Kubernetes accepts (RFC 1123 subdomain).
const MAX_LENGTH: usize = 253;

/// What every rendered config's name starts with.
pub const RENDERED_PREFIX: &str = "rendered-";

/// Why a text is not an object name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what} name: {fault}")]
pub struct BadName {
    /// What the name was meant for.
    what: &'static str,
    /// The refused text, shortened.
    text: String,
    /// What is wrong with it.
    fault: NameFault,
}

/// What can be wrong with an object name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// Over the length limit.
    #[error("it is longer than {MAX_LENGTH} characters")]
    TooLong,
    /// A character outside the allowed set.
    #[error("only lower-case letters, digits, '-' and '.' are allowed")]
    Character,
    /// A part between dots starts or ends wrongly.
    #[error("each part must start and end with a letter or digit")]
    Edge,
}

/// Checks `text` against the rule for object names (RFC 1123 subdomain).
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

/// Makes a checked string type; all names follow the same rule and differ only in meaning.
macro_rules! object_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;

            fn try_from(text: String) -> Result<Self, BadName> {
                match check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(fault) => {
                        let text = text.chars().take(80).collect();
                        Err(BadName { what: $what, text, fault })
                    }
                }
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
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
    /// Name of the MachineConfig a node runs or is to run.
    ///
    /// The controller writes `rendered-<pool>-<hash>`. Any object name is accepted, because an
    /// administrator may point a node at a config of their own.
    RenderedName,
    "config"
);

impl PoolName {
    /// Whether the pool ships with the cluster, as opposed to one that an administrator made.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        matches!(self.as_str(), "master" | "worker" | "arbiter")
    }
}

impl RenderedName {
    /// The name for the config of `pool` whose content hashes to `digest`.
    pub fn for_pool(pool: &PoolName, digest: [u8; 16]) -> Result<Self, BadName> {
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
    fn a_refusal_says_what_was_meant_and_why() {
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
