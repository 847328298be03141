//! TLS versions and cipher suites of servers, as the flags name them.

use std::sync::Arc;

use rustls::{
    ConfigBuilder, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, WantsVerifier,
    crypto::ring, version,
};

/// The minimum TLS version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MinVersion {
    /// 1.2. Older versions are broken and not built in.
    #[default]
    Tls12,
    /// 1.3.
    Tls13,
}

/// Versions and cipher suites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    min_version: MinVersion,
    /// IANA names of the suites for 1.2; empty means all. Those of 1.3 cannot be configured, as in
    /// Go.
    suites: Vec<&'static str>,
}

/// Invalid flags; the default is used in their place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The version is unknown.
    #[error("unknown TLS version {0:?}")]
    Version(String),
    /// None of the suites is built in.
    #[error("none of the cipher suites {0} is supported")]
    Suites(String),
}

impl Policy {
    /// Parses a version as Kubernetes names it (`VersionTLS12`) and IANA names of suites.
    ///
    /// Suites that are not built in are skipped. Versions below 1.2 are treated as 1.2.
    pub fn parse(min_version: &str, suites: &[String]) -> Result<Self, PolicyError> {
        let min_version = match min_version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => MinVersion::Tls12,
            "VersionTLS13" => MinVersion::Tls13,
            other => return Err(PolicyError::Version(other.to_owned())),
        };
        let known = ring::ALL_CIPHER_SUITES.iter().filter_map(name);
        let usable: Vec<_> =
            known.filter(|name| suites.iter().any(|suite| suite == name)).collect();
        if usable.is_empty() && !suites.is_empty() {
            return Err(PolicyError::Suites(suites.join(",")));
        }
        Ok(Self { min_version, suites: usable })
    }

    /// Returns a builder of a server's configuration with these versions and suites.
    #[must_use]
    pub fn server(&self) -> ConfigBuilder<ServerConfig, WantsVerifier> {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| self.allows(suite));
        ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.versions())
            .expect("TLS 1.3 and its cipher suites are always allowed")
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEW: [&SupportedProtocolVersion; 1] = [&version::TLS13];
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self.min_version {
            MinVersion::Tls12 => &BOTH,
            MinVersion::Tls13 => &NEW,
        }
    }

    fn allows(&self, suite: &SupportedCipherSuite) -> bool {
        match suite {
            SupportedCipherSuite::Tls13(_) => true,
            SupportedCipherSuite::Tls12(_) => {
                self.suites.is_empty() || name(suite).is_some_and(|n| self.suites.contains(&n))
            }
        }
    }
}

/// Returns the IANA name of a suite.
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

    fn allowed(min_version: &str, suites: &str) -> Result<usize, PolicyError> {
        let suites: Vec<_> = suites.split(',').filter(|s| !s.is_empty()).map(Into::into).collect();
        let policy = Policy::parse(min_version, &suites)?;
        Ok(ring::ALL_CIPHER_SUITES.iter().filter(|suite| policy.allows(suite)).count())
    }

    // covers: S06
    #[test]
    fn unsupported_suites_are_skipped_and_none_left_is_an_error() {
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
        for (min_version, suites, expected) in rows {
            assert_eq!(allowed(min_version, suites), expected, "{min_version} {suites}");
        }
    }
}
