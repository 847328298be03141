//! Selection of the authorities that stay in a CA bundle.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

/// A certificate authority in a CA bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityView {
    /// Subject name of the authority.
    pub name: String,
    /// End of the validity.
    pub not_after: Timestamp,
}

/// Returns true if an authority must stay in the bundle: it has not expired, and it is the current
/// signer or has signed a certificate that is in use.
///
/// The reference keeps every authority until it expires, for ten years.
#[must_use]
pub fn is_needed(
    found: &AuthorityView,
    signs: &str,
    in_use: &BTreeSet<String>,
    now: Timestamp,
) -> bool {
    now <= found.not_after && (found.name == signs || in_use.contains(&found.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CERT-1
    #[test]
    fn an_old_authority_stays_while_something_it_signed_is_in_use() {
        let cases = [
            // name, valid until, in use, stays
            ("new", 2036, "old", true),
            ("old", 2036, "old", true),
            ("old", 2036, "new", false),
            ("old", 2025, "old", false),
            ("new", 2025, "new", false),
        ];
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (name, until, in_use, expected) in cases {
            let not_after = format!("{until}-06-01T00:00:00Z").parse().unwrap();
            let found = AuthorityView { name: name.to_owned(), not_after };
            let in_use = BTreeSet::from([in_use.to_owned()]);
            assert_eq!(is_needed(&found, "new", &in_use, now), expected, "{name} {until}");
        }
    }
}
