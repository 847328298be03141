//! TLS settings of servers on the nodes, from the profile that the cluster's `APIServer` names.

use mco_api::kubelet_config::{CustomTlsProfile, TlsProfileType, TlsSecurityProfile};

/// Lowest TLS version, and the cipher suites by their IANA names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Lowest version, such as `VersionTLS12`.
    pub min_version: String,
    /// Cipher suites in the order of preference.
    pub cipher_suites: Vec<String>,
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The profile's type is unknown.
    #[error(
        "unknown tlsSecurityProfile.type {0:?} of APIServer cluster; use Old, Intermediate, Modern or Custom"
    )]
    Type(String),
    /// The lowest version is unknown.
    #[error(
        "unknown minTLSVersion {0:?} of APIServer cluster; use VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"
    )]
    Version(String),
}

const VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

/// Cipher suites by OpenSSL and IANA name, in the order of the profile `Old`; suites of TLS 1.3 have
/// one name. Suites that Go does not implement are left out.
const SUITES: [(&str, &str); 20] = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
];

/// Number of suites of the profiles `Modern` and `Intermediate`; they are the first of [`SUITES`].
const MODERN: usize = 3;
const INTERMEDIATE: usize = 9;

/// The suite that ends the profile `Old` and Go implements too.
const TRIPLE_DES: (&str, &str) = ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA");

impl Default for TlsSettings {
    fn default() -> Self {
        Self::first("VersionTLS12", INTERMEDIATE)
    }
}

impl TlsSettings {
    fn first(version: &str, count: usize) -> Self {
        let suites = SUITES.iter().take(count).map(|(_, name)| (*name).to_owned());
        Self { min_version: version.to_owned(), cipher_suites: suites.collect() }
    }

    /// Returns the settings of a profile. No profile, and a custom one without settings, are
    /// `Intermediate`.
    pub fn from_profile(profile: Option<&TlsSecurityProfile>) -> Result<Self, TlsError> {
        let Some(profile) = profile else { return Ok(Self::default()) };
        match (profile.kind.as_ref(), &profile.custom) {
            (None | Some(TlsProfileType::Intermediate), _)
            | (Some(TlsProfileType::Custom), None) => Ok(Self::default()),
            (Some(TlsProfileType::Modern), _) => Ok(Self::first("VersionTLS13", MODERN)),
            (Some(TlsProfileType::Old), _) => {
                let mut old = Self::first("VersionTLS10", SUITES.len());
                old.cipher_suites.push(TRIPLE_DES.1.to_owned());
                Ok(old)
            }
            (Some(TlsProfileType::Custom), Some(custom)) => Self::custom(custom),
            (Some(TlsProfileType::Other(word)), _) if word.is_empty() => Ok(Self::default()),
            (Some(TlsProfileType::Other(word)), _) => Err(TlsError::Type(word.clone())),
        }
    }

    fn custom(custom: &CustomTlsProfile) -> Result<Self, TlsError> {
        let version = custom.min_tls_version.as_str();
        let version = if version.is_empty() { "VersionTLS12" } else { version };
        if !VERSIONS.contains(&version) {
            return Err(TlsError::Version(version.to_owned()));
        }
        // Compat: suites that Go does not implement are dropped (library-go, crypto).
        let iana = |wanted: &String| {
            let mut known = SUITES.iter().chain([&TRIPLE_DES]);
            let found = known.find(|(openssl, _)| openssl == wanted);
            found.map(|(_, name)| (*name).to_owned())
        };
        let cipher_suites = custom.ciphers.iter().filter_map(iana).collect();
        Ok(Self { min_version: version.to_owned(), cipher_suites })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_profile_gives_version_and_suites() {
        let custom = json!({"type": "Custom", "custom": {
            "minTLSVersion": "VersionTLS11", "ciphers": ["AES128-SHA", "DHE-RSA-AES128-GCM-SHA256"],
        }});
        let cases = [
            (json!(null), "VersionTLS12", 9, "TLS_AES_128_GCM_SHA256"),
            (json!({}), "VersionTLS12", 9, "TLS_AES_128_GCM_SHA256"),
            (json!({"type": "Custom"}), "VersionTLS12", 9, "TLS_AES_128_GCM_SHA256"),
            (json!({"type": "Modern", "modern": {}}), "VersionTLS13", 3, "TLS_AES_128_GCM_SHA256"),
            (json!({"type": "Old", "old": {}}), "VersionTLS10", 21, "TLS_AES_128_GCM_SHA256"),
            (custom, "VersionTLS11", 1, "TLS_RSA_WITH_AES_128_CBC_SHA"),
        ];
        for (profile, version, count, first) in cases {
            let typed: Option<TlsSecurityProfile> =
                serde_json::from_value(profile.clone()).unwrap();
            let found = TlsSettings::from_profile(typed.as_ref()).unwrap();
            assert_eq!(found.min_version, version, "{profile}");
            assert_eq!(found.cipher_suites.len(), count, "{profile}");
            assert_eq!(found.cipher_suites[0], first, "{profile}");
        }
        let best = serde_json::from_value(json!({"type": "Best"})).unwrap();
        assert_eq!(TlsSettings::from_profile(Some(&best)), Err(TlsError::Type("Best".to_owned())));
    }
}
