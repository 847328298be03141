//! Negotiation of the Ignition version that the config server serves, from the `Accept` header.
//!
//! Ignition lists the versions that it supports as
//! `application/vnd.coreos.ignition+json;version=3.4.0`, often beside other entries. A client that
//! lists none gets 2.2, for historical reasons.
//!
//! Compat: the lenient rules are the reference's (pkg/server/api.go). The main type is ignored,
//! `q=0` excludes nothing, a version or a weight that does not parse counts as absent, and the best
//! entry with a version decides alone.

mod weight;

use crate::{parse::Version, spec::Spec, target::TargetVersion};

/// Media subtype of an Ignition config.
const SUBTYPE: &str = "vnd.coreos.ignition+json";

/// The client accepts only versions that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported Ignition version in Accept header: {header}")]
pub struct UnsupportedVersion {
    header: String,
}

/// Version and weight of one entry of the header.
struct Entry {
    version: Option<Version>,
    weight: f32,
}

/// Selects the version to serve to a client that sent `header`.
///
/// An empty header counts as an absent one.
pub fn negotiate(header: &str) -> Result<TargetVersion, UnsupportedVersion> {
    let mut entries: Vec<Entry> = header.split(',').filter_map(entry).collect();
    weight::sort(&mut entries, |entry| entry.weight);
    let Some(asked) = entries.into_iter().find_map(|entry| entry.version) else {
        return Ok(TargetVersion::V2_2);
    };
    target_for(&asked).ok_or_else(|| UnsupportedVersion { header: header.to_owned() })
}

/// Returns the version to serve to a client that supports `asked`.
fn target_for(asked: &Version) -> Option<TargetVersion> {
    let spec = match (asked.major, asked.minor) {
        (2, 2..) => return Some(TargetVersion::V2_2),
        (3, 0) => Spec::V3_0,
        (3, 1) => Spec::V3_1,
        (3, 2) => Spec::V3_2,
        (3, 3) => Spec::V3_3,
        (3, 4) => Spec::V3_4,
        // A client of a later 3.x reads all earlier 3.x versions.
        (3, 5..) => Spec::V3_5,
        _ => return None,
    };
    Some(TargetVersion::V3(spec))
}

/// Parses one entry; returns `None` if it is not a media type.
fn entry(text: &str) -> Option<Entry> {
    let mut parts = text.trim().split(';').map(str::trim);
    let (_, subtype) = parts.next()?.split_once('/')?;
    let (mut version, mut weight) = (None, None);
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name {
            "version" if version.is_none() => version = Version::parse(value),
            "q" if weight.is_none() => weight = weight::parse(value),
            _ => {}
        }
    }
    let version = version.filter(|_| subtype == SUBTYPE);
    Some(Entry { version, weight: weight.unwrap_or(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(header: &str) -> String {
        negotiate(header).map_or_else(|_| "refused".to_owned(), |target| target.to_string())
    }

    // covers: S16, S17, S18, S19, S22, S23
    #[test]
    fn the_best_entry_with_a_version_decides() {
        let ign = "application/vnd.coreos.ignition+json";
        let cases = [
            ("no header", String::new(), "2.2.0"),
            ("curl", "*/*".to_owned(), "2.2.0"),
            ("an Ignition 2.x client", format!("{ign};version=3.4.0, */*;q=0.1"), "3.4.0"),
            (
                "an Ignition 0.x client",
                format!("{ign}; version=2.4.0, {ign}; version=1; q=0.5, */*; q=0.1"),
                "2.2.0",
            ),
            (
                "the higher weight",
                format!("{ign};version=3.1.0;q=0.5,{ign};version=3.3.0"),
                "3.3.0",
            ),
            ("the first of equals", format!("{ign};version=3.1.0,{ign};version=3.3.0"), "3.1.0"),
            ("a weight of zero excludes nothing", format!("{ign};version=3.2.0;q=0"), "3.2.0"),
            ("a later minor", format!("{ign};version=3.99.7"), "3.5.0"),
            ("pre-release and build parts", format!("{ign};version=3.2.0-rc.1+b"), "3.2.0"),
            ("two numbers are not a version", format!("{ign};version=3.2"), "2.2.0"),
            ("a malformed version is ignored", format!("{ign};version=x;version=3.2.0"), "3.2.0"),
            (
                "3.0 is negotiated although it cannot be produced",
                format!("{ign};version=3.0.0"),
                "3.0.0",
            ),
            ("an old minor", format!("{ign};version=2.1.0"), "refused"),
            (
                "no fallback to another entry",
                format!("{ign};version=4.0.0,{ign};version=3.2.0;q=0.9"),
                "refused",
            ),
            ("parameter names are case-sensitive", format!("{ign};Version=3.2.0"), "2.2.0"),
        ];
        for (case, header, expected) in cases {
            assert_eq!(served(&header), expected, "{case}: {header}");
        }
    }

    // covers: S20, S21
    #[test]
    fn the_error_quotes_the_header() {
        let header = "a/vnd.coreos.ignition+json;version=1.0.0";
        let text = negotiate(header).unwrap_err().to_string();
        assert_eq!(text, format!("unsupported Ignition version in Accept header: {header}"));
    }
}
