//! Authentication: by a client certificate of the server's own authority, or by the bearer token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Method, header};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{clock, review::Identity};

/// Authenticates requests by bearer token.
pub(super) struct TokenAuthenticator {
    token: String,
}

impl TokenAuthenticator {
    pub(super) fn new(token: String) -> Self {
        Self { token }
    }

    /// Returns the identity of the request's token, if the token is valid.
    pub(super) fn authenticate(&self, headers: &HeaderMap) -> Option<Identity> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        let known = scheme.eq_ignore_ascii_case("bearer") && same(token.trim(), &self.token);
        known.then(|| Identity {
            user: "system:admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        })
    }
}

/// Compares two texts in constant time.
fn same(a: &str, b: &str) -> bool {
    let differences = a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differences == 0 && !a.is_empty()
}

/// Generates a random token.
pub(super) fn new_token() -> String {
    let entropy = clock::system_entropy();
    let mut bits = entropy().to_ne_bytes().to_vec();
    bits.extend(entropy().to_ne_bytes());
    URL_SAFE_NO_PAD.encode(bits)
}

/// Returns the identity that an already verified certificate names.
pub(super) fn certified(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|one| one.as_str().ok()).map(str::to_owned);
    Some(Identity { user, groups: groups.collect() })
}

/// Returns the identity of unauthenticated callers, for the public paths.
pub(super) fn anonymous() -> Identity {
    Identity { user: "system:anonymous".to_owned(), groups: Vec::new() }
}

/// Returns true if the path is served without authentication: health and version.
pub(super) fn is_open(method: &Method, path: &str) -> bool {
    method == Method::GET && matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_authenticates() {
        let authenticator = TokenAuthenticator::new("secret".into());
        for (value, known) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Basic secret", false),
            ("secret", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            assert_eq!(authenticator.authenticate(&headers).is_some(), known, "{value}");
        }
        assert!(TokenAuthenticator::new(String::new()).authenticate(&HeaderMap::new()).is_none());
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(new_token(), new_token());
    }
}
