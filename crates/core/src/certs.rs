//! When a certificate that we issue must be made anew.
//!
//! A certificate is replaced at a fixed age, at four fifths of its life at the latest, and at once
//! when it is for other names or of a signer that is no longer trusted. One that is due waits until
//! its signer has been known for a while, so that everybody trusts it by then, but not beyond nine
//! tenths of its life.
//!
//! Compat: these are the rules of the library that the reference uses (library-go, certrotation), save
//! that there nothing waits for a new signer after four fifths. The config server's authority and its
//! certificate are of one age, so that the certificate would change with its authority, at once.

mod bundle;
mod names;
mod user_data;

use std::{collections::BTreeSet, fmt};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub use self::{
    bundle::{AuthorityView, is_needed},
    names::server_names,
    user_data::{UserData, trust},
};

/// How long a certificate lives and when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// How long it is valid.
    pub validity: SignedDuration,
    /// At which age it is replaced.
    pub refresh: SignedDuration,
}

const YEAR: i64 = 365 * 24;

impl Life {
    /// The config server's authority and its certificate.
    pub const CONFIG_SERVER: Self = Self {
        validity: SignedDuration::from_hours(10 * YEAR),
        refresh: SignedDuration::from_hours(8 * YEAR),
    };
}

/// A certificate that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateView {
    /// From when on it is valid.
    pub not_before: Timestamp,
    /// Until when it is valid.
    pub not_after: Timestamp,
    /// The names it is for.
    pub names: BTreeSet<String>,
    /// Who signed it.
    pub signer: String,
}

/// What a certificate should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its life.
    pub life: Life,
    /// The names it is to be for.
    pub names: BTreeSet<String>,
    /// The signers that are trusted.
    pub trusted: BTreeSet<String>,
    /// Since when the present signer has been valid; none for a signer itself.
    pub signer_since: Option<Timestamp>,
}

/// What to do about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make it anew, because of this.
    Rotate(Reason),
    /// Look again then.
    Wait(Timestamp),
}

/// Why a certificate is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    Missing,
    /// It is no longer valid.
    Expired,
    /// Four fifths of its life are over, since then.
    NearEnd(Timestamp),
    /// It is due for its age, since then.
    Due(Timestamp),
    /// Its signer is not trusted.
    Signer(String),
    /// It is not for the right names: these are missing, those are too many.
    Names {
        /// Those it should be for and is not.
        missing: Vec<String>,
        /// Those it is for and should not be.
        extra: Vec<String>,
    },
}

/// Weighs a certificate.
#[must_use]
pub fn weigh(found: Option<&CertificateView>, wanted: &Wanted, now: Timestamp) -> Verdict {
    let Some(found) = found else { return Verdict::Rotate(Reason::Missing) };
    let near_end = share(found, 5);
    let due = later(found.not_before, wanted.life.refresh);
    // Others must have had the time to learn of the signer.
    let known = wanted.signer_since.map(|since| later(since, wanted.life.refresh / 10));
    let ripe = known.map_or(due, |known| known.max(due));
    let last_call = share(found, 10);
    let near_end = known.map_or(near_end, |known| known.min(last_call).max(near_end));
    let names = |left: &BTreeSet<String>, right: &BTreeSet<String>| -> Vec<String> {
        left.difference(right).cloned().collect()
    };
    if now > found.not_after {
        Verdict::Rotate(Reason::Expired)
    } else if now > near_end {
        Verdict::Rotate(Reason::NearEnd(near_end))
    } else if now > ripe {
        Verdict::Rotate(Reason::Due(due))
    } else if !wanted.trusted.is_empty() && !wanted.trusted.contains(&found.signer) {
        Verdict::Rotate(Reason::Signer(found.signer.clone()))
    } else if found.names != wanted.names {
        let missing = names(&wanted.names, &found.names);
        Verdict::Rotate(Reason::Names { missing, extra: names(&found.names, &wanted.names) })
    } else {
        Verdict::Wait(ripe.min(near_end))
    }
}

/// When only one part of so many is left of a life.
fn share(found: &CertificateView, parts: i32) -> Timestamp {
    let validity = found.not_after.duration_since(found.not_before);
    later(found.not_after, -(validity / parts))
}

/// A time that much later; as late as can be said where it cannot be said.
fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is none"),
            Self::Expired => f.write_str("already expired"),
            Self::NearEnd(since) => write!(f, "past refresh time (80% of validity): {since}"),
            Self::Due(since) => write!(f, "past its refresh time {since}"),
            Self::Signer(signer) => write!(f, "issuer {signer:?} is not trusted any longer"),
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
    fn age_names_and_signer_decide() {
        let found = CertificateView {
            not_before: year(2020),
            not_after: year(2030),
            names: set("a b"),
            signer: "old".to_owned(),
        };
        let wanted = |names: &str, trusted: &str, signer_since| Wanted {
            life: Life::CONFIG_SERVER,
            names: set(names),
            trusted: set(trusted),
            signer_since,
        };
        let cases = [
            ("a b", "old", None, 2021, "wait until 2028"),
            ("a b", "old", None, 2027, "wait until 2028"),
            ("a b", "old", None, 2029, "past refresh time (80% of validity)"),
            ("a b", "old", None, 2031, "already expired"),
            ("a b", "new", None, 2021, "issuer \"old\" is not trusted any longer"),
            ("a b", "new old", None, 2021, "wait until 2028"),
            ("a c", "old", None, 2021, "missing names [c], extra names [b]"),
        ];
        for (names, trusted, since, now, expected) in cases {
            let said = match weigh(Some(&found), &wanted(names, trusted, since), year(now)) {
                Verdict::Rotate(reason) => reason.to_string(),
                Verdict::Wait(until) => format!("wait until {until}"),
            };
            assert!(said.starts_with(expected), "{names} {trusted} {now}: {said}");
        }
        let missing = weigh(None, &wanted("a", "old", None), year(2021));
        assert_eq!(missing, Verdict::Rotate(Reason::Missing));
    }

    #[test]
    fn a_new_signer_is_given_time_to_become_known() {
        let long = CertificateView {
            not_before: year(2020),
            not_after: year(2040),
            names: set("a"),
            signer: "s".to_owned(),
        };
        let wanted = |since: i32| Wanted {
            life: Life::CONFIG_SERVER,
            names: set("a"),
            trusted: set("s"),
            signer_since: Some(year(since)),
        };
        let verdict = |since: i32| weigh(Some(&long), &wanted(since), year(2029));
        assert!(matches!(verdict(2020), Verdict::Rotate(Reason::Due(_))));
        assert!(matches!(verdict(2029), Verdict::Wait(_)), "ten months must pass first");
    }

    // covers: CERT-1
    #[test]
    fn a_certificate_as_old_as_its_signer_waits_for_the_new_one_but_not_to_its_end() {
        let found = CertificateView {
            not_before: year(2020),
            not_after: year(2030),
            names: set("a"),
            signer: "s".to_owned(),
        };
        let verdict = |since: &str, now: &str| {
            let wanted = Wanted {
                life: Life::CONFIG_SERVER,
                names: set("a"),
                trusted: set("s"),
                signer_since: Some(since.parse().unwrap()),
            };
            match weigh(Some(&found), &wanted, now.parse().unwrap()) {
                Verdict::Rotate(reason) => reason.to_string(),
                Verdict::Wait(until) => format!("wait until {until}"),
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
            let said = verdict(since, now);
            assert!(said.starts_with(expected), "{since} {now}: {said}");
        }
    }
}
