//! Rotation of the certificates that the controller issues.
//!
//! A certificate is rotated at a fixed age, at four fifths of its validity at the latest, and at
//! once if its names are wrong or its signer is no longer trusted. A certificate that is due waits
//! until its signer has been published for a while, so that clients trust the signer by then, but
//! not beyond nine tenths of its validity.
//!
//! Compat: these are the rules of the library that the reference uses (library-go, certrotation),
//! except that there a certificate never waits for a new signer after four fifths. The config
//! server's authority and its certificate have the same age, so there the certificate would change
//! together with its authority, at once.

mod bundle;
mod names;
mod user_data;

use std::{collections::BTreeSet, fmt};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub use self::{
    bundle::{AuthorityView, is_needed},
    names::server_names,
    user_data::{UserData, set_authorities},
};

/// Validity and refresh age of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLifetime {
    /// Time from issue to expiry.
    pub validity: SignedDuration,
    /// Age at which the certificate is rotated.
    pub refresh: SignedDuration,
}

const YEAR: i64 = 365 * 24;

impl CertificateLifetime {
    /// Lifetime of the config server's authority and of its certificate.
    pub const CONFIG_SERVER: Self = Self {
        validity: SignedDuration::from_hours(10 * YEAR),
        refresh: SignedDuration::from_hours(8 * YEAR),
    };
}

/// An existing certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateView {
    /// Start of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
    /// DNS names and addresses in the certificate.
    pub names: BTreeSet<String>,
    /// Name of the signing authority.
    pub signer: String,
}

/// The desired properties of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// Validity and refresh age.
    pub life: CertificateLifetime,
    /// Names that the certificate must have.
    pub names: BTreeSet<String>,
    /// Names of the trusted signers.
    pub trusted: BTreeSet<String>,
    /// Start of the current signer's validity; `None` for a signer itself.
    pub signer_since: Option<Timestamp>,
}

/// The decision on one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationDecision {
    /// Issue a new certificate now, for this reason.
    Rotate(RotationReason),
    /// Check again at this time.
    Wait(Timestamp),
}

/// The reason for a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationReason {
    /// The certificate does not exist.
    Missing,
    /// The certificate has expired.
    Expired,
    /// Four fifths of the validity are over since this time.
    NearEnd(Timestamp),
    /// The refresh age was reached at this time.
    Due(Timestamp),
    /// The signer is not trusted.
    Signer(String),
    /// The names differ from the desired ones.
    Names {
        /// Desired names that the certificate lacks.
        missing: Vec<String>,
        /// Names in the certificate that are not desired.
        extra: Vec<String>,
    },
}

/// Decides if a certificate must be rotated at `now`.
#[must_use]
pub fn decide_rotation(
    found: Option<&CertificateView>,
    wanted: &CertificateSpec,
    now: Timestamp,
) -> RotationDecision {
    let Some(found) = found else { return RotationDecision::Rotate(RotationReason::Missing) };
    let near_end = share(found, 5);
    let due = later(found.not_before, wanted.life.refresh);
    // Clients must have had time to receive the signer.
    let known = wanted.signer_since.map(|since| later(since, wanted.life.refresh / 10));
    let ripe = known.map_or(due, |known| known.max(due));
    let last_call = share(found, 10);
    let near_end = known.map_or(near_end, |known| known.min(last_call).max(near_end));
    let names = |left: &BTreeSet<String>, right: &BTreeSet<String>| -> Vec<String> {
        left.difference(right).cloned().collect()
    };
    if now > found.not_after {
        RotationDecision::Rotate(RotationReason::Expired)
    } else if now > near_end {
        RotationDecision::Rotate(RotationReason::NearEnd(near_end))
    } else if now > ripe {
        RotationDecision::Rotate(RotationReason::Due(due))
    } else if !wanted.trusted.is_empty() && !wanted.trusted.contains(&found.signer) {
        RotationDecision::Rotate(RotationReason::Signer(found.signer.clone()))
    } else if found.names != wanted.names {
        let missing = names(&wanted.names, &found.names);
        RotationDecision::Rotate(RotationReason::Names {
            missing,
            extra: names(&found.names, &wanted.names),
        })
    } else {
        RotationDecision::Wait(ripe.min(near_end))
    }
}

/// Returns the time at which one of `parts` equal parts of the validity is left.
fn share(found: &CertificateView, parts: i32) -> Timestamp {
    let validity = found.not_after.duration_since(found.not_before);
    later(found.not_after, -(validity / parts))
}

/// Adds a duration to a time, saturating at the latest representable time.
fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

impl fmt::Display for RotationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("certificate not found"),
            Self::Expired => f.write_str("already expired"),
            Self::NearEnd(since) => write!(f, "past refresh time (80% of validity): {since}"),
            Self::Due(since) => write!(f, "past its refresh time {since}"),
            Self::Signer(signer) => write!(f, "issuer {signer:?} is no longer trusted"),
            Self::Names { missing, extra } => {
                write!(
                    f,
                    "missing names [{}], extra names [{}]",
                    missing.join(" "),
                    extra.join(" ")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn year(year: i32) -> Timestamp {
        format!("{year}-06-01T00:00:00Z").parse().unwrap()
    }

    fn set(names: &str) -> BTreeSet<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    // covers: CERT-1, CERT-2
    #[test]
    fn age_names_and_signer_decide_the_rotation() {
        let found = CertificateView {
            not_before: year(2020),
            not_after: year(2030),
            names: set("a b"),
            signer: "old".to_owned(),
        };
        let wanted = |names: &str, trusted: &str, signer_since| CertificateSpec {
            life: CertificateLifetime::CONFIG_SERVER,
            names: set(names),
            trusted: set(trusted),
            signer_since,
        };
        let cases = [
            ("a b", "old", None, 2021, "wait until 2028"),
            ("a b", "old", None, 2027, "wait until 2028"),
            ("a b", "old", None, 2029, "past refresh time (80% of validity)"),
            ("a b", "old", None, 2031, "already expired"),
            ("a b", "new", None, 2021, "issuer \"old\" is no longer trusted"),
            ("a b", "new old", None, 2021, "wait until 2028"),
            ("a c", "old", None, 2021, "missing names [c], extra names [b]"),
        ];
        for (names, trusted, since, now, expected) in cases {
            let text =
                match decide_rotation(Some(&found), &wanted(names, trusted, since), year(now)) {
                    RotationDecision::Rotate(reason) => reason.to_string(),
                    RotationDecision::Wait(until) => format!("wait until {until}"),
                };
            assert!(text.starts_with(expected), "{names} {trusted} {now}: {text}");
        }
        let missing = decide_rotation(None, &wanted("a", "old", None), year(2021));
        assert_eq!(missing, RotationDecision::Rotate(RotationReason::Missing));
    }

    #[test]
    fn a_due_certificate_waits_until_a_new_signer_is_published() {
        let long = CertificateView {
            not_before: year(2020),
            not_after: year(2040),
            names: set("a"),
            signer: "s".to_owned(),
        };
        let wanted = |since: i32| CertificateSpec {
            life: CertificateLifetime::CONFIG_SERVER,
            names: set("a"),
            trusted: set("s"),
            signer_since: Some(year(since)),
        };
        let decision = |since: i32| decide_rotation(Some(&long), &wanted(since), year(2029));
        assert!(matches!(decision(2020), RotationDecision::Rotate(RotationReason::Due(_))));
        assert!(matches!(decision(2029), RotationDecision::Wait(_)), "ten months must pass first");
    }

    // covers: CERT-1
    #[test]
    fn a_certificate_as_old_as_its_signer_waits_for_the_new_signer_but_not_until_expiry() {
        let found = CertificateView {
            not_before: year(2020),
            not_after: year(2030),
            names: set("a"),
            signer: "s".to_owned(),
        };
        let decision = |since: &str, now: &str| {
            let wanted = CertificateSpec {
                life: CertificateLifetime::CONFIG_SERVER,
                names: set("a"),
                trusted: set("s"),
                signer_since: Some(since.parse().unwrap()),
            };
            match decide_rotation(Some(&found), &wanted, now.parse().unwrap()) {
                RotationDecision::Rotate(reason) => reason.to_string(),
                RotationDecision::Wait(until) => format!("wait until {until}"),
            }
        };
        let cases = [
            ("2020-06-01T00:00:00Z", "2028-07-01T00:00:00Z", "past refresh time"),
            ("2028-06-02T00:00:00Z", "2028-07-01T00:00:00Z", "wait until 2029-03-21"),
            ("2028-06-02T00:00:00Z", "2029-03-22T00:00:00Z", "past refresh time"),
            ("2029-05-01T00:00:00Z", "2029-05-20T00:00:00Z", "wait until 2029-05-31"),
            ("2029-05-01T00:00:00Z", "2029-06-02T00:00:00Z", "past refresh time"),
        ];
        for (since, now, expected) in cases {
            let text = decision(since, now);
            assert!(text.starts_with(expected), "{since} {now}: {text}");
        }
    }
}
