//! Which version a client of the config server gets, from its `Accept` header.
//!
//! Ignition says what it understands as `application/vnd.coreos.ignition+json;version=3.4.0`, often
//! beside other entries. Who says nothing of the kind gets 2.2, as it always was.
//!
//! Compat: the rules, lenient as they are, are the reference's (pkg/server/api.go). The main type
//! is not looked at, `q=0` excludes nothing, a version or a weight that does not parse is as if it
//! were not there, and the best entry with a version decides alone.

mod weight;

use crate::{parse::Version, spec::Spec, target::Target};

/// The media subtype of an Ignition config.
const SUBTYPE: &str = "vnd.coreos.ignition+json";

/// The client asked for a version that nobody can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported Ignition version in Accept header: {header}")]
pub struct UnsupportedVersion {
    header: String,
}

/// One entry of the header: what counts of it.
struct Entry {
    version: Option<Version>,
    weight: f32,
}

/// Chooses the version to serve to a client that sent `header`.
///
/// An empty header stands for none.
pub fn negotiate(header: &str) -> Result<Target, UnsupportedVersion> {
    let mut entries: Vec<Entry> = header.split(',').filter_map(entry).collect();
    weight::sort(&mut entries, |entry| entry.weight);
    let Some(asked) = entries.into_iter().find_map(|entry| entry.version) else {
        return Ok(Target::V2_2);
    };
    served(&asked).ok_or_else(|| UnsupportedVersion { header: header.to_owned() })
}

/// What a client that understands `asked` is served.
fn served(asked: &Version) -> Option<Target> {
    let spec = match (asked.major, asked.minor) {
        (2, 2..) => return Some(Target::V2_2),
        (3, 0) => Spec::V3_0,
        (3, 1) => Spec::V3_1,
        (3, 2) => Spec::V3_2,
        (3, 3) => Spec::V3_3,
        (3, 4) => Spec::V3_4,
        // A client of a later 3.x reads every earlier one.
        (3, 5..) => Spec::V3_5,
        _ => return None,
    };
    Some(Target::V3(spec))
}

/// Reads one entry; what is not even a media type is none.
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
            ("zero excludes nothing", format!("{ign};version=3.2.0;q=0"), "3.2.0"),
            ("a later minor", format!("{ign};version=3.99.7"), "3.5.0"),
            ("pre-release and build parts", format!("{ign};version=3.2.0-rc.1+b"), "3.2.0"),
            ("two parts are no version", format!("{ign};version=3.2"), "2.2.0"),
            ("a broken version leaves room", format!("{ign};version=x;version=3.2.0"), "3.2.0"),
            ("one that negotiation lets through", format!("{ign};version=3.0.0"), "3.0.0"),
            ("an old minor", format!("{ign};version=2.1.0"), "refused"),
            ("no fall-back", format!("{ign};version=4.0.0,{ign};version=3.2.0;q=0.9"), "refused"),
            ("a name in capitals is another name", format!("{ign};Version=3.2.0"), "2.2.0"),
        ];
        for (case, header, expected) in cases {
            assert_eq!(served(&header), expected, "{case}: {header}");
        }
    }

    // covers: S20, S21
    #[test]
    fn a_refusal_quotes_the_header() {
        let header = "a/vnd.coreos.ignition+json;version=1.0.0";
        let text = negotiate(header).unwrap_err().to_string();
        assert_eq!(text, format!("unsupported Ignition version in Accept header: {header}"));
    }
}
