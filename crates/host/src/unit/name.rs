//! Names of units: plain, template or instance.

use mco_core::machine::UNIT_TYPES;

/// The kind of a unit name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One unit, such as `a.service`.
    Plain,
    /// A pattern for units, such as `a@.service`.
    Template,
    /// One unit made from a template, such as `a@b.service`.
    Instance,
}

/// Longest unit name that systemd allows.
const MAX_LENGTH: usize = 255;

/// Returns the kind of a name; none if it is not a valid unit name.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let is_name = !stem.is_empty()
        && name.len() <= MAX_LENGTH
        && UNIT_TYPES.contains(&suffix)
        && is_instance(name);
    if !is_name {
        return None;
    }
    match stem.split_once('@') {
        None => Some(Kind::Plain),
        Some(("", _)) => None,
        Some((_, "")) => Some(Kind::Template),
        Some((_, _)) => Some(Kind::Instance),
    }
}

/// Returns true if a text has only letters that names of units may have.
pub(crate) fn is_instance(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || ":-_.\\@".contains(letter))
}

/// Returns the suffix of a name.
pub(crate) fn suffix(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, suffix)| suffix)
}

/// Returns the template of a name that has one.
pub(crate) fn template(name: &str) -> Option<String> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let (prefix, _) = stem.split_once('@')?;
    Some(format!("{prefix}@.{suffix}"))
}

/// Returns the instance of a name.
pub(crate) fn instance(name: &str) -> Option<&str> {
    let (stem, _) = name.rsplit_once('.')?;
    stem.split_once('@').map(|(_, instance)| instance).filter(|instance| !instance.is_empty())
}

/// Builds an instance of a template.
pub(crate) fn with_instance(template: &str, instance: &str) -> String {
    match (template.split_once('@'), template.rsplit_once('.')) {
        (Some((prefix, _)), Some((_, suffix))) => format!("{prefix}@{instance}.{suffix}"),
        _ => template.to_owned(),
    }
}

/// Returns the last component of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_a_template_or_an_instance() {
        let cases = [
            ("a.service", Some(Kind::Plain)),
            ("a.b.timer", Some(Kind::Plain)),
            ("a@.service", Some(Kind::Template)),
            ("a@b.c.service", Some(Kind::Instance)),
            ("@a.service", None),
            ("a", None),
            ("a.conf", None),
            ("a b.service", None),
            (".service", None),
        ];
        for (name, want) in cases {
            assert_eq!(kind(name), want, "{name}");
        }
        assert_eq!(template("a@b.service").as_deref(), Some("a@.service"));
        assert_eq!(with_instance("a@.service", "x"), "a@x.service");
        assert_eq!((instance("a@b.service"), instance("a@.service")), (Some("b"), None));
    }
}
