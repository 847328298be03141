//! Who is calling: a certificate of our authority, or the token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Method, header};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{clock, review::Identity};

/// Knows the token.
pub(super) struct Doorkeeper {
    token: String,
}

impl Doorkeeper {
    pub(super) fn new(token: String) -> Self {
        Self { token }
    }

    /// Who the request's token stands for.
    pub(super) fn by_token(&self, headers: &HeaderMap) -> Option<Identity> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        let known = scheme.eq_ignore_ascii_case("bearer") && same(token.trim(), &self.token);
        known.then(|| Identity {
            user: "system:admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        })
    }
}

/// Compares in a time that does not tell how much is equal.
fn same(a: &str, b: &str) -> bool {
    let differences = a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differences == 0 && !a.is_empty()
}

/// A token nobody can guess.
pub(super) fn new_token() -> String {
    let entropy = clock::system_entropy();
    let mut bits = entropy().to_ne_bytes().to_vec();
    bits.extend(entropy().to_ne_bytes());
    URL_SAFE_NO_PAD.encode(bits)
}

/// Who a certificate, already verified, is made out to.
pub(super) fn certified(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|one| one.as_str().ok()).map(str::to_owned);
    Some(Identity { user, groups: groups.collect() })
}

/// Somebody unknown, for the few open paths.
pub(super) fn anonymous() -> Identity {
    Identity { user: "system:anonymous".to_owned(), groups: Vec::new() }
}

/// Paths that tell nothing but that the server lives, and which.
pub(super) fn is_open(method: &Method, path: &str) -> bool {
    method == Method::GET && matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens_the_door() {
        let door = Doorkeeper::new("secret".into());
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
            assert_eq!(door.by_token(&headers).is_some(), known, "{value}");
        }
        assert!(Doorkeeper::new(String::new()).by_token(&HeaderMap::new()).is_none());
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(new_token(), new_token());
    }
}
