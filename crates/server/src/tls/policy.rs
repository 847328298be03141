//! TLS versions and cipher suites, as the flags name them.

use rustls::{SupportedCipherSuite, SupportedProtocolVersion, crypto::ring, version};

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Floor {
    /// 1.2. There is nothing below: older versions are broken and not built in.
    #[default]
    Tls12,
    /// 1.3.
    Tls13,
}

/// Versions and cipher suites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    floor: Floor,
    /// Names of suites for 1.2; none means all. Those of 1.3 are not to choose, as in Go.
    suites: Vec<&'static str>,
}

/// Flags that cannot be followed; the default is used in their place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No such version.
    #[error("unknown TLS version {0:?}")]
    Version(String),
    /// No suite of those named is built in.
    #[error("none of the cipher suites {0} can be used")]
    Suites(String),
}

impl Policy {
    /// Reads a version as Kubernetes names it (`VersionTLS12`) and IANA names of suites.
    ///
    /// Suites that are not built in are left out. Below 1.2 there is nothing, so asking for less
    /// comes to 1.2.
    pub fn parse(floor: &str, suites: &[String]) -> Result<Self, PolicyError> {
        let floor = match floor {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Floor::Tls12,
            "VersionTLS13" => Floor::Tls13,
            other => return Err(PolicyError::Version(other.to_owned())),
        };
        let known = ring::ALL_CIPHER_SUITES.iter().filter_map(name);
        let usable: Vec<_> =
            known.filter(|name| suites.iter().any(|asked| asked == name)).collect();
        if usable.is_empty() && !suites.is_empty() {
            return Err(PolicyError::Suites(suites.join(",")));
        }
        Ok(Self { floor, suites: usable })
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEW: [&SupportedProtocolVersion; 1] = [&version::TLS13];
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self.floor {
            Floor::Tls12 => &BOTH,
            Floor::Tls13 => &NEW,
        }
    }

    pub(super) fn allows(&self, suite: &SupportedCipherSuite) -> bool {
        match suite {
            SupportedCipherSuite::Tls13(_) => true,
            SupportedCipherSuite::Tls12(_) => {
                self.suites.is_empty() || name(suite).is_some_and(|n| self.suites.contains(&n))
            }
        }
    }
}

/// IANA's name of a suite.
fn name(suite: &SupportedCipherSuite) -> Option<&'static str> {
    let name = suite.suite().as_str()?;
    Some(match name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(floor: &str, suites: &str) -> Result<usize, PolicyError> {
        let suites: Vec<_> = suites.split(',').filter(|s| !s.is_empty()).map(Into::into).collect();
        let policy = Policy::parse(floor, &suites)?;
        Ok(ring::ALL_CIPHER_SUITES.iter().filter(|suite| policy.allows(suite)).count())
    }

    // covers: S06
    #[test]
    fn suites_that_cannot_be_used_are_left_out_and_none_left_is_an_error() {
        let rows = [
            ("VersionTLS12", "", Ok(9)),
            ("VersionTLS10", "", Ok(9)),
            ("VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Ok(4)),
            (
                "VersionTLS12",
                "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
                Ok(4),
            ),
            ("VersionTLS13", "TLS_AES_128_GCM_SHA256", Ok(3)),
            ("VersionTLS12", "bogus", Err(PolicyError::Suites("bogus".to_owned()))),
            ("VersionTLS99", "", Err(PolicyError::Version("VersionTLS99".to_owned()))),
        ];
        for (floor, suites, expected) in rows {
            assert_eq!(allowed(floor, suites), expected, "{floor} {suites}");
        }
    }
}
