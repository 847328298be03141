//! TLS profiles: the oldest version and the ciphers of a kubelet's server.

use mco_api::kubelet_config::{TlsProfileType, TlsSecurityProfile};

/// Settings of a TLS profile, in the words of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Oldest version, for example `VersionTLS12`.
    pub min_version: String,
    /// Cipher suites by their IANA names.
    pub ciphers: Vec<String>,
}

/// Names of a cipher in OpenSSL and at IANA, strongest first. Ciphers of TLS 1.3 have one name.
const CIPHERS: &[(&str, &str)] = &[
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
    ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
];

/// Number of the first ciphers that belong to the profiles `Modern` and `Intermediate`.
const MODERN: usize = 3;
const INTERMEDIATE: usize = 9;

/// Returns the settings of a profile. No profile, an unknown one, and `Custom` without settings are
/// `Intermediate`; ciphers that Go does not implement are left out.
#[must_use]
pub fn settings(profile: Option<&TlsSecurityProfile>) -> TlsSettings {
    let kind = profile.and_then(|profile| profile.kind.as_ref());
    let custom = profile.and_then(|profile| profile.custom.as_ref());
    match (kind, custom) {
        (Some(TlsProfileType::Old), _) => first(CIPHERS.len(), "VersionTLS10"),
        (Some(TlsProfileType::Modern), _) => first(MODERN, "VersionTLS13"),
        (Some(TlsProfileType::Custom), Some(custom)) => TlsSettings {
            min_version: custom.min_tls_version.clone(),
            ciphers: custom.ciphers.iter().filter_map(|name| iana(name)).collect(),
        },
        (
            None
            | Some(TlsProfileType::Intermediate | TlsProfileType::Custom | TlsProfileType::Other(_)),
            _,
        ) => first(INTERMEDIATE, "VersionTLS12"),
    }
}

fn first(count: usize, min_version: &str) -> TlsSettings {
    let ciphers = CIPHERS.iter().take(count).map(|(_, iana)| (*iana).to_owned()).collect();
    TlsSettings { min_version: min_version.to_owned(), ciphers }
}

fn iana(openssl: &str) -> Option<String> {
    let known = CIPHERS.iter().find(|(name, _)| *name == openssl);
    known.map(|(_, iana)| (*iana).to_owned())
}
