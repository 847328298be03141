//! The specification version that a document declares.

use crate::{
    json::{Node, Value},
    object::same_folded,
    report::{Path, Report},
};

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) major: i64,
    pub(crate) minor: i64,
    pub(crate) patch: i64,
    pub(crate) pre_release: String,
    pub(crate) metadata: String,
}

impl Version {
    /// Parses a version; returns `None` if the text is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (text, metadata) = text.split_once('+').unwrap_or((text, ""));
        let (text, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let mut parts = text.splitn(3, '.');
        // Compat: leading zeros are allowed.
        let mut number = || parts.next()?.parse().ok();
        let (major, minor, patch) = (number()?, number()?, number()?);
        let known = is_identifier(metadata) && is_identifier(pre_release);
        known.then(|| Self {
            major,
            minor,
            patch,
            pre_release: pre_release.to_owned(),
            metadata: metadata.to_owned(),
        })
    }
}

/// Returns true if `text` is valid as the pre-release or build part of a version.
fn is_identifier(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.is_empty() || text.split('.').all(is_part)
}

/// Returns the text of `ignition.version`, or the type errors on the way to it.
///
/// As in every object, names match ignoring case and the last member wins.
pub(crate) fn declared(root: &Node<'_>) -> Result<String, Report> {
    let mut version = String::new();
    let mut report = Report::default();
    let path = Path::default();
    for (ignition, path) in members(root, "ignition", &path, &mut report) {
        for (node, path) in members(ignition, "version", &path, &mut report) {
            match &node.value {
                Value::String(text) => text.as_ref().clone_into(&mut version),
                Value::Null => {}
                other
                @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    report.mismatch(path, "a string", other);
                }
            }
        }
    }
    if report.is_fatal() { Err(report) } else { Ok(version) }
}

/// Returns the members of an object whose name matches `name`.
fn members<'a, 'r>(
    node: &'r Node<'a>,
    name: &'static str,
    path: &Path,
    report: &mut Report,
) -> Vec<(&'r Node<'a>, Path)> {
    match &node.value {
        Value::Object(members) => members
            .iter()
            .filter(|member| same_folded(name, &member.key))
            .map(|member| (&member.node, path.member(name)))
            .collect(),
        Value::Null => Vec::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            report.mismatch(path.clone(), "an object", other);
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_as_in_the_reference() {
        let cases = [
            ("3.2.0", Some("3 2 0 '' ''")),
            ("03.2.00-", Some("3 2 0 '' ''")),
            ("3.4.0-experimental", Some("3 4 0 'experimental' ''")),
            ("3.4.0-rc.1+build.5", Some("3 4 0 'rc.1' 'build.5'")),
            ("-3.2.0", None),
            ("3.2.+0", None),
            ("3.2", None),
            ("3", None),
            ("", None),
            (" 3.2.0", None),
            ("3.2.0.1", None),
            ("3.2.0-a..b", None),
            ("3.2.0-ä", None),
        ];
        for (text, expected) in cases {
            let shown = Version::parse(text).map(|it| {
                let Version { major, minor, patch, pre_release, metadata } = it;
                format!("{major} {minor} {patch} '{pre_release}' '{metadata}'")
            });
            assert_eq!(shown.as_deref(), expected, "{text:?}");
        }
    }
}
